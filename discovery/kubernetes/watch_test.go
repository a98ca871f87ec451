package kubernetes

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// soon is within which a change is to be seen.
const soon = time.Second

// A Service is scaled from one pod to five, which no longer fit into one slice,
// and back to two; its port changes, it is deleted, and comes back.
func TestScale(t *testing.T) {
	c := inCluster(t)
	c.service(t, "llama", nil, nil)
	r := c.watch(t, &Source{Service: "llama"})
	r.waitPods(t)
	seen := func(took time.Duration) {
		t.Helper()
		t.Logf("seen after %v", took)
		assert.Less(t, took, soon)
	}
	c.slice(t, "llama", "llama-1", http8000, at("a", "10.0.0.1"))
	seen(r.waitPods(t, "a=http://10.0.0.1:8000"))
	c.slice(t, "llama", "llama-1", http8000, at("a", "10.0.0.1"), at("b", "10.0.0.2"), at("c", "10.0.0.3"))
	c.slice(t, "llama", "llama-2", http8000, at("c", "10.0.0.3"), at("d", "10.0.0.4"), at("e", "10.0.0.5")) // c moves
	seen(r.waitPods(t, "a=http://10.0.0.1:8000", "b=http://10.0.0.2:8000", "c=http://10.0.0.3:8000", "d=http://10.0.0.4:8000", "e=http://10.0.0.5:8000"))
	c.slice(t, "llama", "llama-2", http8000)
	c.slice(t, "llama", "llama-1", http8000, at("b", "10.0.0.2"), at("c", "10.0.0.3"))
	seen(r.waitPods(t, "b=http://10.0.0.2:8000", "c=http://10.0.0.3:8000"))
	c.slice(t, "llama", "llama-1", []discoveryv1.EndpointPort{port("http", 9000)}, at("b", "10.0.0.2"))
	seen(r.waitPods(t, "b=http://10.0.0.2:9000"))
	require.NoError(t, c.Admin.CoreV1().Services(c.namespace).Delete(t.Context(), "llama", metav1.DeleteOptions{}))
	seen(r.waitPods(t))
	c.service(t, "llama", nil, nil)
	seen(r.waitPods(t, "b=http://10.0.0.2:9000"))
}

func TestConditions(t *testing.T) {
	c := inCluster(t)
	c.service(t, "llama", nil, nil)
	r := c.watch(t, &Source{Service: "llama"})
	unknown := at("unknown", "10.0.0.9")
	unknown.Conditions.Ready, unknown.Conditions.Serving, unknown.Conditions.Terminating = nil, nil, nil
	c.slice(t, "llama", "llama-1", http8000,
		with(at("ready", "10.0.0.1"), true, true, false),
		with(at("starting", "10.0.0.2"), false, false, false),
		with(at("draining", "10.0.0.3"), false, true, true),
		with(at("gone", "10.0.0.4"), false, false, true),
		with(at("published", "10.0.0.5"), true, true, true), // publishNotReadyAddresses
		unknown,
	)
	r.waitPods(t, "draining=http://10.0.0.3:8000,draining", "published=http://10.0.0.5:8000,draining",
		"ready=http://10.0.0.1:8000", "unknown=http://10.0.0.9:8000")
}

