package calinix_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"testing"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// held are requests that are kept running at pods.
type held struct {
	s     *site
	cl    *testcaddy.Client
	free  chan struct{}
	done  chan *testcaddy.Answer
	count int
}

// hold makes the pods keep every request from now on, until release.
func (s *site) hold(t testing.TB, all fakepod.Pods) *held {
	h := &held{s: s, cl: s.Client(t, testcaddy.H2), free: make(chan struct{}), done: make(chan *testcaddy.Answer, 1000)}
	all.Set(fakepod.Reply{Hold: h.free})
	return h
}

// send begins one request and returns the pod at which it is then running.
func (h *held) send(t testing.TB, all fakepod.Pods, method, path, body string, headers ...string) string {
	t.Helper()
	before := all.Counts()
	go func() { h.done <- h.cl.Send(h.cl.Request(t.Context(), t, method, path, body, headers...)) }()
	h.count++
	at := ""
	eventually(t, "the request to reach a pod", func() bool {
		for name, n := range all.Counts() {
			if n > before[name] {
				at = name
			}
		}
		return at != ""
	})
	return at
}

// release lets all requests end, and the pods answer at once again.
func (h *held) release(t testing.TB, all fakepod.Pods) {
	t.Helper()
	all.Set(fakepod.Reply{})
	close(h.free)
	for range h.count {
		if a := <-h.done; a.Status != 200 {
			t.Errorf("a request that was held: %v", a)
		}
	}
	h.s.waitIdle(t, all)
}

// order lists the pods that n requests after another come to.
func order(t testing.TB, n int, send func(i int) *testcaddy.Answer) (names []string) {
	t.Helper()
	for i := range n {
		a := send(i)
		if a.Status != 200 || a.Pod() == "" {
			t.Fatal(a)
		}
		names = append(names, a.Pod())
	}
	return names
}

// tally counts names.
func tally(names []string) map[string]int {
	n := map[string]int{}
	for _, name := range names {
		n[name]++
	}
	return n
}

// TestStrategyCacheAware: a prompt goes where most of it is cached; without
// room there, elsewhere.
func TestStrategyCacheAware(t *testing.T) {
	ps := pods(t, "a", "b", "c")
	s := serve(t, single(ps))
	cl := s.Client(t, testcaddy.H2)
	for i := range 6 {
		history := words(fmt.Sprintf("talk%d", i), 100)
		first := cl.Post(t, chatPath, chat(history))
		for turn := range 3 {
			history += words(fmt.Sprintf("turn%d", turn), 50)
			if a := cl.Post(t, chatPath, chat(history)); a.Pod() != first.Pod() || a.Header.Get("X-Calinix-Cache-Hit") != "true" {
				t.Errorf("talk %d began at %s, turn %d: %v", i, first.Pod(), turn, a)
			}
		}
	}
	// No cached prefix outweighs a pile-up.
	prompt := chat(words("same", 200))
	home := cl.Post(t, chatPath, prompt).Pod()
	h := s.hold(t, ps)
	var got []string
	for range 12 {
		got = append(got, h.send(t, ps, http.MethodPost, chatPath, prompt))
	}
	n := tally(got)
	if got[0] != home || len(n) != 3 || slices.Max(slices.Collect(maps.Values(n))) > 8 {
		t.Errorf("home %s: 12 at once went to %v", home, got)
	}
	h.release(t, ps)
}

// TestStrategyLeastLoaded: the pod with the fewest legs gets the next one, in
// proportion to maxConns where pods have one; caches play no part.
func TestStrategyLeastLoaded(t *testing.T) {
	ps := pods(t, "a", "b", "c")
	s := serve(t, "strategy least_loaded\n"+single(ps))
	h := s.hold(t, ps)
	for range 4 {
		var round []string
		for range 3 {
			round = append(round, h.send(t, ps, http.MethodPost, chatPath, question))
		}
		if len(tally(round)) != 3 {
			t.Errorf("three requests of one prompt went to %v", round)
		}
	}
	h.release(t, ps)
	s.Stop()

	// 2, 4 and 8 at most: 7 requests fill them to the half.
	s = serve(t, "strategy least_loaded\nsingle {\n"+podList(ps[:1], "max_conns 2")+podList(ps[1:2], "max_conns 4")+podList(ps[2:], "max_conns 8")+"}")
	h = s.hold(t, ps)
	ps.Forget()
	for range 7 {
		h.send(t, ps, http.MethodGet, "/v1/models", "")
	}
	if got, want := ps.Counts(), (map[string]int{"a": 1, "b": 2, "c": 4}); !maps.Equal(got, want) {
		t.Errorf("7 requests went to %v, want %v", got, want)
	}
	h.release(t, ps)
}

