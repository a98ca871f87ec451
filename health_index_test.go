package calinix_test

import (
	"testing"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// TestHealthAndTheIndex: a pod whose port refuses or drops the probe has lost its
// cache, and its entries with it; one that answers with a bad status, or late, keeps
// them, and what it had is found when it is back.
func TestHealthAndTheIndex(t *testing.T) {
	for name, c := range map[string]struct {
		fail  func(p *fakepod.Pod)
		loses bool
	}{
		"a bad status":   {func(p *fakepod.Pod) { p.SetHealth(fakepod.Reply{Status: 503}) }, false},
		"a redirect":     {func(p *fakepod.Pod) { p.SetHealth(fakepod.Reply{Status: 302}) }, false},
		"late":           {func(p *fakepod.Pod) { p.SetHealth(fakepod.Reply{Silent: true}) }, false},
		"refused":        {func(p *fakepod.Pod) { p.Crash() }, true},
		"reset":          {func(p *fakepod.Pod) { p.SetHealth(fakepod.Reply{Cut: fakepod.Reset}) }, true},
		"without answer": {func(p *fakepod.Pod) { p.SetHealth(fakepod.Reply{Cut: fakepod.Close}) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			ps := pods(t, "a", "b")
			a := ps[0]
			s := serve(t, "tie_break pod_id\nhealth {\ninterval 20ms\ntimeout 1s\nhealthy_threshold 2\nunhealthy_threshold 2\n}\n"+single(ps), testcaddy.Plain())
			cl := s.Client(t, testcaddy.H1)
			prompt := chat(words("index", 160))
			if first := cl.Post(t, chatPath, prompt); first.Pod() != "a" {
				t.Fatal(first)
			}
			s.waitNone(t)
			had := s.pod(t, "a").Blocks
			if had == 0 {
				t.Fatal("there is nothing to lose")
			}
			c.fail(a)
			s.waitUp(t, false, "a")
			want := had
			if c.loses {
				want = 0
			}
			if got := s.pod(t, "a").Blocks; got != want {
				t.Errorf("down: %d blocks of %d, want %d", got, had, want)
			}
			a.SetHealth(fakepod.Reply{})
			if err := a.Listen(); err != nil {
				t.Fatal(err)
			}
			s.waitUp(t, true, "a")
			again := cl.Post(t, chatPath, prompt)
			if again.Pod() != "a" || (depth(t, again) == 0) != c.loses {
				t.Errorf("back: at depth %d: %v", depth(t, again), again)
			}
		})
	}
}
