package health

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/calinix/caddy-calinix/outcome"
)

func TestPassiveMarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := usual
		s.Failures, s.Window = 3, 10*time.Second
		b := newBench(s)
		b.Set(pods("a", "b"))
		b.Start(t.Context())
		defer b.Stop()
		time.Sleep(time.Second)
		a := Ref{Slot: 0, Gen: 1}
		now := time.Now()
		ended := func(after time.Duration, os ...outcome.Outcome) {
			for _, o := range os {
				b.Ended(now.Add(after), a, o)
			}
		}
		// Nothing but a pod's own failure counts, and nothing resets.
		ended(0, outcome.Refused5xx, outcome.Refused4xx, outcome.Answered, outcome.TimedOut, outcome.ClientGone)
		ended(time.Second, outcome.Cut, outcome.Refused4xx, outcome.Answered)
		b.expect(t, "")
		// The first one is too old by now.
		ended(10*time.Second+1, outcome.LostWaiting)
		b.expect(t, "")
		ended(11*time.Second, outcome.Unreachable)
		b.expect(t, "0.1 up=false forget=false")
		if e := b.events[0]; e.Reason != "3 failed requests within 10s, the last one unreachable" || !e.WasUp || e.Up {
			t.Errorf("event %+v", e)
		}
		// More of them, from legs that were under way, change nothing.
		ended(11*time.Second, outcome.Cut, outcome.Cut, outcome.Cut)
		b.expect(t, "")
		time.Sleep(2 * usual.Interval)
		b.expect(t, "0.1 up=true forget=false")
		// Nor do they count against its new life.
		ended(11*time.Second, outcome.Cut, outcome.Cut)
		b.expect(t, "")
		// A ref of another generation, or of no pod, is nobody's failure.
		for range 5 {
			b.Ended(now, Ref{Slot: 0, Gen: 2}, outcome.Cut)
		}
		b.expect(t, "")
	})
}

// TestPassiveCountEndsWithTheVerdict: failures from before a pod went down and
// came back are not held against it.
func TestPassiveCountEndsWithTheVerdict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := usual
		s.Failures, s.Window = 2, time.Hour
		b := newBench(s)
		b.Set(pods("a"))
		b.Start(t.Context())
		defer b.Stop()
		time.Sleep(time.Second)
		b.Ended(time.Now(), Ref{Slot: 0, Gen: 1}, outcome.Cut)
		b.script("a", BadStatus)
		time.Sleep(3 * s.Interval)
		b.script("a", OK)
		time.Sleep(2 * s.Interval)
		b.expect(t, "0.1 up=false forget=false; 0.1 up=true forget=false")
		b.Ended(time.Now(), Ref{Slot: 0, Gen: 1}, outcome.Cut)
		b.expect(t, "")
	})
}

func TestPassiveOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(usual)
		b.Set(pods("a"))
		for range 100 {
			b.Ended(time.Now(), Ref{Slot: 0, Gen: 1}, outcome.Unreachable)
		}
		b.expect(t, "")
	})
}

// TestProbeUnderWayAtPassiveMark: its good answer is older than the failures.
func TestProbeUnderWayAtPassiveMark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := usual
		s.Healthy, s.Failures, s.Window = 1, 1, time.Second
		b := newBench(s)
		b.scriptSlow("a", 100*time.Millisecond)
		b.Set(pods("a"))
		b.Start(t.Context())
		defer b.Stop()
		time.Sleep(50 * time.Millisecond)
		b.Ended(time.Now(), Ref{Slot: 0, Gen: 1}, outcome.LostWaiting)
		b.expect(t, "0.1 up=false forget=false")
		time.Sleep(60 * time.Millisecond)
		b.expect(t, "")
		time.Sleep(200 * time.Millisecond)
		b.expect(t, "0.1 up=true forget=false")
	})
}
