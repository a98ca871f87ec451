package calinix_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// completion is a completion request, whose prompt is just this text.
func completion(prompt string) string {
	return fmt.Sprintf(`{"model":"m","prompt":%q}`, prompt)
}

// depth is the depth on an answer.
func depth(t testing.TB, a *testcaddy.Answer) int {
	t.Helper()
	n, err := strconv.Atoi(a.Header.Get("X-Calinix-Cache-Prefix-Depth"))
	if a.Status != 200 || err != nil || (n > 0) != (a.Header.Get("X-Calinix-Cache-Hit") == "true") {
		t.Fatalf("no depth, or one that is not the hit's: %v", a)
	}
	return n
}

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

// TestBlockSize: a depth is counted in blocks of so many tokens.
func TestBlockSize(t *testing.T) {
	ps := pods(t, "a")
	s := serve(t, single(ps), testcaddy.Plain())
	for _, size := range []int{1, 3, 16, 100, 1000} {
		s.reload(t, fmt.Sprintf("block_size %d\n", size)+single(ps))
		cl := s.Client(t, testcaddy.H1)
		prompt := words("w", 100)
		want := (100 + size - 1) / size
		if n := depth(t, cl.Post(t, "/v1/completions", completion(prompt))); n != 0 {
			t.Errorf("size %d: a new prompt has depth %d", size, n)
		}
		if n := depth(t, cl.Post(t, "/v1/completions", completion(prompt))); n != want {
			t.Errorf("size %d: depth %d of 100 tokens, want %d", size, n, want)
		}
		if n := depth(t, cl.Post(t, "/v1/completions", completion(prompt+words("x", 50)))); n != 100/size {
			t.Errorf("size %d: depth %d of a prompt that begins with 100 known tokens, want %d", size, n, 100/size)
		}
		if x := indexOf(t, s.Caddy); x.Blocks != want+(150+size-1)/size-100/size {
			t.Errorf("size %d: %d blocks", size, x.Blocks)
		}
		if ns := s.explain(t, "?path=/v1/completions", completion(prompt)); len(ns.Chain) != want {
			t.Errorf("size %d: a chain of %d blocks, want %d", size, len(ns.Chain), want)
		}
	}
}

// TestMaxTokenBytes: a long run without spaces is as many tokens as it has
// pieces of that size.
func TestMaxTokenBytes(t *testing.T) {
	ps := pods(t, "a")
	run := func(n int) string { return strings.Repeat("语言模型", n/12+1)[:n] } // 3 bytes a character, no spaces
	s := serve(t, single(ps), testcaddy.Plain())
	for _, tc := range []struct{ limit, blocks, shared int }{{16, 15, 7}, {4, 60, 30}, {240, 1, 0}, {1, 240, 120}, {0, 1, 0}} {
		s.reload(t, fmt.Sprintf("block_size 1\nmax_token_bytes %d\n", tc.limit)+single(ps))
		cl := s.Client(t, testcaddy.H1)
		cl.Post(t, "/v1/completions", completion(run(240)))
		if n := depth(t, cl.Post(t, "/v1/completions", completion(run(240)))); n != tc.blocks {
			t.Errorf("limit %d: 240 bytes have depth %d, want %d", tc.limit, n, tc.blocks)
		}
		if n := depth(t, cl.Post(t, "/v1/completions", completion(run(120)+strings.Repeat("z", 120)))); n != tc.shared {
			t.Errorf("limit %d: half of it has depth %d, want %d", tc.limit, n, tc.shared)
		}
	}
}

// chunked posts a body whose length is not announced.
func chunked(t testing.TB, cl *testcaddy.Client, body io.Reader, headers ...string) *testcaddy.Answer {
	t.Helper()
	req := cl.Request(t.Context(), t, http.MethodPost, "/v1/completions", "x", headers...)
	req.Body, req.ContentLength = io.NopCloser(body), -1
	req.GetBody = nil
	return cl.Send(req)
}

