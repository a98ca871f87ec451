package kubernetes

import (
	"cmp"
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/calinix/caddy-calinix/config"
)

// find works out the pods from the copies. It also returns the names of all that slices
// list, be they pods of the list or not.
func (w *watcher) find() ([]config.Pod, map[string]bool) {
	services := map[string]*corev1.Service{}
	for _, svc := range list[*corev1.Service](w.services) {
		services[svc.Name] = svc
	}
	var chosen map[string]*corev1.Pod // nil: all
	if w.pods != nil {
		chosen = map[string]*corev1.Pod{}
		for _, p := range list[*corev1.Pod](w.pods) {
			chosen[p.Name] = p
		}
	}
	var all []slice
	for _, s := range list[*discoveryv1.EndpointSlice](w.slices) {
		if svc := services[s.Labels[discoveryv1.LabelServiceName]]; svc != nil { // else of another Service, or of one that is gone
			all = append(all, slice{s, svc})
		}
	}
	slices.SortFunc(all, slice.compare)
	j := joined{source: w.source, byID: map[string]*listed{}, notes: map[note]bool{}}
	if len(services) == 0 {
		j.note("there is no such Service", cmp.Or(w.source.Service, w.source.ServiceSelector), "")
	}
	names := map[string]bool{}
	for _, slice := range all {
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			if len(e.Addresses) == 0 {
				continue
			}
			names[nameOf(e)] = true
			pod := podOf(e, chosen)
			if chosen != nil && pod == nil {
				continue
			}
			j.endpoint(slice, e, pod)
		}
	}
	w.warn(j.notes)
	return j.list(), names
}

// slice is a slice of endpoints and its Service.
type slice struct {
	*discoveryv1.EndpointSlice
	service *corev1.Service
}

// compare orders slices: of a dual-stack Service those of its first family come
// first.
func (s slice) compare(other slice) int {
	family := func(s slice) int {
		return slices.Index(s.service.Spec.IPFamilies, corev1.IPFamily(s.AddressType))
	}
	return cmp.Or(cmp.Compare(family(s), family(other)), cmp.Compare(s.Name, other.Name))
}

// podOf returns the pod that an endpoint is, nil if it is none of these. Endpoints
// may stand for other kinds of objects, whose names say nothing.
func podOf(e *discoveryv1.Endpoint, pods map[string]*corev1.Pod) *corev1.Pod {
	if e.TargetRef == nil || e.TargetRef.Kind != "Pod" {
		return nil
	}
	return pods[e.TargetRef.Name]
}

// joined puts the endpoints of several slices and Services together: a pod may be
// in more than one of them, for a while or for good.
type joined struct {
	source *Source
	byID   map[string]*listed
	notes  map[note]bool
}

func (j *joined) note(message, service, value string) { j.notes[note{message, service, value}] = true }

// listed is a pod, and which one of those that may have its name one after the
// other; "" if that is not known.
type listed struct {
	config.Pod
	uid types.UID
}

// list returns the pods.
func (j *joined) list() []config.Pod {
	pods := make([]config.Pod, 0, len(j.byID))
	for _, p := range j.byID {
		pods = append(pods, p.Pod)
	}
	return pods
}

// endpoint adds an endpoint of a slice; pod is nil where labels of pods do not
// matter.
func (j *joined) endpoint(slice slice, e *discoveryv1.Endpoint, pod *corev1.Pod) {
	ready, serving, terminating := conditions(e)
	draining := terminating && serving
	if !ready && !draining {
		return
	}
	for _, port := range j.ports(slice) {
		p := listed{Pod: config.Pod{
			ID:  j.id(e, port),
			URL: j.scheme(port) + "://" + net.JoinHostPort(e.Addresses[0], strconv.Itoa(int(*port.Port))),
		}}
		if e.TargetRef != nil {
			p.uid = e.TargetRef.UID
		}
		if draining {
			p.Draining = new(true)
		}
		if e.NodeName != nil {
			p.Node = *e.NodeName
		}
		if e.Zone != nil {
			p.Zone = *e.Zone
		}
		j.model(&p.Pod, slice.service, pod)
		j.add(&p)
	}
}

