package health

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestFirstProbeDecidesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(usual)
		b.script("b", Late)
		b.script("c", Dropped)
		b.Set(pods("a", "b", "c"))
		b.expect(t, "") // nothing is probed before Start: all count as up
		b.Start(t.Context())
		defer b.Stop()
		time.Sleep(5 * time.Millisecond)
		b.expect(t, "1.1 up=false forget=false; 2.1 up=false forget=true")
		if s, ok := b.Status(Ref{Slot: 0, Gen: 1}); !ok || !s.Up || !s.Decided || s.Pass != 1 || s.Last.Kind != OK {
			t.Errorf("a: %+v %v", s, ok)
		}
	})
}

func TestCrashAndReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(usual)
		b.Set(pods("a", "b"))
		b.Start(t.Context())
		defer b.Stop()
		time.Sleep(time.Second)
		b.expect(t, "")
		b.script("b", Dropped)
		time.Sleep(3 * usual.Interval)
		b.expect(t, "1.1 up=false forget=true")
		time.Sleep(time.Second)
		b.expect(t, "")
		b.script("b", OK)
		time.Sleep(usual.Interval)
		b.expect(t, "")
		time.Sleep(usual.Interval)
		b.expect(t, "1.1 up=true forget=false")
		for i, want := range []string{
			"failed 3 probes in a row, the last one (dropped): as scripted",
			"passed 2 probes in a row",
		} {
			if got := b.events[i]; got.Reason != want || got.Pod.ID != "b" || got.WasUp != (i == 0) || got.Up != (i == 1) {
				t.Errorf("event %+v, want reason %q", got, want)
			}
		}
	})
}

// TestBusyIsNotDead: probes that come late are timed out, three of them take
// the pod down, its index stays.
func TestBusyIsNotDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(usual)
		b.Set(pods("a"))
		b.Start(t.Context())
		defer b.Stop()
		time.Sleep(time.Second)
		b.scriptSlow("a", 140*time.Millisecond)
		time.Sleep(time.Second)
		b.expect(t, "")
		b.scriptSlow("a", 160*time.Millisecond)
		time.Sleep(3 * usual.Interval)
		time.Sleep(usual.Timeout)
		b.expect(t, "0.1 up=false forget=false")
	})
}

// TestProbesNeverOverlap: with a timeout above the interval a slow pod is
// probed less often, never twice at a time (the bench panics then), and not
// across a Configure either.
func TestProbesNeverOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := usual
		s.Timeout = 450 * time.Millisecond
		b := newBench(s)
		b.scriptSlow("a", time.Hour)
		b.Set(pods("a"))
		b.Start(t.Context())
		defer b.Stop()
		time.Sleep(4500*time.Millisecond - 1)
		if n := len(b.probed("a")); n != 10 {
			t.Errorf("%d probes of 450 ms in 4.5 s", n)
		}
		for range 10 {
			b.Configure(s, b)
			time.Sleep(time.Millisecond)
		}
	})
}

func TestSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := usual
		s.Interval = 2 * time.Second
		b := newBench(s)
		var ids []string
		for i := range 256 {
			ids = append(ids, fmt.Sprint("p", i))
		}
		b.Set(pods(ids...))
		b.Start(t.Context())
		defer b.Stop()
		time.Sleep(20 * time.Second)
		seconds := map[time.Duration]int{}
		for i, id := range ids {
			at := b.probed(id)
			if want := time.Duration(i) * time.Millisecond; at[0] != want {
				t.Errorf("slot %d: first probe after %v, want %v", i, at[0], want)
			}
			if at[1] < time.Second || at[1] >= 2*time.Second {
				t.Errorf("slot %d: second probe after %v", i, at[1])
			}
			seconds[at[1]]++
			for k := 2; k < len(at); k++ {
				if at[k]-at[k-1] != s.Interval {
					t.Errorf("slot %d: probes %v apart", i, at[k]-at[k-1])
				}
			}
		}
		if len(seconds) != 16 {
			t.Errorf("256 pods are probed at %d instants, want 16", len(seconds))
		}
		for at, n := range seconds {
			if n != 16 {
				t.Errorf("%d of 256 pods are probed at %v", n, at)
			}
		}
	})
}

func TestConfiguredDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(usual)
		ps := pods("a")
		ps[0].Down = true
		b.Set(ps)
		b.Start(t.Context())
		defer b.Stop()
		time.Sleep(time.Millisecond)
		b.expect(t, "")
		time.Sleep(usual.Interval)
		b.expect(t, "0.1 up=true forget=false")
	})
}
