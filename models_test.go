package calinix_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// podsOf are the keys of pods in single mode, each with what its name is given.
func podsOf(all fakepod.Pods, keys map[string]string) string {
	var b strings.Builder
	b.WriteString("single {\n")
	for _, p := range all {
		fmt.Fprintf(&b, "pod %s %s {\n%s\n}\n", p.Name, p.URL, keys[p.Name])
	}
	return b.String() + "}\n"
}

// forModel is a chat request for a model.
func forModel(model, text string, members ...string) string {
	return strings.Replace(chat(text, members...), `"m"`, `"`+model+`"`, 1)
}

// servedBy returns the pods that n requests come to, sorted.
func (s *site) servedBy(t testing.TB, n int, body func(i int) string) []string {
	t.Helper()
	cl := s.Client(t, testcaddy.H1) // a new one: after a reload it is another server
	got := tally(order(t, n, func(i int) *testcaddy.Answer { return cl.Post(t, chatPath, body(i)) }))
	var names []string
	for name := range got {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// TestModelsChoosePods: a request goes to pods that serve its model, adapters
// included, or that name none; a model that nobody serves is answered with 404.
func TestModelsChoosePods(t *testing.T) {
	ps := pods(t, "a", "b", "c")
	keys := podsOf(ps, map[string]string{"a": "models big", "b": "models big big-sql", "c": "models small"})
	s := serve(t, "strategy round_robin\n"+keys)
	cl := s.Client(t, testcaddy.H1)
	want := func(model string, names ...string) {
		t.Helper()
		if got := s.servedBy(t, 6, func(i int) string { return forModel(model, fmt.Sprint(i)) }); !slices.Equal(got, names) {
			t.Errorf("model %s is served by %v, want %v", model, got, names)
		}
	}
	want("big", "a", "b")
	want("big-sql", "b")
	want("small", "c")
	got := tally(order(t, 6, func(int) *testcaddy.Answer { return cl.Post(t, chatPath, `{"messages":[]}`) }))
	if len(got) != 3 {
		t.Errorf("requests without a model are served by %v", got)
	}

	before := ps.Total()
	a := cl.Post(t, chatPath, forModel("nobody's", "x"))
	if code := wantError(t, a, http.StatusNotFound); code != "model_not_found" || !strings.Contains(string(a.Body), `"type":"invalid_request_error"`) || !strings.Contains(string(a.Body), "nobody's") {
		t.Errorf("%s", a.Body)
	}
	if ps.Total() != before {
		t.Error("a pod was asked for a model that none serves")
	}
	s.waitCount(t, 1, "calinix_requests_total", "code", "404", "pod", "")
	e := s.explain(t, "", forModel("small", "x"))
	if e.Pick.Pod != "c" || e.of(t, "a").Filtered != "other model" {
		t.Errorf("explained as %+v", e)
	}

	// No pod of the model is up: 503, for it may come back.
	s.reload(t, "strategy round_robin\n"+strings.Replace(keys, "models small", "models small\ndraining", 1))
	wantError(t, s.Client(t, testcaddy.H1).Post(t, chatPath, forModel("small", "x")), http.StatusServiceUnavailable)
	// Passed on, if that is asked for.
	s.reload(t, "unknown_model pass\nstrategy round_robin\n"+keys)
	want("nobody's", "a", "b", "c")
	want("small", "c")
	// A pod without models takes any.
	s.reload(t, "strategy round_robin\n"+podsOf(ps, map[string]string{"a": "models big", "c": "models small"}))
	want("nobody's", "b")
	want("small", "b", "c")
}

// TestModelsShareNoPrefix: the same prompt for two models is two prompts; an alias
// is the model.
func TestModelsShareNoPrefix(t *testing.T) {
	ps := pods(t, "a")
	s := serve(t, "models {\none {\naliases uno\n}\n}\n"+single(ps))
	cl := s.Client(t, testcaddy.H1)
	prompt := words("same", 100)
	for i, step := range []struct {
		model string
		hit   string
	}{{"one", "false"}, {"one", "true"}, {"two", "false"}, {"uno", "true"}, {"two", "true"}, {"One", "false"}} {
		a := cl.Post(t, chatPath, forModel(step.model, prompt))
		if got := a.Header.Get("X-Calinix-Cache-Hit"); a.Status != 200 || got != step.hit {
			t.Errorf("request %d, model %s: hit %s, want %s: %v", i, step.model, got, step.hit, a)
		}
	}
}

// TestModelRules: strategy, weights and limit of a model hold for it and its
// aliases alone.
func TestModelRules(t *testing.T) {
	ps := pods(t, "a", "b", "c", "d")
	s := serve(t, "strategy round_robin\nmodels {\nchat {\nstrategy session_affinity\naliases talk\n}\ndraft {\nstrategy cache_aware\nweights {\nsingle cache 0 load 0 sticky 1\n}\n}\nsmall {\nmax_conns 2\naliases tiny\n}\n}\n"+single(ps))
	cl := s.Client(t, testcaddy.H1)
	for _, tt := range []struct {
		model, policy string
		pods          int
	}{{"chat", "sessionAffinity", 1}, {"talk", "sessionAffinity", 1}, {"draft", "cacheAware", 1}, {"small", "roundRobin", 4}, {"any", "roundRobin", 4}} {
		got := map[string]bool{}
		for i := range 8 {
			a := cl.Post(t, chatPath, forModel(tt.model, words(fmt.Sprint(i), 50)), "X-Session-ID", "one")
			if a.Status != 200 || a.Header.Get("X-Calinix-Route-Policy") != tt.policy {
				t.Fatalf("model %s: %v by %s", tt.model, a, a.Header.Get("X-Calinix-Route-Policy"))
			}
			got[a.Pod()] = true
		}
		if len(got) != tt.pods {
			t.Errorf("model %s went to %v, want %d pods", tt.model, got, tt.pods)
		}
	}
	h := s.hold(t, ps)
	h.send(t, ps, http.MethodPost, chatPath, forModel("small", "x"))
	h.send(t, ps, http.MethodPost, chatPath, forModel("tiny", "x"))
	a := cl.Post(t, chatPath, forModel("small", "x"))
	if code := wantError(t, a, http.StatusServiceUnavailable); code != "model_at_max_conns" || a.Header.Get("Retry-After") == "" {
		t.Errorf("%v %s", a, code)
	}
	h.send(t, ps, http.MethodPost, chatPath, forModel("any", "x"))
	h.release(t, ps)
	if a := cl.Post(t, chatPath, forModel("tiny", "x")); a.Status != 200 {
		t.Errorf("after the others have ended: %v", a)
	}
}

// TestModelChoosesTheMode: a mode for which the model has no pods is ignored.
func TestModelChoosesTheMode(t *testing.T) {
	ps, pre, dec := pods(t, "a"), pods(t, "p"), pods(t, "d")
	s := serve(t, podsOf(ps, map[string]string{"a": "models one"})+
		"dispatch {\nconnector plain\nprefill {\n"+podList(pre, "models two")+"}\ndecode {\n"+podList(dec, "models two")+"}\n}\n")
	cl := s.Client(t, testcaddy.H1)
	for model, want := range map[string]string{"one": "single", "two": "disaggregated"} {
		for _, asked := range []string{"", "single", "dispatch"} {
			var headers []string
			if asked != "" {
				headers = []string{"x-calinix-mode", asked}
			}
			a := cl.Post(t, chatPath, forModel(model, "x", `"max_tokens":3`), headers...)
			if got := a.Header.Get("X-Calinix-Mode"); a.Status != 200 || got != want {
				t.Errorf("model %s, mode %q asked for: %s, want %s: %v", model, asked, got, want, a)
			}
		}
	}
}
