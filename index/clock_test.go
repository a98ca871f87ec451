package index

import (
	"math"
	"testing"
	"time"
)

func TestTicks(t *testing.T) {
	const tick = time.Duration(1) << tickShift
	for ttl, want := range map[time.Duration]uint32{
		-1: maxTTL, 0: maxTTL, 1: 1, tick: 1, tick + 1: 2, 30 * time.Second: 1789,
		200 * 24 * time.Hour: 1029968262, 206 * 24 * time.Hour: maxTTL, math.MaxInt64: maxTTL,
	} {
		if got := ticksOf(ttl); got != want {
			t.Errorf("ticksOf(%v) = %d, want %d", ttl, got, want)
		}
	}
	for _, c := range []struct{ now, then, want uint32 }{
		{5, 5, 0},
		{5, 2, 3},
		{2, 5, 0},               // later than now
		{1, tickMask, 2},        // wrapped
		{tickMask, 1, 0},        // wrapped the other way
		{10, markFlag | 4, 6},   // a mark's word
		{maxAge + 7, 7, maxAge}, // as old as can be told
		{maxAge + 8, 7, 0},      // not any more
	} {
		if got := age(c.now, c.then); got != c.want {
			t.Errorf("age(%d, %d) = %d, want %d", c.now, c.then, got, c.want)
		}
	}
}

// TestClock: time counts from the first one told, and a late or foolish caller does
// not turn it back.
func TestClock(t *testing.T) {
	x := New(Options{})
	for _, c := range []struct {
		now          time.Time
		tick, latest uint32
	}{
		{epoch, 0, 0},
		{epoch.Add(time.Second), 59, 59},
		{epoch.Add(time.Second / 2), 29, 59},
		{epoch.Add(-time.Nanosecond), tickMask, 59},
		{epoch.Add(time.Minute), 3576, 3576},
	} {
		if got := x.tick(c.now); got != c.tick || x.latest.Load() != c.latest {
			t.Errorf("tick(%v) = %d, latest %d, want %d, %d", c.now, got, x.latest.Load(), c.tick, c.latest)
		}
	}
}

// TestClockWraps: ageing works across the end of the ticks' range, which is
// reached after 417 days.
func TestClockWraps(t *testing.T) {
	x := New(Options{StaleTTL: time.Hour, MaxBlocks: 4})
	x.tick(epoch)
	end := epoch.Add((1 << 31) << tickShift)
	for at := epoch; at.Before(end.Add(-time.Hour)); at = at.Add(100 * 24 * time.Hour) {
		x.Expire(at)
	}
	old, young := newChain(1, 2), newChain(2, 2)
	x.Register(end.Add(-time.Minute), 1, old, nil)
	x.Register(end.Add(time.Minute), 2, young, nil)
	x.Register(end.Add(2*time.Minute), 0, newChain(3, 1), nil)
	if x.PodBlocks(1) != 1 || x.PodBlocks(2) != 2 {
		t.Errorf("pod 1 has %d blocks, pod 2 %d: not the oldest went", x.PodBlocks(1), x.PodBlocks(2))
	}
	x.Expire(end.Add(time.Hour - 30*time.Second))
	if x.PodBlocks(1) != 0 || x.PodBlocks(2) != 2 {
		t.Errorf("an hour later pod 1 has %d blocks, pod 2 %d, want 0, 2", x.PodBlocks(1), x.PodBlocks(2))
	}
}

// TestNever: without a time to live nothing is forgotten in half a year, but all
// before its age can no longer be told.
func TestNever(t *testing.T) {
	x := New(Options{})
	x.Register(epoch, 1, newChain(1, 10), nil)
	x.Expire(epoch.Add(180 * 24 * time.Hour))
	if got := x.PodBlocks(1); got != 10 {
		t.Errorf("%d blocks after half a year, want 10", got)
	}
	x.Expire(epoch.Add(207 * 24 * time.Hour))
	if got := x.PodBlocks(1); got != 0 {
		t.Errorf("%d blocks after 207 days, want 0", got)
	}
}

func TestPopularity(t *testing.T) {
	x := New(Options{PopularityTau: 10 * time.Second})
	c := newChain(1, 3)
	at := epoch
	want := 0.0
	for i := range 200 {
		step := time.Duration(i%7) * 700 * time.Millisecond
		at = at.Add(step)
		want = want*math.Exp(-step.Seconds()/10) + 1
		x.Register(at, uint8(i%3), c, nil)
	}
	at = at.Add(4 * time.Second)
	want *= math.Exp(-0.4)

	var q Query
	x.Query(&q, c, All(Pods))
	d := x.decayAt(x.tick(at))
	for k := range c.hashes {
		got := float64(d.left(loadRelaxed(&q.found[k].record().use)))
		if math.Abs(got-want) > want*0.02 {
			t.Errorf("block %d: popularity %.3f, want %.3f", k, got, want)
		}
	}
}