// A pod may be listed in several slices, and a name go from a pod that ends to the
// next one, as a StatefulSet does it.
func TestListedTwice(t *testing.T) {
	c := inCluster(t)
	c.service(t, "llama", nil, nil)
	r := c.watch(t, &Source{Service: "llama"})
	uid := func(e endpoint, uid types.UID) endpoint {
		e.TargetRef.UID, e.NodeName = uid, new("node-of-"+string(uid))
		return e
	}
	old := with(uid(at("a", "10.0.0.1"), "old"), false, true, true)
	next := uid(at("a", "10.0.0.2"), "next")

	c.slice(t, "llama", "llama-1", http8000, old)
	r.waitPods(t, "a=http://10.0.0.1:8000,draining,at=node-of-old/")
	c.slice(t, "llama", "llama-2", http8000, next)
	r.waitPods(t, "a=http://10.0.0.2:8000,at=node-of-next/")
	c.slice(t, "llama", "llama-2", http8000, old)
	r.waitPods(t, "a=http://10.0.0.1:8000,draining,at=node-of-old/")
	c.slice(t, "llama", "llama-1", http8000, next)
	r.waitPods(t, "a=http://10.0.0.2:8000,at=node-of-next/")

	// The other slice does not say yet that the pod ends.
	c.slice(t, "llama", "llama-1", http8000, uid(at("a", "10.0.0.1"), "old"))
	r.waitPods(t, "a=http://10.0.0.1:8000,draining,at=node-of-old/")

	// Nobody says which pods they are.
	old.TargetRef.UID, next.TargetRef.UID = "", ""
	c.slice(t, "llama", "llama-1", http8000, old)
	c.slice(t, "llama", "llama-2", http8000, next)
	r.waitPods(t, "a=http://10.0.0.2:8000,at=node-of-next/")
}

