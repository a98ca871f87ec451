package calinix_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// twoPlaces is a configuration with two sites whose calinix directives have the
// same name.
func twoPlaces(one, two int, here, there string) string {
	return fmt.Sprintf("http://:%d {\ncalinix {\nname shared\n%s\n}\n}\nhttp://:%d {\ncalinix {\nname shared\n%s\n}\n}\n", one, here, two, there)
}

// TestNameMustAgree: two places of one name must say the same of what they
// share; the error names the key.
func TestNameMustAgree(t *testing.T) {
	const here = `
		block_size 16
		single {
			pod a http://127.0.0.1:1 {
				max_conns 3
			}
			pod b http://127.0.0.1:2
		}
		health {
			interval 2s
			headers {
				X-A one
			}
		}
		cache_registry {
			max_blocks 1000
		}`
	for _, tc := range []struct{ old, new, key, first, second string }{
		{"block_size 16", "block_size 32", "block_size", "16", "32"},
		{"block_size 16", "max_token_bytes 4", "max_token_bytes", "16", "4"},
		{"interval 2s", "interval 3s", "health.interval", "2s", "3s"},
		{"interval 2s", "endpoint /up", "health.endpoint", "/health", "/up"},
		{"interval 2s", "passive {\nfailures 3\n}", "health.passive.failures", "0", "3"},
		{"X-A one", "X-A two", "health.headers", "", ""},
		{"max_blocks 1000", "max_blocks 1001", "cache_registry.max_blocks", "1000", "1001"},
		{"max_blocks 1000", "max_blocks 1000\nstale_ttl 1h", "cache_registry.stale_ttl", "0s", "1h0m0s"},
		{"max_blocks 1000", "max_blocks 1000\nenabled off", "cache_registry.enabled", "true", "false"},
		{"block_size 16", "block_size 16\nsessions {\nmax 7\n}", "sessions.max", "100000", "7"},
		{"127.0.0.1:1", "127.0.0.1:3", `single.pods[0] ("a")`, "", ""},
		{"max_conns 3", "max_conns 4", `single.pods[0] ("a")`, "", ""},
		{"max_conns 3", "node n", `single.pods[0] ("a")`, "", ""},
		{"pod b http://127.0.0.1:2", "", `"b"`, "", ""},
		{"pod b http", "pod c http", "single.pods[1] (", "", ""},
	} {
		there := strings.Replace(here, tc.old, tc.new, 1)
		err := testcaddy.LoadError(t, twoPlaces(testcaddy.Port(t), testcaddy.Port(t), here, there))
		// Caddy provisions its servers in any order
		one, other := fmt.Sprintf("%s: %s here, %s in another place of balancer", tc.key, tc.first, tc.second), fmt.Sprintf("%s: %s here, %s in another place of balancer", tc.key, tc.second, tc.first)
		if tc.first == "" {
			one, other = tc.key, tc.key
		}
		if text := err.Error(); !strings.Contains(text, one) && !strings.Contains(text, other) || !strings.Contains(text, `balancer "shared"`) {
			t.Errorf("%q for %q: %v, want %q", tc.new, tc.old, err, one)
		}
	}
	if all := entriesOrNone(t); all != "" {
		t.Errorf("a refused configuration has left a balancer: %s", all)
	}
}

// entriesOrNone loads a Caddy without a balancer and returns what the admin
// route still knows, "" for nothing.
func entriesOrNone(t *testing.T) string {
	t.Helper()
	c := testcaddy.Load(t, fmt.Sprintf(":%d {\n}\n", testcaddy.Port(t)))
	defer c.Stop()
	if a := c.AdminGet(t, "/calinix/pods"); a.Status != http.StatusNotFound {
		return a.String()
	}
	return ""
}

// TestNameIsState: two places of one name share pods, load, index, sessions and
// drains; strategy, weights, retries and headers are each place's own.
func TestNameIsState(t *testing.T) {
	ps := pods(t, "a", "b")
	one, two := testcaddy.Port(t), testcaddy.Port(t)
	shared := "block_size 4\n" + single(ps, "max_conns 10") + "health {\ninterval 1h\n}\n"
	c := testcaddy.Load(t, twoPlaces(one, two,
		"strategy cache_aware\n"+shared,
		"strategy round_robin\nretries 0\nresponse_headers off\nheader_up X-Place two\n"+shared))
	probed := func(p *fakepod.Pod) {
		p.Wait(t, "a probe", func(s fakepod.State) bool { return len(s.Probes) == 1 })
	}
	probed(ps[0])
	probed(ps[1])
	first := testcaddy.NewClient(t, testcaddy.H1, fmt.Sprintf("http://localhost:%d", one))
	second := testcaddy.NewClient(t, testcaddy.H1, fmt.Sprintf("http://localhost:%d", two))
	if all := entries(t, c, ""); len(all) != 2 {
		t.Fatalf("%+v", all)
	}
	prompt := chat(words("w", 60))
	pod := ps.Pod(second.Post(t, chatPath, prompt, "X-Session-ID", "s").Pod())
	if q := pod.Last(t); q.Header.Get("X-Place") != "two" {
		t.Errorf("the second place's header: %v", q.Header)
	}
	for range 3 {
		a := first.Post(t, chatPath, prompt)
		if a.Pod() != pod.Name || a.Header.Get("X-Calinix-Cache-Hit") != "true" || a.Header.Get("X-Calinix-Route-Policy") != "cacheAware" || pod.Last(t).Header.Get("X-Place") != "" {
			t.Errorf("what one place has taught the other does not know: %v", a)
		}
	}
	turns := map[string]bool{}
	for range 2 {
		a := second.Post(t, chatPath, prompt)
		turns[a.Pod()] = true
		if a.Header.Get("X-Calinix-Route-Policy") != "" {
			t.Errorf("response_headers off: %v", a)
		}
	}
	if len(turns) != 2 {
		t.Errorf("round robin in the second place went to %v", turns)
	}
	drain(t, c, "a", "drain")
	for _, cl := range []*testcaddy.Client{first, second} {
		if a := cl.Post(t, chatPath, prompt); a.Pod() != "b" {
			t.Errorf("a drains for both: %v", a)
		}
	}
	hold := make(chan struct{})
	ps.Pod("b").Set(fakepod.Reply{Hold: hold})
	done := make(chan *testcaddy.Answer)
	go func() { done <- first.Post(t, chatPath, prompt) }()
	ps.Pod("b").Wait(t, "the request", func(s fakepod.State) bool { return s.InFlight == 1 })
	if n := entry(t, c, "b").Inflight; n != 1 {
		t.Errorf("%d legs", n)
	}
	close(hold)
	<-done
}
