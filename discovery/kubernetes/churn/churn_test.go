// Package churn has the tests of pods that come and go in a Kubernetes cluster
// while a real Caddy serves streams.
package churn

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	_ "github.com/calinix/caddy-calinix"
	_ "github.com/calinix/caddy-calinix/discovery/kubernetes"
	"github.com/calinix/caddy-calinix/discovery/kubernetes/internal/apiserver"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

func TestMain(m *testing.M) { testcaddy.Main(m) }

// scene is a Service with engines, and a Caddy in front of it.
type scene struct {
	t       *testing.T
	server  *apiserver.Server
	caddy   *testcaddy.Caddy
	engines *engines
	version string // of the slice
	shown   map[string]shown
	slowest time.Duration // until a change was seen
	// restarted: the API server may itself take its time to tell of a change.
	restarted bool
	finishing int64 // streams that ran at engines when these had begun to drain
}

// shown is an endpoint of the slice.
type shown struct {
	engine      *engine
	ready       bool
	terminating bool
}

// show writes the slice and waits until Calinix has what it says.
func (s *scene) show() {
	s.t.Helper()
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "llama-1", Labels: map[string]string{discoveryv1.LabelServiceName: "llama"}, ResourceVersion: s.version},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(s.engines.port))}},
	}
	var want []string
	for _, name := range slices.Sorted(maps.Keys(s.shown)) {
		e := s.shown[name]
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{e.engine.address},
			Conditions: discoveryv1.EndpointConditions{Ready: new(e.ready && !e.terminating), Serving: &e.ready, Terminating: &e.terminating},
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Name: name},
		})
		switch {
		case e.terminating && e.ready:
			want = append(want, name+" draining")
		case e.ready:
			want = append(want, name)
		}
	}
	all := s.server.Admin.DiscoveryV1().EndpointSlices("default")
	var err error
	if s.version == "" {
		slice, err = all.Create(s.t.Context(), slice, metav1.CreateOptions{})
	} else {
		slice, err = all.Update(s.t.Context(), slice, metav1.UpdateOptions{})
	}
	require.NoError(s.t, err)
	s.version = slice.ResourceVersion
	if s.restarted {
		s.told()
	}
	begin := time.Now()
	for ; strings.Join(s.pods(), ", ") != strings.Join(want, ", "); time.Sleep(5 * time.Millisecond) {
		if time.Since(begin) > 20*time.Second {
			s.t.Fatalf("pods %v, want %v", s.pods(), want)
		}
	}
	took := time.Since(begin)
	s.slowest = max(s.slowest, took)
	if took > time.Second {
		s.t.Errorf("the pods %v were seen after %v", want, took)
	}
}

// told waits until the API server tells a watch of the slice as it is now.
func (s *scene) told() {
	s.t.Helper()
	begin := time.Now()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	w, err := s.server.Admin.DiscoveryV1().EndpointSlices("default").Watch(ctx, metav1.ListOptions{})
	require.NoError(s.t, err)
	defer w.Stop()
	for event := range w.ResultChan() {
		if slice, ok := event.Object.(*discoveryv1.EndpointSlice); ok && slice.ResourceVersion == s.version {
			s.t.Logf("the API server tells of a change after %v", time.Since(begin))
			return
		}
	}
	s.t.Fatal("the API server does not tell of a change")
}

// pods lists what Calinix has.
func (s *scene) pods() []string {
	s.t.Helper()
	var all []struct {
		ID       string
		Draining bool
	}
	a := s.caddy.AdminGet(s.t, "/calinix/pods")
	require.NoError(s.t, json.Unmarshal(a.Body, &all))
	var pods []string
	for _, p := range all {
		if p.Draining {
			p.ID += " draining"
		}
		pods = append(pods, p.ID)
	}
	slices.Sort(pods)
	return pods
}

// add starts n engines and shows them as ready.
func (s *scene) add(n int) {
	s.t.Helper()
	for range n {
		e := s.engines.start(s.t)
		s.shown[e.name] = shown{engine: e, ready: true}
	}
	s.show()
}

// remove terminates an engine as Kubernetes does: its endpoint is marked first, the
// engine finishes its streams, then both are gone.
func (s *scene) remove(name string) {
	s.t.Helper()
	e := s.shown[name]
	e.terminating = true
	s.shown[name] = e
	s.show()
	s.finishing += e.engine.running.Load()
	// What was sent before arrives before the engine closes its idle connections: for
	// that the manifest has a preStop hook.
	s.caddy.WaitMetrics(s.t, "requests to arrive at "+name, func(m testcaddy.Metrics) bool {
		return m.Sum("calinix_pod_inflight", "pod", name) <= float64(e.engine.running.Load())
	})
	e.engine.terminate(s.t)
	delete(s.shown, name)
	s.show()
}

// flip makes an engine not ready, and ready again.
func (s *scene) flip(name string) {
	s.t.Helper()
	for _, ready := range []bool{false, true} {
		e := s.shown[name]
		e.ready = ready
		s.shown[name] = e
		s.show()
	}
}

func (s *scene) names() []string { return slices.Sorted(maps.Keys(s.shown)) }

// A Service is scaled 1, 5, 2, its pods are replaced one after the other, become
// not ready and ready again, and the API server is restarted, all under 100 streams
// a second. There always is a ready pod, so no request may fail.
func TestChurn(t *testing.T) {
	s := &scene{t: t, server: apiserver.Start(t), engines: newEngines(t), shown: map[string]shown{}}
	_, err := s.server.Admin.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "llama"},
		Spec:       corev1.ServiceSpec{ClusterIP: "None", Ports: []corev1.ServicePort{{Name: "http", Port: int32(s.engines.port)}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	// Probes are patient: this is not about engines that a busy machine makes slow.
	s.caddy = testcaddy.Serve(t, `
calinix {
	health {
		interval 500ms
		timeout 10s
	}
	transport http {
		network_proxy url `+newNetwork(t).url()+`
	}
	single {
		discover kubernetes llama {
			namespace default
			kubeconfig `+s.server.Kubeconfig(t, "", "default")+`
		}
	}
}`, testcaddy.Plain())
	s.add(1)
	l := startLoad(t, s.caddy.URL)
	s.add(4)
	for _, name := range s.names()[:3] {
		s.remove(name)
	}
	for _, name := range s.names() {
		s.add(1)
		s.remove(name)
	}
	for range 3 {
		for _, name := range s.names() {
			s.flip(name)
		}
	}
	s.server.Stop()
	s.caddy.WaitMetric(t, 1, "calinix_discovery_failing")
	s.server.Restart(t)
	back := time.Now()
	s.caddy.WaitMetric(t, 0, "calinix_discovery_failing")
	t.Logf("the API server was found again after %v", time.Since(back))
	s.restarted = true
	s.add(1)
	s.flip(s.names()[0])
	s.remove(s.names()[0])
	l.end(t)
	t.Logf("the slowest change was seen after %v", s.slowest)
	if s.finishing == 0 {
		t.Error("no stream ran at an engine that began to drain")
	}
	s.caddy.WaitMetric(t, 0, "calinix_pod_inflight")
	if added := s.caddy.Metrics(t).Sum("calinix_endpoint_changes_total", "change_type", "added"); added < 8 {
		t.Errorf("%v pods were added, want 8 or more", added)
	}
}
