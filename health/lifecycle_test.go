package health

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/calinix/caddy-calinix/outcome"
)

// TestReload: verdict and streak survive a Configure; a probe that it cuts
// off is no failure; the new interval and thresholds hold at once.
func TestReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(usual)
		b.Set(pods("a", "b"))
		b.Start(t.Context())
		defer b.Stop()
		time.Sleep(time.Second)
		b.script("a", BadStatus)
		time.Sleep(2 * usual.Interval)
		b.expect(t, "")
		b.scriptSlow("b", time.Hour)
		time.Sleep(usual.Interval) // a is down now, a probe of b is under way or timed out once
		b.expect(t, "0.1 up=false forget=false")
		before, _ := b.Status(Ref{Slot: 1, Gen: 1})
		for range 20 { // every probe of b is cut off
			b.Configure(usual, b)
			time.Sleep(10 * time.Millisecond)
		}
		after, _ := b.Status(Ref{Slot: 1, Gen: 1})
		if after.Fail != before.Fail || !after.Up {
			t.Errorf("probes cut off by a reload count: %+v, then %+v", before, after)
		}
		b.expect(t, "") // and a stays down
		slow := usual
		slow.Interval, slow.Healthy = 10*time.Second, 4
		b.script("a", OK)
		b.scriptSlow("b", 0)
		b.Configure(slow, b)
		time.Sleep(21 * time.Second) // at once, after half an interval and a spread, then each 10 s
		b.expect(t, "")
		time.Sleep(5 * time.Second)
		b.expect(t, "0.1 up=true forget=false")
	})
}

// TestPodsComeAndGo: known pods keep verdict and rhythm, the removed one is
// probed no more, its successor in the slot begins anew.
func TestPodsComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(usual)
		ps := pods("a", "b")
		b.script("b", BadStatus)
		b.Set(ps)
		b.Start(t.Context())
		defer b.Stop()
		time.Sleep(time.Second + 50*time.Millisecond)
		b.expect(t, "1.1 up=false forget=false")
		was := len(b.probed("a"))

		c := Pod{Ref: Ref{Slot: 2, Gen: 1}, ID: "c", URL: "http://c", Down: true}
		b.Set([]Pod{ps[1], ps[0], c})
		if n := len(b.probed("a")); n != was {
			t.Error("a was probed out of its rhythm")
		}
		time.Sleep(2 * usual.Interval)
		b.expect(t, "2.1 up=true forget=false")
		b.Set([]Pod{ps[0], c})
		if _, ok := b.Status(Ref{Slot: 1, Gen: 1}); ok {
			t.Error("b is still under watch")
		}
		gone := len(b.probed("b"))
		successor := Pod{Ref: Ref{Slot: 1, Gen: 2}, ID: "b", URL: "http://other"}
		b.script("b", OK)
		b.Set([]Pod{ps[0], successor, c})
		time.Sleep(time.Second)
		b.expect(t, "") // it was up from its first probe on
		if s, _ := b.Status(successor.Ref); !s.Up || s.Pass < 5 {
			t.Errorf("successor: %+v", s)
		}
		moved := ps[0]
		moved.URL = "http://a/v2"
		n := len(b.probed("a"))
		b.Set([]Pod{moved, c})
		if s, _ := b.Status(moved.Ref); s.Pass < 5 {
			t.Errorf("a lost its streak: %+v", s)
		}
		if got := len(b.probed("a")); got != n+1 {
			t.Errorf("a at its new URL was probed %d times at once", got-n)
		}
		if gone == 0 {
			t.Error("b was never probed")
		}
	})
}

func TestStartStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(usual)
		b.scriptSlow("a", time.Hour)
		b.Set(pods("a"))
		b.Stop() // not started: nothing to do
		ctx, cancel := context.WithCancel(t.Context())
		b.Start(ctx)
		b.Start(ctx) // runs already
		time.Sleep(10 * time.Millisecond)
		b.Stop() // ends the probe under way, which counts for nothing
		b.expect(t, "")
		n := len(b.probed("a"))
		time.Sleep(time.Minute)
		if len(b.probed("a")) != n {
			t.Error("probed after Stop")
		}
		b.scriptSlow("a", 0)
		b.Start(ctx)
		cancel()
		time.Sleep(time.Second)
		n = len(b.probed("a"))
		time.Sleep(time.Second)
		if len(b.probed("a")) != n {
			t.Error("probed after its context ended")
		}
		b.Start(t.Context()) // the old run is over
		time.Sleep(time.Second)
		if len(b.probed("a")) <= n {
			t.Error("a second Start does not probe")
		}
		b.Stop()
		b.Stop()
		b.Configure(usual, b)
		time.Sleep(time.Second)
		unconfigured := New(b, nil)
		unconfigured.Set(pods("a"))
		unconfigured.Start(t.Context()) // nothing to probe with
		unconfigured.Stop()
	})
}

// TestConcurrentUse is for the race detector; the figures at its end must fit.
func TestConcurrentUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := usual
		s.Failures, s.Window = 2, time.Second
		b := newBench(s)
		ps := pods("a", "b", "c", "d")
		b.Set(ps)
		b.Start(t.Context())
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for n := range 100 {
					switch (i + n) % 4 {
					case 0:
						b.Ended(time.Now(), ps[n%4].Ref, outcome.Cut)
					case 1:
						b.Set(ps[:1+n%4])
					case 2:
						b.Configure(s, b)
					case 3:
						b.Status(ps[n%4].Ref)
					}
					time.Sleep(time.Duration(1+i) * time.Millisecond)
				}
			})
		}
		wg.Wait()
		b.Set(ps)
		time.Sleep(2 * time.Second)
		for _, p := range ps {
			if st, ok := b.Status(p.Ref); !ok || !st.Up {
				t.Errorf("%s: %+v", p.ID, st)
			}
		}
		b.Stop()
	})
}

func BenchmarkEnded(b *testing.B) {
	for _, c := range []struct {
		name string
		o    outcome.Outcome
	}{{"answered", outcome.Answered}, {"failed", outcome.Cut}} {
		b.Run(c.name, func(b *testing.B) {
			h := New(nothing{}, nil)
			h.Configure(Settings{Failures: 1 << 30, Window: time.Nanosecond}, nil)
			h.Set(pods("a"))
			now := time.Unix(0, 0)
			b.ReportAllocs()
			for b.Loop() {
				now = now.Add(time.Second)
				h.Ended(now, Ref{Slot: 0, Gen: 1}, c.o)
			}
		})
	}
}

type nothing struct{}

func (nothing) SetUp(Ref, bool, bool) {}
