package enginesim

import (
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeClock stands still until advance, which runs what falls due in order of time.
type fakeClock struct {
	mu     sync.Mutex
	now    time.Time
	timers []*fakeTimer
}

type fakeTimer struct {
	at time.Time
	f  func()
}

func newFakeClock() *fakeClock { return &fakeClock{now: time.Unix(1_700_000_000, 0)} }

func (c *fakeClock) clock() Clock {
	return Clock{Now: c.Now, AfterFunc: func(d time.Duration, f func()) func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		t := &fakeTimer{c.now.Add(d), f}
		c.timers = append(c.timers, t)
		return func() bool { return c.drop(t) }
	}}
}

func (c *fakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *fakeClock) drop(t *fakeTimer) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, o := range c.timers {
		if o == t {
			c.timers = append(c.timers[:i], c.timers[i+1:]...)
			return true
		}
	}
	return false
}

func (c *fakeClock) advance(d time.Duration) {
	end := c.Now().Add(d)
	for c.step(end) {
	}
}

// step runs the next timer due by end; without one it moves the time to end.
func (c *fakeClock) step(end time.Time) bool {
	c.mu.Lock()
	var next *fakeTimer
	for _, t := range c.timers {
		if !t.at.After(end) && (next == nil || t.at.Before(next.at)) {
			next = t
		}
	}
	if next == nil {
		c.now = end
		c.mu.Unlock()
		return false
	}
	c.now = later(c.now, next.at)
	c.mu.Unlock()
	c.drop(next)
	next.f()
	return true
}

// tester is what *testing.T and *rapid.T share.
type tester interface {
	Helper()
	Fatal(args ...any)
	Errorf(format string, args ...any)
}

// bench is an engine on a fake clock.
type bench struct {
	*Engine
	clock *fakeClock
	start time.Time
}

func newBench(t tester, set Settings) *bench {
	t.Helper()
	c := newFakeClock()
	e, err := New(set, c.clock(), NewPeers())
	if err != nil {
		t.Fatal(err)
	}
	return &bench{e, c, c.Now()}
}

// put queues a sequence whose prompt is these ids and whose answer has n tokens.
func (b *bench) put(prompt []uint32, n int) *sequence {
	set := b.Settings()
	s := &sequence{
		prompt: prompt, root: namespace("m", ""), notify: make(chan struct{}, 1),
		script: newScript(&set, prompt, &sampling{maxTokens: n, ignoreEOS: true}, 0, n),
	}
	b.submit([]*sequence{s})
	return s
}

// until advances step by step until ok holds, and returns the time since the start.
func (b *bench) until(t tester, ok func() bool) time.Duration {
	t.Helper()
	limit := b.clock.Now().Add(24 * time.Hour)
	for !ok() {
		if !b.clock.step(limit) {
			t.Fatal("nothing happens any more")
		}
	}
	return b.clock.Now().Sub(b.start)
}

func (b *bench) finished(s *sequence) func() bool { return func() bool { return b.progress(s).done } }

// idle fails the test unless the engine holds nothing.
func (b *bench) idle(t tester) {
	t.Helper()
	if s := b.Stats(); s.Running+s.Waiting+s.BlocksPinned+s.Leases != 0 {
		t.Errorf("an idle engine holds something: %+v", s)
	}
}

// ids returns n token ids from first on.
func ids(first, n int) []uint32 {
	s := make([]uint32, n)
	for i := range s {
		s[i] = uint32(first + i)
	}
	return s
}