// TestStrategyRoundRobin: the pods in turn, in the order of the configuration,
// whatever the prompt, the load and the caches.
func TestStrategyRoundRobin(t *testing.T) {
	ps := pods(t, "c", "a", "b")
	s := serve(t, "strategy round_robin\n"+single(ps))
	cl := s.Client(t, testcaddy.H2)
	got := order(t, 9, func(i int) *testcaddy.Answer { return cl.Post(t, chatPath, chat(words("same", i/3*40+1))) })
	if want := []string{"c", "a", "b", "c", "a", "b", "c", "a", "b"}; !slices.Equal(got, want) {
		t.Errorf("went to %v, want %v", got, want)
	}
	h := s.hold(t, ps[:1])
	for range 3 {
		if at := h.send(t, ps, http.MethodGet, "/v1/models", ""); at != "c" {
			t.Errorf("its turn was c's, and it went to %s", at)
		}
		if got := order(t, 2, func(int) *testcaddy.Answer { return cl.Post(t, chatPath, question) }); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("went to %v, want a and b", got)
		}
	}
	h.release(t, ps)
}

// TestStrategyRandom: any pod, each as likely as the other, the last one too.
func TestStrategyRandom(t *testing.T) {
	ps := pods(t, "a", "b", "c")
	s := serve(t, "strategy random\n"+single(ps))
	cl := s.Client(t, testcaddy.H2)
	got := order(t, 150, func(int) *testcaddy.Answer { return cl.Post(t, chatPath, question) })
	n, again := tally(got), 0
	for i := 1; i < len(got); i++ {
		if got[i] == got[i-1] {
			again++
		}
	}
	// 50 are to be expected of each, and of the repetitions; 20 are more than
	// five standard deviations fewer.
	if n["a"] < 20 || n["b"] < 20 || n["c"] < 20 || again < 20 {
		t.Errorf("150 requests went to %v, %d times to the one before", n, again)
	}
}

// TestStrategyDispatch: in dispatch mode the strategy decides both legs.
func TestStrategyDispatch(t *testing.T) {
	prefill, decode := pods(t, "p1", "p2"), pods(t, "d1", "d2", "d3")
	s := serve(t, "strategy round_robin\n"+dispatch(prefill, decode))
	cl := s.Client(t, testcaddy.H2)
	for i := range 6 {
		a := cl.Post(t, chatPath, question)
		p, d := prefill[i%2].Name, decode[i%3].Name
		if a.Header.Get("X-Calinix-Prefill-Pod-Id") != p || a.Header.Get("X-Calinix-Decode-Pod-Id") != d || a.Pod() != d {
			t.Errorf("request %d, want %s and %s: %v", i, p, d, a)
		}
	}
}

// TestStrategyTies: with tieBreak prompt equals are told apart by prompt and
// pod: the same prompt finds the same pod in every process, different prompts
// spread; with podId the first pod of the configuration gets them all.
func TestStrategyTies(t *testing.T) {
	ps := pods(t, "a", "b", "c", "d")
	for _, strategy := range []string{"cache_aware", "least_loaded"} {
		ask := func(keys string, reverse bool) map[int]string {
			list := slices.Clone(ps)
			if reverse {
				slices.Reverse(list)
			}
			s := serve(t, "strategy "+strategy+"\n"+keys+single(list))
			defer s.Stop()
			cl := s.Client(t, testcaddy.H2)
			at := map[int]string{}
			for k := range 40 {
				if reverse {
					k = 39 - k
				}
				at[k] = cl.Post(t, chatPath, chat(words(fmt.Sprintf("p%d", k), 20))).Pod()
			}
			return at
		}
		first, second := ask("", false), ask("", true)
		if !maps.Equal(first, second) {
			t.Errorf("%s: the pods of 40 prompts are %v, then %v", strategy, first, second)
		}
		if n := tally(slices.Collect(maps.Values(first))); len(n) != 4 || slices.Max(slices.Collect(maps.Values(n))) > 22 {
			t.Errorf("%s: 40 prompts spread like %v", strategy, n)
		}
		if n := tally(slices.Collect(maps.Values(ask("tie_break pod_id\n", false)))); n["a"] != 40 {
			t.Errorf("%s: by pod id 40 prompts went to %v", strategy, n)
		}
	}
}

