package churn

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calinix/caddy-calinix/discovery/kubernetes/internal/apiserver"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// market is a cluster with a Service a model, and a Caddy in front of them.
type market struct {
	t      *testing.T
	server *apiserver.Server
	port   int
	client *testcaddy.Client
}

// offer makes the Service of a model, with an annotation for its routing if there is
// one, in front of engines. It is offered again to change the annotation.
func (m *market) offer(model, routing string, at []*engine) {
	m.t.Helper()
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: model, Labels: map[string]string{"flexinfer.ai/model": model}},
		Spec:       corev1.ServiceSpec{ClusterIP: "None", Ports: []corev1.ServicePort{{Name: "http", Port: int32(m.port)}}},
	}
	if routing != "" {
		svc.Annotations = map[string]string{"flexinfer.ai/routing": routing}
	}
	services := m.server.Admin.CoreV1().Services("default")
	if known, err := services.Get(m.t.Context(), model, metav1.GetOptions{}); err == nil {
		known.Annotations = svc.Annotations
		_, err = services.Update(m.t.Context(), known, metav1.UpdateOptions{})
		require.NoError(m.t, err)
		return
	}
	_, err := services.Create(m.t.Context(), svc, metav1.CreateOptions{})
	require.NoError(m.t, err)
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: model + "-1", Labels: map[string]string{discoveryv1.LabelServiceName: model}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(m.port))}},
	}
	for _, e := range at {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{e.address}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: e.name},
		})
	}
	_, err = m.server.Admin.DiscoveryV1().EndpointSlices("default").Create(m.t.Context(), slice, metav1.CreateOptions{})
	require.NoError(m.t, err)
}

// result is what is known of an answer.
type result struct {
	pod, strategy string
	expected      bool   // by Calinix: that a part of the prompt is cached
	cached        string // tokens, as the engine says
}

// ask sends a prompt, which belongs to a session if one is named.
func (m *market) ask(model, prompt, session string) result {
	m.t.Helper()
	body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"system","content":%q},{"role":"user","content":"And now?"}],"max_tokens":1}`, model, prompt)
	var headers []string
	if session != "" {
		headers = []string{"X-Session-ID", session}
	}
	a := m.client.Post(m.t, "/v1/chat/completions", body, headers...)
	if a.Status != 200 {
		m.t.Fatalf("%s: %v", model, a)
	}
	usage := a.JSON(m.t)["usage"].(map[string]any)
	return result{
		pod:      a.Header.Get("X-Calinix-Target-Pod-Id"),
		strategy: a.Header.Get("X-Calinix-Route-Policy"),
		expected: a.Header.Get("X-Calinix-Cache-Hit") == "true",
		cached:   fmt.Sprint(usage["prompt_tokens_details"].(map[string]any)["cached_tokens"]),
	}
}

// Several models, each with a Service and three engines, behind one balancer: each is
// routed as its Service's annotation says, without one as the balancer is, and what is
// cached for one model counts for no other, also at engines that serve both.
func TestModels(t *testing.T) {
	es := newEngines(t)
	m := &market{t: t, server: apiserver.Start(t), port: es.port}
	at := map[string][]*engine{}
	for range 3 {
		both := es.start(t, "llama", "sql-adapter") // in two Services
		at["llama"], at["sql-adapter"] = append(at["llama"], both), append(at["sql-adapter"], both)
		at["qwen"] = append(at["qwen"], es.start(t, "qwen"))
		at["mistral"] = append(at["mistral"], es.start(t, "mistral"))
	}
	for model, routing := range map[string]string{"llama": "session-affinity", "sql-adapter": "prefix", "qwen": "least-loaded", "mistral": ""} {
		m.offer(model, routing, at[model])
	}
	caddy := testcaddy.Serve(t, `
calinix {
	transport http {
		network_proxy url `+newNetwork(t).url()+`
	}
	single {
		discover kubernetes {
			service_selector flexinfer.ai/model
			namespace default
			kubeconfig `+m.server.Kubeconfig(t, "", "default")+`
		}
	}
}`, testcaddy.Plain())
	m.client = caddy.Client(t, testcaddy.H1)
	for model := range at {
		caddy.WaitMetric(t, 3, "calinix_endpoint_count", "model", model)
	}

	prompt := strings.Repeat("the same words in front of every model, ", 50)
	want := map[string]string{"llama": "sessionAffinity", "sql-adapter": "prefix", "qwen": "leastLoaded", "mistral": "expectedTTFT"}
	for _, model := range slices.Sorted(maps.Keys(want)) {
		first := m.ask(model, prompt, "one")
		var names []string
		for _, e := range at[model] {
			names = append(names, e.name)
		}
		assert.Contains(t, names, first.pod, model)
		assert.False(t, first.expected, "%s: another model's prefix was taken for its own", model)
		assert.Equal(t, "0", first.cached, model)
	}
	// so that one of qwen's engines has something to do, without which no load is known
	busy := m.client.Stream(t, "/v1/chat/completions", `{"model":"qwen","stream":true,"ignore_eos":true,"max_tokens":4000,"messages":[{"role":"user","content":"Go on."}]}`)
	defer busy.Close()
	pods := map[string]map[string]bool{}
	for range 6 {
		for model, strategy := range want {
			a := m.ask(model, prompt, "one")
			assert.Equal(t, strategy, a.strategy, model)
			if pods[model] == nil {
				pods[model] = map[string]bool{}
			}
			pods[model][a.pod] = true
		}
	}
	assert.Len(t, pods["llama"], 1, "a session stays at its pod")
	assert.Len(t, pods["sql-adapter"], 1, "a system message stays at its pod")
	assert.Len(t, pods["mistral"], 1, "a prompt stays where it is cached")
	assert.NotContains(t, pods["qwen"], busy.Header.Get("X-Calinix-Target-Pod-Id"), "the pod that has something to do")
	again := m.ask("mistral", prompt, "one")
	assert.True(t, again.expected)
	assert.NotEqual(t, "0", again.cached)

	m.offer("mistral", "session-affinity", nil)
	for begin := time.Now(); m.ask("mistral", prompt, "one").strategy != "sessionAffinity"; {
		if time.Since(begin) > time.Second {
			t.Fatal("a changed annotation has no effect after a second")
		}
	}
}
