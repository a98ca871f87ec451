package fleet

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/calinix/caddy-calinix/outcome"
)

// told runs one leg for the prompt whose engine says that share of what was
// expected was cached. The engine's tokens are three quarters of the estimated.
func (f *Fleet) told(t *testing.T, now time.Time, prompt *text, share float64) Comparison {
	t.Helper()
	l := &Lease{}
	if err := f.Begin(now, ask(prompt), l); err != nil {
		t.Fatal(err)
	}
	length := l.Tokens * 3 / 4
	c := l.Compare(now, Word{Prompt: length, Cached: int64(share * float64(l.Covered) * 3 / 4), HasCached: true})
	l.End(now, outcome.Answered)
	return c
}

// TestStale: a pod that delivers less than half of what was expected is stale
// after a window, what the index knows of it is halved, and halved again, until
// it agrees.
func TestStale(t *testing.T) {
	f := fleetOf(t, single(1))
	prompt := words(run("w", 400)...)
	now := epoch
	step := func(share float64) Comparison {
		now = now.Add(200 * time.Millisecond)
		return f.told(t, now, prompt, share)
	}
	if c := step(0); c.Expected != 0 || c.Turned || !c.Known {
		t.Fatalf("the first prompt: %+v", c)
	}
	until := func(share float64, legs int) (c Comparison) {
		t.Helper()
		for i := range legs {
			if c = step(share); c.Turned != (i == legs-1) {
				t.Fatalf("leg %d: %+v", i, c)
			}
		}
		return c
	}
	for range 20 {
		if c := step(0.5); c.Turned || c.Stale {
			t.Fatalf("half is enough: %+v", c)
		}
	}
	for f.slots[0].trust.legs != 0 {
		step(1)
	}
	held := of(t, f, "pod-0").Blocks
	c := until(0.4, windowLegs)
	s := of(t, f, "pod-0")
	if !c.Stale || !s.Stale || c.Room != held/2 || s.Room != held/2 || s.Blocks != held/2 {
		t.Fatalf("of %d blocks: %+v, %+v", held, c, s)
	}
	for range windowLegs {
		c = step(0.4)
	}
	if c.Turned || !c.Stale || of(t, f, "pod-0").Blocks != held/4 {
		t.Fatalf("a second window: %+v, %d blocks of %d", c, of(t, f, "pod-0").Blocks, held)
	}
	c = until(1, windowLegs)
	step(1)
	if s := of(t, f, "pod-0"); c.Stale || s.Stale || s.Room != 0 || s.Blocks != held {
		t.Fatalf("it agrees: %+v, %+v", c, s)
	}
}

// TestStaleNeedsTime: a burst is no window.
func TestStaleNeedsTime(t *testing.T) {
	f := fleetOf(t, single(1))
	prompt := words(run("w", 40)...)
	f.told(t, epoch, prompt, 1)
	for range 10 * windowLegs {
		if c := f.told(t, epoch.Add(time.Millisecond), prompt, 0); c.Stale {
			t.Fatalf("stale within a moment: %+v", c)
		}
	}
	if c := f.told(t, epoch.Add(2*time.Second), prompt, 0); !c.Stale || !c.Turned {
		t.Errorf("%+v", c)
	}
}

// TestStaleEnds: staleness ends by itself when nothing is heard, with the engine
// that has lost its cache, and with the pod.
func TestStaleEnds(t *testing.T) {
	now := epoch
	stale := func() *Fleet {
		f := fleetOf(t, single(1))
		prompt := words(run("w", 400)...)
		for range 2 * windowLegs {
			now = now.Add(time.Second)
			f.told(t, now, prompt, 0)
		}
		if s := of(t, f, "pod-0"); !s.Stale || s.Room == 0 {
			t.Fatalf("%+v", s)
		}
		return f
	}
	clean := func(f *Fleet) {
		t.Helper()
		if s := of(t, f, "pod-0"); s.Stale || s.Room != 0 {
			t.Errorf("%+v", s)
		}
	}
	f := stale()
	if ids := f.Expire(now.Add(time.Minute)); len(ids) != 0 {
		t.Error(ids)
	}
	if ids := f.Expire(now.Add(6 * time.Minute)); len(ids) != 1 || ids[0] != "pod-0" {
		t.Error(ids)
	}
	clean(f)

	f = stale()
	ref, _ := f.find("pod-0")
	f.SetUp(ref, false, false)
	if !of(t, f, "pod-0").Stale {
		t.Error("a pod that is down is believed for that")
	}
	f.SetUp(ref, false, true)
	clean(f)

	f = stale()
	pods := single(1)
	pods[0].URL = "http://elsewhere:1"
	apply(t, f, pods)
	clean(f)
}

// TestEngineThatSaysNothing: null is unknown until the pod has once sent a
// number, and then it is none.
func TestEngineThatSaysNothing(t *testing.T) {
	f := fleetOf(t, single(1))
	prompt := words(run("w", 40)...)
	say := func(w Word) Comparison {
		l := begin(t, f, ask(prompt))
		defer l.End(epoch, outcome.Answered)
		return l.Compare(epoch, w)
	}
	for range 3 {
		if c := say(Word{Prompt: 100}); c != (Comparison{}) {
			t.Fatalf("%+v", c)
		}
	}
	if c := say(Word{Prompt: 100, Cached: 50, HasCached: true}); !c.Known || c.Delivered != 50 || c.Expected < 90 {
		t.Errorf("%+v", c)
	}
	if c := say(Word{Prompt: 100}); !c.Known || c.Delivered != 0 {
		t.Errorf("%+v", c)
	}
	if c := say(Word{}); c.Known {
		t.Errorf("without a length: %+v", c)
	}
	ref, _ := f.find("pod-0")
	f.SetUp(ref, true, true)
	if c := say(Word{Prompt: 100}); c.Known {
		t.Errorf("the engine after a restart: %+v", c)
	}
	l := begin(t, f, ask(prompt))
	l.End(epoch, outcome.Answered)
	if c := l.Compare(epoch, Word{Prompt: 100, Cached: 5, HasCached: true}); c.Known {
		t.Errorf("after the end: %+v", c)
	}
}

// TestTrustWindows: a window's verdict is that of its sums, whatever the order of
// its legs.
func TestTrustWindows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tr trust
		var legs, expected, delivered int64
		now, since := int64(0), int64(0)
		for range 100 {
			now += rapid.Int64Range(0, int64(time.Second)).Draw(t, "gap")
			e := rapid.Int64Range(0, 1000).Draw(t, "expected")
			d := rapid.Int64Range(0, 1000).Draw(t, "delivered")
			got, want := tr.compare(now, e, d), open
			if e >= judgedTokens {
				if legs == 0 {
					since = now
				}
				legs, expected, delivered = legs+1, expected+e, delivered+min(d, e)
				if legs >= windowLegs && now-since >= windowTime {
					want = agrees
					if 2*delivered < expected {
						want = disagrees
					}
					legs, expected, delivered = 0, 0, 0
				}
			}
			if got != want {
				t.Fatalf("%v, want %v", got, want)
			}
		}
	})
}
