package cases_test

import (
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// TestBR04: one long system prompt shared by everybody.
func TestBR04(t *testing.T) {
	c := begin(t)
	s := serveSingle(t, abcd)
	s.pods.Set(fakepod.Reply{Chunks: 15, Gap: 20 * time.Millisecond}) // 300 ms
	s.all(t)
	cl := s.Client(t, testcaddy.H1)
	first := cl.SendCases(t, c.Requests("turn-1"))
	c.expect(t, 1, "turn-1: every pod serves at least 4", func(t *testing.T) {
		wantStatus(t, 200, first...)
		for _, p := range s.pods {
			if n := p.Count(); n < 4 || n > 20 {
				t.Errorf("received: %v", s.pods.Counts())
			}
			if n := p.MaxInFlight(); n > 9 {
				t.Errorf("pod %s held %d at one moment", p.Name, n)
			}
		}
	})
	second := cl.SendCases(t, c.Requests("turn-2"))
	c.expect(t, 2, "turn-2: at least 28 of 40", func(t *testing.T) {
		wantStatus(t, 200, second...)
		home := 0
		for k := range second {
			if second[k].Pod() == first[k].Pod() {
				home++
			}
		}
		t.Logf("%d of %d conversations returned; turn-1 %v, turn-2 %v", home, len(second), testcaddy.Pods(first), testcaddy.Pods(second))
		if home < 28 {
			t.Errorf("%d of %d conversations returned", home, len(second))
		}
	})
}

// TestBR14: idle pods on equal scores.
func TestBR14(t *testing.T) {
	c := begin(t)
	ps := pods(t, abcd)
	s := serve(t, ps, probes+single(ps))
	s.all(t)
	cl := s.Client(t, testcaddy.H1)
	sent := cl.SendCases(t, c.Requests("short-distinct"))
	c.expect(t, 1, "sent one after another with no overlap, each pod", func(t *testing.T) {
		wantStatus(t, 200, sent...)
		for _, p := range ps {
			if p.Count() < 3 {
				t.Errorf("received: %v", ps.Counts())
			}
		}
	})
	the17th := c.Named(t, "short-distinct")[16]
	c.expect(t, 2, "sending request 17 again ten times", func(t *testing.T) {
		for range 10 {
			if a := cl.SendCase(t, the17th); a.Status != 200 || a.Pod() != sent[16].Pod() {
				t.Errorf("want pod %s: %v", sent[16].Pod(), a)
			}
		}
	})
	s.Stop()
	s = serve(t, ps, probes+single(ps))
	s.all(t)
	cl = s.Client(t, testcaddy.H1)
	c.expect(t, 3, "after a gateway restart", func(t *testing.T) {
		pod := cl.SendCase(t, the17th).Pod()
		for range 4 {
			if a := cl.SendCase(t, the17th); a.Status != 200 || a.Pod() != pod {
				t.Errorf("want pod %q: %v", pod, a)
			}
		}
	})
}

// TestBR49: a match must start at the first block.
func TestBR49(t *testing.T) {
	c := begin(t)
	s := serveOnly(t, "b", abcd)
	cl := s.Client(t, testcaddy.H1)
	wantPod(t, "b", cl.SendCases(t, c.Requests("warm-T1"))...)
	s.only(t, "c")
	wantPod(t, "c", cl.SendCases(t, c.Requests("warm-T2"))...)
	s.all(t)
	c.expect(t, 1, "all 5 'T2-then-T1' reach pod c", func(t *testing.T) {
		wantPod(t, "c", cl.SendCases(t, c.Requests("T2-then-T1"))...)
	})
	c.expect(t, 2, "all 5 'T1-then-T2' reach pod b", func(t *testing.T) {
		wantPod(t, "b", cl.SendCases(t, c.Requests("T1-then-T2"))...)
	})
	c.expect(t, 3, "the 12 'new-then-T1' use at least 3 pods", func(t *testing.T) {
		sent := cl.SendCases(t, c.Requests("new-then-T1"))
		wantStatus(t, 200, sent...)
		if used := testcaddy.Pods(sent); len(used) < 3 {
			t.Errorf("answered by %v", used)
		}
	})
}