// TestBodyMemory: bodies that are held together may take so much, whether or
// not their length is announced, also while they arrive, and of compressed ones
// also what comes out. Beyond it a request is refused, and told to come again.
func TestBodyMemory(t *testing.T) {
	const limit = 100_000
	ps := pods(t, "a")
	a := ps[0]
	s := serve(t, fmt.Sprintf("body_memory_bytes %d\nmax_body_bytes 1MB\n", limit)+single(ps))
	body := func(n int) string { return completion(strings.Repeat("x", n-len(completion("")))) }
	zip := func(text string) string {
		var out bytes.Buffer
		z := gzip.NewWriter(&out)
		_, _ = z.Write([]byte(text))
		_ = z.Close()
		return out.String()
	}
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		send := map[string]func(n int) *testcaddy.Answer{
			"announced": func(n int) *testcaddy.Answer { return cl.Post(t, "/v1/completions", body(n)) },
			"chunked":   func(n int) *testcaddy.Answer { return chunked(t, cl, strings.NewReader(body(n))) },
			"gzip": func(n int) *testcaddy.Answer {
				packed := zip(body(n))
				return cl.Post(t, "/v1/completions", zip(body(n-len(packed))), "Content-Encoding", "gzip")
			},
		}
		for name, post := range send {
			t.Run(name, func(t *testing.T) {
				refused := func(what string, got *testcaddy.Answer) {
					t.Helper()
					if code := wantError(t, got, http.StatusServiceUnavailable); code != "no_memory_for_body" || got.Header.Get("Retry-After") == "" {
						t.Errorf("%s: %v", what, got)
					}
				}
				if got := post(limit - 400); got.Status != 200 {
					t.Errorf("a body of nearly the limit alone: %v", got)
				}
				s.waitNone(t)
				refused("more than the limit", post(limit+1000))
				// one is held by its pod
				hold := make(chan struct{})
				a.Next(fakepod.Reply{Hold: hold})
				n := a.Count()
				done := make(chan *testcaddy.Answer)
				go func() { done <- post(60_000) }()
				a.WaitRequests(t, n+1)
				refused("a second large one", post(60_000))
				if got := post(30_000); got.Status != 200 {
					t.Errorf("a second small one: %v", got)
				}
				close(hold)
				if got := <-done; got.Status != 200 {
					t.Error(got)
				}
				s.waitNone(t)
				if got := post(60_000); got.Status != 200 {
					t.Errorf("after the first has ended: %v", got)
				}
				s.waitNone(t)
			})
		}
		t.Run("arriving", func(t *testing.T) {
			whole := body(90_000)
			for try := 0; ; try++ {
				in, out := io.Pipe()
				done := make(chan *testcaddy.Answer)
				go func() { done <- chunked(t, cl, in) }()
				if _, err := io.WriteString(out, whole[:80_000]); err != nil {
					t.Fatal(err)
				}
				// which may still be on its way, and then is late
				if got := cl.Post(t, "/v1/completions", body(60_000)); got.Status == http.StatusOK && try < 100 {
					out.CloseWithError(io.ErrClosedPipe)
					<-done
					continue
				} else if got.Status != http.StatusServiceUnavailable {
					t.Errorf("a second large one: %v", got)
				}
				if _, err := io.WriteString(out, whole[80_000:]); err != nil {
					t.Fatal(err)
				}
				out.Close()
				if got := <-done; got.Status != 200 || string(a.Last(t).Body) != whole {
					t.Errorf("the body that arrived slowly: %v", got)
				}
				break
			}
			s.waitNone(t)
			if got := cl.Post(t, "/v1/completions", body(99_000)); got.Status != 200 {
				t.Errorf("afterwards: %v", got)
			}
			s.waitNone(t)
		})
	})
}

// TestManySmallChunkedBodies: short bodies do not take more than they need.
func TestManySmallChunkedBodies(t *testing.T) {
	ps := pods(t, "a")
	a := ps[0]
	hold := make(chan struct{})
	a.Set(fakepod.Reply{Hold: hold})
	s := serve(t, "body_memory_bytes 2000\nmax_body_bytes 1000\n"+single(ps), testcaddy.Plain())
	cl := s.Client(t, testcaddy.H1)
	done := make(chan *testcaddy.Answer)
	body := completion(strings.Repeat("x", 100-len(completion(""))))
	for n := range 18 {
		go func() { done <- chunked(t, cl, strings.NewReader(body)) }()
		a.WaitRequests(t, n+1)
	}
	close(hold)
	for range 18 {
		if got := <-done; got.Status != 200 {
			t.Errorf("100 bytes of 2000: %v", got)
		}
	}
}

// TestCapabilities: a pod serves the role under which it is listed, and those
// that are named besides; its limit holds for all of them together.
func TestCapabilities(t *testing.T) {
	ps := pods(t, "a", "p", "d")
	s := serve(t, fmt.Sprintf(`tie_break pod_id
		single {
			pod a %s {
				capabilities prefill
				max_conns 1
			}
		}
		dispatch {
			connector plain
			prefill {
				pod p %s {
					capabilities {
						decode on
						single off
					}
				}
			}
			decode {
				pod d %s {
					capabilities single
				}
			}
		}`, ps[0].URL, ps[1].URL, ps[2].URL), testcaddy.Plain())
	cl := s.Client(t, testcaddy.H1)
	var roles []string
	for _, e := range entries(t, s.Caddy, "") {
		roles = append(roles, e.ID+" "+strings.Join(e.Roles, "+"))
	}
	if got := strings.Join(roles, ", "); got != "a single+prefill, p prefill+decode, d single+decode" {
		t.Errorf("roles: %s", got)
	}
	served := func(mode, drained string) string {
		t.Helper()
		for id := range strings.FieldsSeq(drained) {
			drain(t, s.Caddy, id, "drain")
			defer drain(t, s.Caddy, id, "undrain")
		}
		h := cl.Post(t, chatPath, chat("hi", `"max_tokens":3`), "x-calinix-mode", mode).Header
		s.waitNone(t)
		return h.Get("X-Calinix-Target-Pod-Id") + h.Get("X-Calinix-Prefill-Pod-Id") + h.Get("X-Calinix-Decode-Pod-Id")
	}
	for _, tc := range []struct{ mode, drained, want string }{
		{"single", "d", "a"},
		{"single", "a", "d"},
		{"single", "a d", ""},
		{"dispatch", "p", "ad"},
		{"dispatch", "a", "pd"}, // though p could take both, and has the prompt
		{"dispatch", "a d", "pp"},
		{"dispatch", "a p", ""},
	} {
		if got := served(tc.mode, tc.drained); got != tc.want {
			t.Errorf("%s without %s: served by %q, want %q", tc.mode, tc.drained, got, tc.want)
		}
	}
	hold := make(chan struct{})
	ps.Pod("a").Set(fakepod.Reply{Hold: hold})
	drain(t, s.Caddy, "d", "drain")
	done := make(chan *testcaddy.Answer)
	go func() { done <- cl.Post(t, chatPath, chat("hi"), "x-calinix-mode", "single") }()
	ps.Pod("a").Wait(t, "the request", func(s fakepod.State) bool { return s.InFlight == 1 })
	if c := s.explain(t, "", chat("hi"), "x-calinix-mode", "dispatch").of(t, "a", "prefill"); c.Filtered != "at maxConns" {
		t.Errorf("a has its one leg, in another role: %+v", c)
	}
	close(hold)
	<-done
}

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
