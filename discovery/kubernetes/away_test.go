package kubernetes

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calinix/caddy-calinix/discovery/kubernetes/internal/apiserver"
)

// While one kind of object cannot be watched the source fails, and what changes in
// the others counts at once.
func TestOneWatchFails(t *testing.T) {
	c := inCluster(t)
	g := newGate(t, c)
	c.service(t, "llama", nil, nil)
	for _, name := range []string{"a", "b", "c"} {
		c.pod(t, name, map[string]string{"x": "y"})
	}
	c.slice(t, "llama", "llama-1", http8000, at("a", "10.0.0.1"))
	r := c.watch(t, &Source{Service: "llama", PodSelector: "x=y", Kubeconfig: g.kubeconfig(t, c)})
	r.waitPods(t, "a=http://10.0.0.1:8000")
	g.close("pods")
	r.wait(t, "a failure", func(_, fault string) bool { return fault != "" })
	for pod, address := range map[string]string{"b": "10.0.0.2", "c": "10.0.0.3"} {
		c.slice(t, "llama", "llama-1", http8000, at(pod, address))
		want := pod + "=http://" + address + ":8000"
		assert.Less(t, r.wait(t, want+" and a failure", func(pods, fault string) bool { return pods == want && fault != "" }), soon)
	}
	g.open()
	r.wait(t, "no failure", func(_, fault string) bool { return fault == "" })
}

// While the API server is away the pods known last stay, and what changed in the
// meantime is seen afterwards.
func TestServerAway(t *testing.T) {
	c := newCluster(t, apiserver.Start(t))
	c.service(t, "llama", nil, nil)
	c.slice(t, "llama", "llama-1", http8000, at("a", "10.0.0.1"))
	r := c.watch(t, &Source{Service: "llama"})
	r.waitPods(t, "a=http://10.0.0.1:8000")
	c.Stop()
	r.wait(t, "a failure", func(pods, fault string) bool { return fault != "" && pods == "a=http://10.0.0.1:8000" })
	c.Restart(t)
	r.waitPods(t, "a=http://10.0.0.1:8000")
	c.slice(t, "llama", "llama-1", http8000, at("b", "10.0.0.2"))
	r.waitPods(t, "b=http://10.0.0.2:8000")
}

// A source that starts while the API server is away finds its pods later.
func TestStartWithoutServer(t *testing.T) {
	c := newCluster(t, apiserver.Start(t))
	c.service(t, "llama", nil, nil)
	c.slice(t, "llama", "llama-1", http8000, at("a", "10.0.0.1"))
	c.Stop()
	r := c.watch(t, &Source{Service: "llama"})
	r.wait(t, "a failure", func(pods, fault string) bool { return fault != "" && pods == "none yet" })
	c.Restart(t)
	r.waitPods(t, "a=http://10.0.0.1:8000")
}

// A watch that was cut off for so long that the server no longer knows what has
// changed meanwhile (410 Gone) begins anew, and misses nothing.
func TestHistoryGone(t *testing.T) {
	c := newCluster(t, apiserver.Start(t))
	g := newGate(t, c)
	c.service(t, "llama", nil, nil)
	c.slice(t, "llama", "llama-1", http8000, at("a", "10.0.0.1"))
	c.slice(t, "llama", "llama-2", http8000, at("b", "10.0.0.2"))
	r := c.watch(t, &Source{Service: "llama", Kubeconfig: g.kubeconfig(t, c)})
	r.waitPods(t, "a=http://10.0.0.1:8000", "b=http://10.0.0.2:8000")
	c.slice(t, "llama", "llama-2", http8000, at("b", "10.0.0.9"))
	r.waitPods(t, "a=http://10.0.0.1:8000", "b=http://10.0.0.9:8000") // else the watch would not have told of anything, and not be resumed
	g.hold("endpointslices")
	require.NoError(t, c.Admin.DiscoveryV1().EndpointSlices(c.namespace).Delete(t.Context(), "llama-1", metav1.DeleteOptions{}))
	c.slice(t, "llama", "llama-2", http8000, at("c", "10.0.0.3"))
	c.Stop()
	c.Restart(t) // it knows its objects, not how they came about
	g.open()
	r.waitPods(t, "c=http://10.0.0.3:8000")
	assert.True(t, g.sawGone(), "the server has told what had changed")
}

// A source ends at once, also while it waits for the API server, and leaves nothing
// behind.
func TestEnd(t *testing.T) {
	c := newCluster(t, apiserver.Start(t))
	c.service(t, "llama", nil, nil)
	c.slice(t, "llama", "llama-1", http8000, at("a", "10.0.0.1"))
	before := goleak.IgnoreCurrent()
	r, end := c.start(t, &Source{Service: "llama"})
	r.waitPods(t, "a=http://10.0.0.1:8000")
	end()
	c.Stop()
	r, end = c.start(t, &Source{Service: "llama"})
	tries := 0
	r.wait(t, "many failures", func(_, fault string) bool {
		if fault != "" {
			tries++
		}
		return tries == 10
	})
	end()
	// Connections that nothing uses close later.
	goleak.VerifyNone(t, before, goleak.IgnoreAnyFunction("golang.org/x/net/http2.(*ClientConn).readLoop"))
}
