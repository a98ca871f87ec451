package calinix_test

import (
	"fmt"
	"testing"

	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// decidedBy sends a keyed request for the model and returns the strategy that has
// decided.
func (s *site) decidedBy(t testing.TB, cl *testcaddy.Client, model string) string {
	t.Helper()
	a := cl.Post(t, chatPath, forModel(model, "x", `"prefix":"key"`), "X-Session-ID", "key")
	if a.Status != 200 {
		t.Fatal(a)
	}
	return a.Header.Get("X-Calinix-Route-Policy")
}

// TestStrategyPlaces: each strategy works for a balancer, for a model, and for the
// models of pods, in a Caddyfile and in YAML. What a model says counts more than what
// its pods say, of these the first, and both count more than the balancer.
func TestStrategyPlaces(t *testing.T) {
	for _, lang := range []language{inCaddyfile, inYAML} {
		t.Run(lang.String(), func(t *testing.T) {
			ps := numbered(t, len(every)+2)
			models := tree{}
			var list []tree
			for i, strategy := range every {
				models["model-"+strategy] = tree{"strategy": strategy}
				pod := podTrees(ps[i:i+1], nil)[0]
				pod["models"], pod["strategy"] = []string{"pod-" + strategy, "model-" + strategy, "disputed"}, every[(i+1)%len(every)]
				if i > 0 {
					pod["models"] = []string{"pod-" + strategy, "model-" + strategy}
				}
				list = append(list, pod)
			}
			second := podTrees(ps[len(every):], nil)
			second[0]["models"], second[0]["strategy"] = []string{"disputed"}, "random"
			second[1]["models"] = []string{"silent"}
			list = append(list, second...)
			s := newSite()
			conf := tree{
				"version": 1, "gateway": tree{"name": s.balancer, "strategy": every[0]}, "health": tree{"intervalMs": 3600_000, "timeoutMs": 10_000},
				"models": models, "upstreams": tree{"single": tree{"pods": list}},
			}
			s.run(t, lang.site(t, conf))
			cl := s.Client(t, testcaddy.H2)
			for i, strategy := range every {
				if got := s.decidedBy(t, cl, "model-"+strategy); got != strategy {
					t.Errorf("a model of %s is decided by %s", strategy, got)
				}
				if got, want := s.decidedBy(t, cl, "pod-"+strategy), every[(i+1)%len(every)]; got != want {
					t.Errorf("a model whose pod says %s is decided by %s", want, got)
				}
			}
			if got, want := s.decidedBy(t, cl, "disputed"), every[1]; got != want {
				t.Errorf("two pods of one model: decided by %s, the first says %s", got, want)
			}
			for _, strategy := range every {
				conf.in("gateway")["strategy"] = strategy
				s.ReloadSite(t, lang.site(t, conf))
				cl = s.Client(t, testcaddy.H2)
				if got := s.decidedBy(t, cl, "silent"); got != strategy {
					t.Errorf("a balancer of %s decides by %s", strategy, got)
				}
			}
		})
	}
}

// TestModelListOverProtocols: the list of all pods' models over every protocol: base
// models once, an adapter that one pod has loaded, aliases behind them.
func TestModelListOverProtocols(t *testing.T) {
	ps := pods(t, "a", "b")
	ps[0].SetPath("/v1/models", list("base", "sql-lora"))
	ps[1].SetPath("/v1/models", list("base", "chat-lora", "base"))
	s := serve(t, "learn_models {\nenabled\ninterval 1h\n}\nmodels {\nbase {\naliases gpt default\n}\n}\n"+single(ps))
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		a := cl.Get(t, "/v1/models")
		if got, want := fmt.Sprint(ids(t, a)), "[base sql-lora chat-lora default gpt]"; got != want {
			t.Errorf("models %s, want %s", got, want)
		}
		if a.Header.Get("Content-Type") != "application/json" || a.ContentLength != int64(len(a.Body)) {
			t.Errorf("%v", a)
		}
		for _, name := range []string{"sql-lora", "gpt"} {
			if one := cl.Get(t, "/v1/models/"+name); one.Status != 200 || one.JSON(t)["id"] != name {
				t.Errorf("%s: %v", name, one)
			}
		}
		if got := s.decidedBy(t, cl, "sql-lora"); got != "cacheAware" {
			t.Errorf("decided by %s", got)
		}
		for _, model := range []string{"sql-lora", "chat-lora"} {
			at := map[string]string{"sql-lora": "a", "chat-lora": "b"}[model]
			if got := s.servedBy(t, 3, func(i int) string { return forModel(model, fmt.Sprint(i)) }); len(got) != 1 || got[0] != at {
				t.Errorf("%s is served by %v, want %s", model, got, at)
			}
		}
	})
}