// TestStrategyRotation: requests without a prompt rotate among equals.
func TestStrategyRotation(t *testing.T) {
	ps := pods(t, "a", "b", "c")
	for _, strategy := range []string{"cache_aware", "least_loaded"} {
		s := serve(t, "strategy "+strategy+"\n"+single(ps))
		cl := s.Client(t, testcaddy.H2)
		got := order(t, 9, func(i int) *testcaddy.Answer {
			switch i % 3 {
			case 0:
				return cl.Get(t, "/v1/models")
			case 1:
				return cl.Post(t, chatPath, `{"model":`)
			default:
				return cl.Post(t, "/tokenize", `{"prompt":"x"}`)
			}
		})
		if want := []string{"a", "b", "c", "a", "b", "c", "a", "b", "c"}; !slices.Equal(got, want) {
			t.Errorf("%s: went to %v, want %v", strategy, got, want)
		}
		// Among those that are not busy.
		h := s.hold(t, ps[1:2])
		for at := ""; at != "b"; at = h.send(t, ps, http.MethodGet, "/v1/models", "") {
		}
		got = order(t, 4, func(int) *testcaddy.Answer { return cl.Get(t, "/v1/models") })
		if n := tally(got); n["a"] != 2 || n["c"] != 2 {
			t.Errorf("%s: with b busy went to %v", strategy, got)
		}
		h.release(t, ps)
		s.Stop()
	}
}

// TestStrategyLoadFactor: with maxConns the load factor is 100·(1 −
// inflight/maxConns); without, it is relative to the other candidates, and
// falls below 0 in a pile-up.
func TestStrategyLoadFactor(t *testing.T) {
	ps := pods(t, "a", "b")
	factors := func(s *site) map[string]float64 {
		t.Helper()
		a := s.AdminPost(t, "/calinix/explain?balancer="+s.balancer, question)
		var e struct {
			Candidates []struct {
				Pod  string
				Load float64
			}
		}
		if err := json.Unmarshal(a.Body, &e); err != nil || len(e.Candidates) != 2 {
			t.Fatal(a, err)
		}
		return map[string]float64{e.Candidates[0].Pod: e.Candidates[0].Load, e.Candidates[1].Pod: e.Candidates[1].Load}
	}
	s := serve(t, "strategy cache_aware\ntie_break pod_id\nweights {\nsingle cache 0 load 0 sticky 1\n}\n"+single(ps, "max_conns 8"))
	h := s.hold(t, ps)
	for n := range 4 {
		got := factors(s)
		if want := 100 * (1 - float64(n)/8); math.Abs(got["a"]-want) > 1e-9 || got["b"] != 100 {
			t.Errorf("%d of 8: the factors are %v, want a's to be %v", n, got, want)
		}
		if at := h.send(t, ps, http.MethodGet, "/v1/models", ""); at != "a" {
			t.Fatalf("went to %s", at)
		}
	}
	h.release(t, ps)
	s.Stop()

	s = serve(t, "tie_break pod_id\nweights {\nsingle cache 0 load 0 sticky 1\n}\n"+single(ps))
	h = s.hold(t, ps)
	last := 101.0
	for n := range 4 {
		got := factors(s)
		if got["b"] != 100 || got["a"] >= last || n == 0 && got["a"] != 100 || n == 3 && got["a"] > 0 {
			t.Errorf("%d in flight at a: the factors are %v, a's was %v", n, got, last)
		}
		last = got["a"]
		h.send(t, ps, http.MethodGet, "/v1/models", "")
	}
	h.release(t, ps)
}
