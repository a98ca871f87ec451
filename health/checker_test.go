package health

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/calinix/caddy-calinix/outcome"
)

// bench is a Checker with three thresholds of the usual kind, scripted pods
// and a record of what the Checker said. The lock is for the race detector.
type bench struct {
	*Checker
	mu     sync.Mutex
	answer map[string]Result        // by pod id; OK if absent
	slow   map[string]time.Duration // a probe takes so long, or until its ctx ends (then Late)
	probes map[string][]time.Duration
	busy   map[string]int
	marks  []string
	events []Event
	begin  time.Time
}

var usual = Settings{
	Interval: 200 * time.Millisecond, Timeout: 150 * time.Millisecond,
	Healthy: 2, Unhealthy: 3,
}

func newBench(s Settings) *bench {
	b := &bench{
		answer: map[string]Result{}, slow: map[string]time.Duration{},
		probes: map[string][]time.Duration{}, busy: map[string]int{}, begin: time.Now(),
	}
	b.Checker = New(b, func(e Event) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.events = append(b.events, e)
	})
	b.Configure(s, b)
	return b
}

func (b *bench) Probe(ctx context.Context, p Pod) Result {
	b.mu.Lock()
	b.probes[p.ID] = append(b.probes[p.ID], time.Since(b.begin))
	b.busy[p.ID]++
	if b.busy[p.ID] > 1 {
		panic("probes of " + p.ID + " overlap")
	}
	r, slow := b.answer[p.ID], b.slow[p.ID]
	b.mu.Unlock()
	if slow > 0 {
		select {
		case <-time.After(slow):
		case <-ctx.Done():
			r = Result{Kind: Late, Detail: ctx.Err().Error()}
		}
	}
	b.mu.Lock()
	b.busy[p.ID]--
	b.mu.Unlock()
	return r
}

func (b *bench) SetUp(ref Ref, up, forget bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.marks = append(b.marks, fmt.Sprintf("%d.%d up=%v forget=%v", ref.Slot, ref.Gen, up, forget))
}

func (b *bench) script(id string, k Kind) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answer[id] = Result{Kind: k, Detail: "as scripted"}
}

func (b *bench) scriptSlow(id string, d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.slow[id] = d
}

// said returns what was told to Marks since the last call.
func (b *bench) said() string {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	s := strings.Join(b.marks, "; ")
	b.marks = nil
	return s
}

func (b *bench) probed(id string) []time.Duration {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.probes[id])
}

func (b *bench) expect(t *testing.T, want string) {
	t.Helper()
	if got := b.said(); got != want {
		t.Errorf("told %q, want %q", got, want)
	}
}

func pods(ids ...string) (ps []Pod) {
	for i, id := range ids {
		ps = append(ps, Pod{Ref: Ref{Slot: uint8(i), Gen: 1}, ID: id, URL: "http://" + id})
	}
	return ps
}

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
		if len(seconds) != 256 {
			t.Errorf("256 pods are probed at %d instants", len(seconds))
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
