package kubernetes

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calinix/caddy-calinix/discovery/kubernetes/internal/apiserver"
)

// patience is how long a test waits for what takes milliseconds.
const patience = 30 * time.Second

// shared is the API server of all tests that do not stop it.
var shared struct {
	sync.Once
	server *apiserver.Server
}

// namespaces numbers those that tests make.
var namespaces struct {
	sync.Mutex
	n int
}

// cluster is a namespace of a test's own.
type cluster struct {
	*apiserver.Server
	namespace string
}

// inCluster makes a namespace in the shared API server.
func inCluster(t *testing.T) *cluster {
	t.Helper()
	shared.Do(func() { shared.server = apiserver.StartShared(t) })
	return newCluster(t, shared.server)
}

func newCluster(t *testing.T, s *apiserver.Server) *cluster {
	t.Helper()
	namespaces.Lock()
	namespaces.n++
	c := &cluster{Server: s, namespace: fmt.Sprintf("test-%d", namespaces.n)}
	namespaces.Unlock()
	_, err := s.Admin.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}}, metav1.CreateOptions{})
	require.NoError(t, err)
	return c
}

// service makes a Service, or replaces its labels and annotations.
func (c *cluster) service(t *testing.T, name string, labels, annotations map[string]string) {
	t.Helper()
	services := c.Admin.CoreV1().Services(c.namespace)
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: annotations},
		Spec:       corev1.ServiceSpec{ClusterIP: "None", Ports: []corev1.ServicePort{{Name: "http", Port: 8000}}},
	}
	if known, err := services.Get(t.Context(), name, metav1.GetOptions{}); err == nil {
		known.Labels, known.Annotations = labels, annotations
		_, err = services.Update(t.Context(), known, metav1.UpdateOptions{})
		require.NoError(t, err)
		return
	}
	_, err := services.Create(t.Context(), svc, metav1.CreateOptions{})
	require.NoError(t, err)
}

// pod makes the Pod that endpoints refer to, or replaces its labels.
func (c *cluster) pod(t *testing.T, name string, labels map[string]string) {
	t.Helper()
	pods := c.Admin.CoreV1().Pods(c.namespace)
	if known, err := pods.Get(t.Context(), name, metav1.GetOptions{}); err == nil {
		known.Labels = labels
		_, err = pods.Update(t.Context(), known, metav1.UpdateOptions{})
		require.NoError(t, err)
		return
	}
	_, err := pods.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "engine", Image: "engine"}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// endpoint is one of a slice; change it with the functions below.
type endpoint = discoveryv1.Endpoint

// at is a ready endpoint of a pod.
func at(pod, address string) endpoint {
	return endpoint{
		Addresses:  []string{address},
		Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
		TargetRef:  &corev1.ObjectReference{Kind: "Pod", Name: pod},
	}
}

// with sets the conditions of an endpoint.
func with(e endpoint, ready, serving, terminating bool) endpoint {
	e.Conditions = discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating}
	return e
}

// port is a port of a slice.
func port(name string, number int32) discoveryv1.EndpointPort {
	return discoveryv1.EndpointPort{Name: &name, Port: &number, Protocol: new(corev1.ProtocolTCP)}
}

// slice makes a Service's slice of endpoints, or replaces it.
func (c *cluster) slice(t *testing.T, service, name string, ports []discoveryv1.EndpointPort, endpoints ...endpoint) {
	t.Helper()
	slices := c.Admin.DiscoveryV1().EndpointSlices(c.namespace)
	family := discoveryv1.AddressTypeIPv4
	if len(endpoints) > 0 && strings.Contains(endpoints[0].Addresses[0], ":") {
		family = discoveryv1.AddressTypeIPv6
	}
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: family, Ports: ports, Endpoints: endpoints,
	}
	if known, err := slices.Get(t.Context(), name, metav1.GetOptions{}); err == nil {
		s.ResourceVersion = known.ResourceVersion
		_, err = slices.Update(t.Context(), s, metav1.UpdateOptions{})
		require.NoError(t, err)
		return
	}
	_, err := slices.Create(t.Context(), s, metav1.CreateOptions{})
	require.NoError(t, err)
}

var http8000 = []discoveryv1.EndpointPort{port("http", 8000)}

// watch runs a source for the length of the test, with the administrator's
// credentials or others.
func (c *cluster) watch(t *testing.T, s *Source, token ...string) *reports {
	t.Helper()
	r, end := c.start(t, s, token...)
	t.Cleanup(end)
	return r
}

// start runs a source until end is called.
func (c *cluster) start(t *testing.T, s *Source, token ...string) (r *reports, end func()) {
	t.Helper()
	if s.Kubeconfig == "" {
		s.Kubeconfig = c.Kubeconfig(t, strings.Join(token, ""), c.namespace)
	}
	ctx, stop := caddy.NewContext(caddy.Context{Context: context.Background()})
	require.NoError(t, s.Provision(ctx))
	core, log := observer.New(zap.InfoLevel)
	s.logger, s.clientLog = zap.New(core), logr.Discard()
	r = newReports()
	r.log = log
	ended := make(chan struct{})
	watching, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(ended)
		s.Watch(watching, r)
	}()
	return r, func() {
		t.Helper()
		cancel()
		select {
		case <-ended:
		case <-time.After(endsWithin):
			t.Errorf("the source has not ended after %v", endsWithin)
			<-ended
		}
		stop()
	}
}

// endsWithin is within which a source ends: at once, but for a busy machine.
const endsWithin = 3 * time.Second

func TestMain(m *testing.M) {
	if account := os.Getenv(accountVariable); account != "" {
		os.Exit(pod(account))
	}
	code := m.Run()
	if shared.server != nil {
		shared.server.Close()
	}
	os.Exit(code)
}
