package calinix_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// TestStaleTTL: a block that was not used for so long is forgotten, and a time
// that is too short is warned of.
func TestStaleTTL(t *testing.T) {
	ps := pods(t, "a")
	s := serve(t, "cache_registry {\nstale_ttl 300ms\n}\nblock_size 4\n"+single(ps), testcaddy.Plain())
	if warned := s.Log.Find(func(e testcaddy.Entry) bool {
		return e.Level == "warn" && strings.Contains(e.Msg, "stale_ttl") && strings.Contains(e.Msg, "10 minutes")
	}); len(warned) != 1 {
		t.Errorf("%d warnings of a short stale_ttl", len(warned))
	}
	cl := s.Client(t, testcaddy.H1)
	cl.Post(t, chatPath, chat(words("w", 40)))
	waitFor(t, "the index to be empty", func() bool { return indexOf(t, s.Caddy).Blocks == 0 })
	if n := depth(t, cl.Post(t, chatPath, chat(words("w", 40)))); n != 0 {
		t.Errorf("a forgotten prompt has depth %d", n)
	}
}

// waitFor polls a condition that nothing tells of.
func waitFor(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(testcaddy.Patience); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting for %s", what)
		}
	}
}

// TestMaxBlocks: the index never has more blocks; the oldest go first, and of a
// prompt that is longer the head stays. A reload with a lower ceiling enforces
// it.
func TestMaxBlocks(t *testing.T) {
	ps := pods(t, "a")
	keys := func(n int) string {
		return fmt.Sprintf("cache_registry {\nmax_blocks %d\n}\nblock_size 2\n", n) + single(ps)
	}
	s := serve(t, keys(100), testcaddy.Plain())
	cl := s.Client(t, testcaddy.H1)
	prompt := func(i int) string { return completion(words(fmt.Sprintf("p%d-", i), 60)) } // 30 blocks
	for i := range 8 {
		cl.Post(t, "/v1/completions", prompt(i))
		if n := indexOf(t, s.Caddy).Blocks; n > 100 || n < 30 || i > 3 && n < 70 {
			t.Errorf("%d blocks after %d prompts of 30", n, i+1)
		}
	}
	known := func(i int) int {
		t.Helper()
		return s.explain(t, "?path=/v1/completions", prompt(i)).of(t, "a").Depth
	}
	for i, want := range map[int]int{0: 0, 3: 0, 6: 30, 7: 30} {
		if n := known(i); n != want {
			t.Errorf("of prompt %d of 0 to 7, %d blocks are known, want %d", i, n, want)
		}
	}
	s.reload(t, keys(40))
	if n := indexOf(t, s.Caddy).Blocks; n > 40 {
		t.Errorf("%d blocks with a ceiling of 40", n)
	}
	if n := known(7); n != 30 {
		t.Errorf("of the newest prompt %d blocks are left", n)
	}
	cl = s.Client(t, testcaddy.H1)
	cl.Post(t, "/v1/completions", completion(words("long", 500)))
	if n := s.explain(t, "?path=/v1/completions", completion(words("long", 500))).of(t, "a").Depth; n != 40 {
		t.Errorf("of a prompt of 250 blocks %d are known, want its first 40", n)
	}
	if n := indexOf(t, s.Caddy).Blocks; n > 40 {
		t.Errorf("%d blocks", n)
	}
}

// TestRegistryDisabled: no index is kept; sessions and load decide alone, and
// equals are still told apart by the prompt.
func TestRegistryDisabled(t *testing.T) {
	ps := pods(t, "a", "b", "c")
	keys := func(word string) string {
		return "cache_registry {\nenabled " + word + "\n}\nblock_size 4\n" + single(ps)
	}
	s := serve(t, keys("off"), testcaddy.Plain())
	cl := s.Client(t, testcaddy.H1)
	used := map[string]bool{}
	for i := range 40 {
		prompt := chat(words(fmt.Sprint("w", i, "-"), 40))
		a := cl.Post(t, chatPath, prompt)
		used[a.Pod()] = true
		for range 2 {
			s.waitNone(t)
			b := cl.Post(t, chatPath, prompt)
			if b.Pod() != a.Pod() || depth(t, b) != 0 {
				t.Errorf("prompt %d went to %s, then: %v", i, a.Pod(), b)
			}
		}
		s.waitNone(t)
	}
	if len(used) != 3 {
		t.Errorf("40 prompts went to %v alone", used)
	}
	if x := indexOf(t, s.Caddy); x.Blocks != 0 {
		t.Errorf("%+v", x)
	}
	if m := s.series(t, "calinix_prefix_blocks_total"); m[`result="hit"`]+m[`result="miss"`] != 0 {
		t.Errorf("%v", m)
	}
	pod := cl.Post(t, chatPath, chat("x"), "X-Session-ID", "s").Pod()
	if c := s.explain(t, "", chat("y"), "X-Session-ID", "s").of(t, pod); c.Sticky != 100 || c.Depth != 0 {
		t.Errorf("%+v", c)
	}
	// on, and off again
	s.reload(t, keys("on"))
	cl = s.Client(t, testcaddy.H1) // the old connections end with the reload
	cl.Post(t, chatPath, chat(words("w", 40)))
	if n := depth(t, cl.Post(t, chatPath, chat(words("w", 40)))); n < 10 {
		t.Errorf("depth %d", n)
	}
	s.reload(t, keys("off"))
	cl = s.Client(t, testcaddy.H1)
	if x := indexOf(t, s.Caddy); x.Blocks != 0 {
		t.Errorf("switched off: %+v", x)
	}
	if n := depth(t, cl.Post(t, chatPath, chat(words("w", 40)))); n != 0 {
		t.Errorf("switched off: depth %d", n)
	}
}

// TestMaxPods: more pods than maxPods, or than 256, are refused at load; 256
// serve.
func TestMaxPods(t *testing.T) {
	p := pods(t, "all")[0]
	list := func(n int) string {
		var b strings.Builder
		b.WriteString("single {\n")
		for i := range n {
			fmt.Fprintf(&b, "pod pod-%d %s\n", i, p.URL)
		}
		return b.String() + "}\n"
	}
	for _, tc := range []struct{ keys, want string }{
		{"cache_registry {\nmax_pods 2\n}\n" + list(3), `single.pods[2] ("pod-2"): one pod more than the 2 that are allowed`},
		{list(257), `single.pods[256] ("pod-256"): one pod more than the 256 that are allowed`},
		{"cache_registry {\nmax_pods 257\n}\n" + list(1), "cache_registry.max_pods 257: too large, want at most 256"},
	} {
		if err := testcaddy.LoadError(t, fmt.Sprintf(":%d {\ncalinix {\n%s}\n}\n", testcaddy.Port(t), tc.keys)); !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v, want %q", err, tc.want)
		}
	}
	s := serve(t, "strategy round_robin\ncache_registry {\nmax_pods 256\n}\nhealth {\ninterval 1h\ntimeout 1m\n}\n"+list(256), testcaddy.Plain())
	cl := s.Client(t, testcaddy.H1)
	ids := map[string]bool{}
	for range 256 {
		ids[cl.Get(t, "/v1/models").Header.Get("X-Calinix-Target-Pod-Id")] = true
	}
	if len(ids) != 256 {
		t.Errorf("256 requests in turn went to %d pods", len(ids))
	}
}