// model notes which model a Service serves at p, and how its requests are routed.
func (j *joined) model(p *config.Pod, svc *corev1.Service, pod *corev1.Pod) {
	model, strategy := svc.Labels[j.source.ModelLabel], j.strategy(svc)
	if model == "" && pod != nil {
		model = pod.Labels[j.source.ModelLabel]
	}
	if model == "" {
		p.Strategy = strategy
		return
	}
	p.Models = []string{model}
	if strategy != "" {
		p.Strategies = map[string]string{model: strategy} // p may serve the models of other Services too
	}
}

// conditions reads an endpoint's conditions; unknown means ready, serving and not
// terminating (discovery.k8s.io/v1).
func conditions(e *discoveryv1.Endpoint) (ready, serving, terminating bool) {
	or := func(b *bool, unknown bool) bool {
		if b == nil {
			return unknown
		}
		return *b
	}
	c := e.Conditions
	terminating = or(c.Terminating, false)
	// Services that publish addresses that are not ready call terminating ones ready.
	return or(c.Ready, true) && !terminating, or(c.Serving, true), terminating
}

// ports returns those of a slice on which the engines listen.
func (j *joined) ports(slice slice) []discoveryv1.EndpointPort {
	var out []discoveryv1.EndpointPort
	for _, p := range slice.Ports {
		if p.Port == nil || p.Protocol != nil && *p.Protocol != corev1.ProtocolTCP {
			continue
		}
		name := ""
		if p.Name != nil {
			name = *p.Name
		}
		if len(j.source.Ports) == 0 || slices.Contains(j.source.Ports, strconv.Itoa(int(*p.Port))) || name != "" && slices.Contains(j.source.Ports, name) {
			out = append(out, p)
		}
	}
	switch {
	case len(out) == 0:
		j.note("a Service has no TCP port, or none that was asked for: its endpoints are left out", slice.service.Name, strings.Join(j.source.Ports, " "))
	case len(j.source.Ports) == 0 && len(out) > 1:
		out = out[:1]
		j.note("a Service has several ports and none was asked for, the first is taken: give ports", slice.service.Name, strconv.Itoa(int(*out[0].Port)))
	}
	return out
}

// nameOf returns the name of an endpoint's pod, or the address of one without.
func nameOf(e *discoveryv1.Endpoint) string {
	if e.TargetRef != nil && e.TargetRef.Kind == "Pod" {
		return e.TargetRef.Name
	}
	return e.Addresses[0]
}

// id names the pod of an endpoint and a port.
func (j *joined) id(e *discoveryv1.Endpoint, port discoveryv1.EndpointPort) string {
	id := nameOf(e)
	if len(j.source.Ports) > 1 {
		id = net.JoinHostPort(id, strconv.Itoa(int(*port.Port)))
	}
	return id
}

func (j *joined) scheme(port discoveryv1.EndpointPort) string {
	switch {
	case j.source.Scheme != "":
		return j.source.Scheme
	case port.AppProtocol != nil && *port.AppProtocol == "https":
		return "https"
	default:
		return "http"
	}
}

// strategies are the values of the routing annotation.
var strategies = map[string]string{
	"session-affinity": "sessionAffinity",
	"prefix":           "prefix",
	"least-loaded":     "leastLoaded",
}

// strategy is the one that a Service asks for, "" for none.
func (j *joined) strategy(svc *corev1.Service) string {
	said, ok := svc.Annotations[j.source.RoutingAnnotation]
	if !ok {
		return ""
	}
	strategy, ok := strategies[said]
	if !ok {
		j.note("the annotation "+j.source.RoutingAnnotation+" has an unknown value and counts as absent: want session-affinity, prefix or least-loaded", svc.Name, said)
	}
	return strategy
}

// add joins a pod to what is known of it. It serves the models of all its Services.
func (j *joined) add(p *listed) {
	known := j.byID[p.ID]
	if known == nil {
		j.byID[p.ID] = p
		return
	}
	switch {
	case p.uid != "" && p.uid == known.uid:
		// The slices do not change at once, and a pod that ends does not come back.
		known.Draining = cmp.Or(known.Draining, p.Draining)
	case known.Draining != nil && p.Draining == nil:
		// It has the name of one that ends, and mostly another address.
		known.URL, known.Node, known.Zone = p.URL, p.Node, p.Zone
		known.Draining, known.uid = nil, p.uid
	}
	known.AddModels(p.Pod)
	known.Strategy = cmp.Or(known.Strategy, p.Strategy)
}