// Of a dual-stack Service the addresses of its first family count, whatever its
// slices are called.
func TestDualStack(t *testing.T) {
	c := inCluster(t)
	for first, want := range map[corev1.IPFamily]string{
		corev1.IPv4Protocol: "a=http://10.0.0.1:8000",
		corev1.IPv6Protocol: "a=http://[fd00::1]:8000",
	} {
		second := corev1.IPv4Protocol
		if first == second {
			second = corev1.IPv6Protocol
		}
		name := strings.ToLower(string(first))
		_, err := c.Admin.CoreV1().Services(c.namespace).Create(t.Context(), &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.ServiceSpec{
				ClusterIP: "None", Ports: []corev1.ServicePort{{Name: "http", Port: 8000}},
				IPFamilies: []corev1.IPFamily{first, second}, IPFamilyPolicy: new(corev1.IPFamilyPolicyRequireDualStack),
			},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		c.slice(t, name, name+"-1", http8000, at("a", "10.0.0.1"))
		c.slice(t, name, name+"-2", http8000, at("a", "fd00::1"))
		c.watch(t, &Source{Service: name}).waitPods(t, want)
	}
}

func TestAddressesAndPorts(t *testing.T) {
	c := inCluster(t)
	c.service(t, "llama", nil, nil)
	two := append(http8000[:1:1], port("metrics", 9000))
	placed := at("a", "fd00::1")
	placed.NodeName, placed.Zone = new("node-1"), new("zone-1")
	nameless := at("", "fd00::2")
	nameless.TargetRef = nil
	c.slice(t, "llama", "llama-1", two, placed, nameless)
	c.watch(t, &Source{Service: "llama", Ports: []string{"http"}}).
		waitPods(t, "a=http://[fd00::1]:8000,at=node-1/zone-1", "fd00::2=http://[fd00::2]:8000")
	c.watch(t, &Source{Service: "llama", Ports: []string{"9000"}, Scheme: "https"}).
		waitPods(t, "a=https://[fd00::1]:9000,at=node-1/zone-1", "fd00::2=https://[fd00::2]:9000")
	c.watch(t, &Source{Service: "llama", Ports: []string{"http", "metrics"}}).
		waitPods(t, "[fd00::2]:8000=http://[fd00::2]:8000", "[fd00::2]:9000=http://[fd00::2]:9000",
			"a:8000=http://[fd00::1]:8000,at=node-1/zone-1", "a:9000=http://[fd00::1]:9000,at=node-1/zone-1")
	c.watch(t, &Source{Service: "llama"}).waitPods(t, "a=http://[fd00::1]:8000,at=node-1/zone-1", "fd00::2=http://[fd00::2]:8000")
}

// Models, strategies and roles come from labels and annotations, and follow them.
func TestLabels(t *testing.T) {
	c := inCluster(t)
	c.service(t, "one", map[string]string{"flexinfer.ai/model": "llama", "tier": "chat"}, map[string]string{"flexinfer.ai/routing": "session-affinity"})
	c.service(t, "two", map[string]string{"flexinfer.ai/model": "qwen", "tier": "chat"}, map[string]string{"flexinfer.ai/routing": "by-magic"})
	c.service(t, "other", map[string]string{"tier": "batch"}, nil)
	c.pod(t, "a", map[string]string{"llm-d.ai/role": "prefill"})
	c.pod(t, "b", map[string]string{"llm-d.ai/role": "decode", "flexinfer.ai/model": "mistral"})
	c.slice(t, "one", "one-1", http8000, at("a", "10.0.0.1"))
	c.slice(t, "two", "two-1", http8000, at("a", "10.0.0.1"), at("b", "10.0.0.2"))
	c.slice(t, "other", "other-1", http8000, at("b", "10.0.0.2"))

	chat := c.watch(t, &Source{ServiceSelector: "tier=chat"})
	chat.waitPods(t, "a=http://10.0.0.1:8000,model=llama:sessionAffinity,model=qwen", "b=http://10.0.0.2:8000,model=qwen")
	prefill := c.watch(t, &Source{ServiceSelector: "tier=chat", PodSelector: "llm-d.ai/role=prefill"})
	prefill.waitPods(t, "a=http://10.0.0.1:8000,model=llama:sessionAffinity,model=qwen")
	c.watch(t, &Source{ServiceSelector: "flexinfer.ai/model=llama"}).
		waitPods(t, "a=http://10.0.0.1:8000,model=llama:sessionAffinity")
	// a Service without a model leaves that to the pods
	c.watch(t, &Source{Service: "other", PodSelector: "llm-d.ai/role"}).
		waitPods(t, "b=http://10.0.0.2:8000,model=mistral")

	// a pod that any Service has for any model serves any
	c.watch(t, &Source{ServiceSelector: "tier"}).
		waitPods(t, "a=http://10.0.0.1:8000,model=llama:sessionAffinity,model=qwen", "b=http://10.0.0.2:8000")

	c.pod(t, "a", map[string]string{"llm-d.ai/role": "decode"})
	c.pod(t, "b", map[string]string{"llm-d.ai/role": "prefill"})
	assert.Less(t, prefill.waitPods(t, "b=http://10.0.0.2:8000,model=qwen"), soon)
	c.service(t, "one", map[string]string{"flexinfer.ai/model": "llama-4", "tier": "chat"}, map[string]string{"flexinfer.ai/routing": "least-loaded"})
	c.service(t, "two", map[string]string{"tier": "batch"}, nil)
	assert.Less(t, chat.waitPods(t, "a=http://10.0.0.1:8000,model=llama-4:leastLoaded"), soon)
}

// The label and the annotation can have other names; the usual ones then say nothing.
func TestOwnNames(t *testing.T) {
	c := inCluster(t)
	c.service(t, "llama", map[string]string{"example.com/model": "llama", "flexinfer.ai/model": "qwen"},
		map[string]string{"example.com/routing": "prefix", "flexinfer.ai/routing": "least-loaded"})
	c.slice(t, "llama", "llama-1", http8000, at("a", "10.0.0.1"))
	r := c.watch(t, &Source{Service: "llama", ModelLabel: "example.com/model", RoutingAnnotation: "example.com/routing"})
	r.waitPods(t, "a=http://10.0.0.1:8000,model=llama:prefix")
	c.service(t, "llama", map[string]string{"example.com/model": "llama-4"}, map[string]string{"example.com/routing": "session-affinity"})
	assert.Less(t, r.waitPods(t, "a=http://10.0.0.1:8000,model=llama-4:sessionAffinity"), soon)
}

// What is no pod is not taken for the pod of the same name.
func TestOtherKinds(t *testing.T) {
	c := inCluster(t)
	c.service(t, "llama", nil, nil)
	c.pod(t, "a", map[string]string{"llm-d.ai/role": "decode"})
	node, nameless := at("a", "10.0.0.1"), at("", "10.0.0.2")
	node.TargetRef.Kind = "Node"
	nameless.TargetRef = nil
	c.slice(t, "llama", "llama-1", http8000, node, nameless)
	c.watch(t, &Source{Service: "llama"}).waitPods(t, "10.0.0.1=http://10.0.0.1:8000", "10.0.0.2=http://10.0.0.2:8000")
	r := c.watch(t, &Source{Service: "llama", PodSelector: "llm-d.ai/role=decode"})
	r.waitPods(t)
	c.slice(t, "llama", "llama-1", http8000, node, nameless, at("a", "10.0.0.3"))
	r.waitPods(t, "a=http://10.0.0.3:8000")
}

// What is wrong with a Service is logged, once as long as it is.
func TestNotes(t *testing.T) {
	c := inCluster(t)
	r := c.watch(t, &Source{Service: "llama"})
	r.waitPods(t)
	c.service(t, "llama", nil, map[string]string{"flexinfer.ai/routing": "by-magic"})
	two := append(http8000[:1:1], port("metrics", 9000))
	c.slice(t, "llama", "llama-1", two, at("a", "10.0.0.1"))
	r.waitPods(t, "a=http://10.0.0.1:8000")
	c.slice(t, "llama", "llama-1", two, at("a", "10.0.0.1"), at("b", "10.0.0.2"))
	r.waitPods(t, "a=http://10.0.0.1:8000", "b=http://10.0.0.2:8000")
	c.slice(t, "llama", "llama-1", nil, at("a", "10.0.0.1"), at("b", "10.0.0.2"))
	r.waitPods(t)
	var lines []string
	for _, e := range r.log.All() {
		fields := e.ContextMap()
		lines = append(lines, fmt.Sprintf("%s: %s %q", e.Message, fields["service"], fields["value"]))
	}
	assert.ElementsMatch(t, []string{
		`there is no such Service: llama ""`,
		`the annotation flexinfer.ai/routing has an unknown value and counts as absent: want session-affinity, prefix or least-loaded: llama "by-magic"`,
		`a Service has several ports and none was asked for, the first is taken: give ports: llama "8000"`,
		`a Service has no TCP port, or none that was asked for: its endpoints are left out: llama ""`,
	}, lines)
}

// A service account needs no more than the Role of docs/kubernetes.md, and one
// without it is told what it lacks.
func TestRights(t *testing.T) {
	c := inCluster(t)
	c.service(t, "llama", nil, nil)
	c.slice(t, "llama", "llama-1", http8000, at("a", "10.0.0.1"))
	c.pod(t, "a", map[string]string{"x": "y"})
	account, err := c.Admin.CoreV1().ServiceAccounts(c.namespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "calinix"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	token, err := c.Admin.CoreV1().ServiceAccounts(c.namespace).CreateToken(t.Context(), account.Name, &authv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(t, err)

	r := c.watch(t, &Source{Service: "llama", PodSelector: "x=y"}, token.Status.Token)
	r.wait(t, "a refusal", func(_, fault string) bool {
		return fault != "" && assert.Regexp(t, "^the API server answered 403 Forbidden to (list|watch) /api", fault)
	})
	apply(t, c, "rbac.yaml", metav1.ApplyOptions{FieldManager: "test"})
	_, err = c.Admin.RbacV1().RoleBindings(c.namespace).Get(t.Context(), "calinix", metav1.GetOptions{})
	require.NoError(t, err)
	r.waitPods(t, "a=http://10.0.0.1:8000")
}

func TestRefusedSettings(t *testing.T) {
	for want, s := range map[string]*Source{
		"want either a service":    {},
		"service_selector":         {ServiceSelector: "a in"},
		"pod_selector":             {Service: "a", PodSelector: "=="},
		"want http or https":       {Service: "a", Scheme: "ftp"},
		"want either a service, b": {Service: "a", ServiceSelector: "b"},
	} {
		assert.ErrorContains(t, s.settle(), want)
	}
}
