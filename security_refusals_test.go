package calinix_test

import (
	"fmt"
	"testing"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// secureRefusedFlood: prompts that the pods refuse displace nothing, though each is
// nearly as long as what is kept of a pod; one that they compute does.
func secureRefusedFlood(t *testing.T) {
	const tooLong = 20_000
	ps := pods(t, "a", "b")
	for _, p := range ps {
		p.When(func(r fakepod.Request) bool { return len(r.Body) > tooLong }, fakepod.Reply{Status: 400})
	}
	s := serve(t, "block_size 4\ncache_registry {\nblocks_per_pod 4000\n}\n"+single(ps), testcaddy.Plain())
	cl := s.Client(t, testcaddy.H1)
	others := func(check func(a *testcaddy.Answer)) {
		t.Helper()
		for i := range 12 {
			a := cl.Post(t, "/v1/completions", completion(words(fmt.Sprint("other", i, "-"), 80))) // 20 blocks
			if a.Status != 200 {
				t.Fatal(a)
			}
			check(a)
			s.waitNone(t)
		}
	}
	home := map[int]string{}
	others(func(a *testcaddy.Answer) { home[len(home)] = a.Pod() })
	before := map[string]int{"a": s.pod(t, "a").Blocks, "b": s.pod(t, "b").Blocks}
	flood := func(round int) *testcaddy.Answer {
		return cl.Post(t, "/v1/completions", completion(words(fmt.Sprint("flood", round, "-"), 4000))) // 1000 blocks
	}
	done := make(chan *testcaddy.Answer, 40)
	for range 4 { // four at a time
		go func() {
			for round := range cap(done) / 4 {
				done <- flood(round)
			}
		}()
	}
	for range cap(done) {
		if a := <-done; a.Status != 400 {
			t.Fatal(a)
		}
	}
	s.waitIdle(t)
	for _, p := range ps {
		if p.Count() < 10 {
			t.Errorf("%s has seen %d requests", p.Name, p.Count())
		}
		if got := s.pod(t, p.Name).Blocks; got != before[p.Name] {
			t.Errorf("%s: %d blocks, before %d", p.Name, got, before[p.Name])
		}
	}
	k := 0
	others(func(a *testcaddy.Answer) {
		if a.Pod() != home[k] || depth(t, a) != 20 {
			t.Errorf("prompt %d was at %s: %v", k, home[k], a)
		}
		k++
	})

	// The same prompts, computed, displace what they displace in the engines.
	for _, p := range ps {
		p.Clear()
	}
	for round := range 8 {
		if a := flood(100 + round); a.Status != 200 {
			t.Fatal(a)
		}
		s.waitNone(t)
	}
	gone := 0
	others(func(a *testcaddy.Answer) {
		if depth(t, a) == 0 {
			gone++
		}
	})
	if gone == 0 {
		t.Error("prompts that were computed have displaced nothing: the test tests nothing")
	}
}
