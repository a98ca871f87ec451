package calinix_test

import (
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// TestMinUncachedTokens: a prompt of which the best decode pod lacks fewer tokens
// than that skips the prefill leg: a short one, and one that the pod has had.
func TestMinUncachedTokens(t *testing.T) {
	prefill, decode := pods(t, "p1"), pods(t, "d1", "d2")
	s := serve(t, dispatch(prefill, decode, "min_uncached_tokens 200"))
	cl := s.Client(t, testcaddy.H1)
	long := chat(words("long", 400)) // 9 bytes a word: some 900 tokens
	holder := ""
	for n, c := range []struct {
		body    string
		skipped bool
	}{{chat("What?"), true}, {long, false}, {long, true}, {chat(words("other", 400)), false}} {
		before := prefill.Total()
		a := cl.Post(t, chatPath, c.body)
		if a.Status != 200 || a.Header.Get("X-Calinix-Mode") != "disaggregated" || a.Header.Get("X-Calinix-Route-Policy") != "cacheAware" {
			t.Fatal(a)
		}
		if skipped := prefill.Total() == before; skipped != c.skipped || (a.Header.Get("X-Calinix-Prefill-Pod-Id") == "") != c.skipped {
			t.Errorf("request %d: the prefill leg was skipped %v, want %v: %v", n, skipped, c.skipped, a)
		}
		if n == 1 {
			holder = a.Pod()
		}
		if n == 2 && a.Pod() != holder {
			t.Errorf("the prompt that %s has had went to %s", holder, a.Pod())
		}
		if q := decode.Pod(a.Pod()).Last(t); string(q.Body) != c.body {
			t.Errorf("request %d: the decode pod gets %q", n, q.Body)
		}
	}
	s.waitCount(t, 2, "calinix_prefills_skipped_total", "reason", "min_uncached_tokens")
	s.waitCount(t, 0, "calinix_prefill_failures_total")
	s.waitIdle(t, prefill, decode)
}

// TestAdaptive: before prefill legs and hand-overs were measured none is skipped;
// then those of prompts of which the decode pod lacks next to nothing.
func TestAdaptive(t *testing.T) {
	prefill, decode := pods(t, "p1"), pods(t, "d1")
	prefill.Set(fakepod.Reply{Delay: 500 * time.Millisecond})
	s := serve(t, dispatch(prefill, decode, "adaptive"))
	cl := s.Client(t, testcaddy.H2)
	ask := func(name string) (skipped bool) {
		t.Helper()
		before := prefill.Total()
		events, err := cl.Stream(t, chatPath, chat(words(name, 2000), `"stream":true`)).All()
		if err != nil || len(events) == 0 {
			t.Fatalf("%d events, %v", len(events), err)
		}
		return prefill.Total() == before
	}
	for n, c := range []struct {
		name    string
		skipped bool
	}{{"first", false}, {"first", true}, {"second", false}, {"second", true}} {
		if got := ask(c.name); got != c.skipped {
			t.Errorf("request %d: skipped %v, want %v", n, got, c.skipped)
		}
	}
	s.waitCount(t, 2, "calinix_prefills_skipped_total", "reason", "adaptive")
}

// TestAdaptiveNever: where the prefill leg ends with the hand-over nothing can be
// measured, and no prefill leg is skipped, however little the decode pod lacks: with
// sglang it would refuse what had none.
func TestAdaptiveNever(t *testing.T) {
	prefill, decode := pods(t, "p1"), pods(t, "d1")
	prefill.Set(fakepod.Reply{Delay: 200 * time.Millisecond})
	decode.Set(fakepod.Reply{Delay: 250 * time.Millisecond})
	s := serve(t, dispatch(prefill, decode, "connector sglang", "adaptive"))
	cl := s.Client(t, testcaddy.H2)
	for n := range 4 {
		events, err := cl.Stream(t, chatPath, chat(words("same", 2000), `"stream":true`)).All()
		if err != nil || len(events) == 0 {
			t.Fatalf("%d events, %v", len(events), err)
		}
		s.waitNone(t)
		if got := prefill.Total(); got != n+1 {
			t.Errorf("%d prefill legs of %d requests", got, n+1)
		}
	}
	s.waitCount(t, 0, "calinix_prefills_skipped_total")
}
