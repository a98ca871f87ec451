package retry

import (
	"sync"
	"time"
)

const (
	// Window is the time over which requests and retries are compared.
	Window = 10 * time.Second
	// Always is how many retries within a Window may be whatever the share.
	Always = 3

	// step is how finely time is told: the window covers the step that is
	// running and all that began in the ten seconds before it.
	step  = 100 * time.Millisecond
	steps = int64(Window/step) + 1
)

// Budget counts the requests and the retries of the last Window. The zero
// value is ready for use, and safe for concurrent use: each call takes a lock
// for some nanoseconds. It takes about a kilobyte and allocates nothing.
type Budget struct {
	mu       sync.Mutex
	start    time.Time // of step 0
	latest   int64     // the step that is running
	requests int       // in all of ring
	retries  int       // in all of ring
	ring     [steps]counts
}

// counts is what happened in one step.
type counts struct{ requests, retries int32 }

// Count takes in that a client's request has come. Each is counted once,
// however often it is tried.
func (b *Budget) Count(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.step(now).requests++
	b.requests++
}

// Take reports whether one more retry may be, and counts it if so: with it, at
// most share (0 to 1) of the requests within the Window are retries, or at
// most Always.
func (b *Budget) Take(now time.Time, share float64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.step(now)
	if next := b.retries + 1; next > Always && float64(next) > share*float64(b.requests) {
		return false
	}
	c.retries++
	b.retries++
	return true
}

// step moves the window to now and returns the step that is running. A now
// that lies before an earlier one, as goroutines that overtake each other
// bring it, counts as that earlier one.
func (b *Budget) step(now time.Time) *counts {
	if b.start.IsZero() {
		b.start = now
	}
	n := int64(now.Sub(b.start) / step)
	// After a pause no more steps must be emptied than there are.
	b.latest = max(b.latest, n-steps)
	for b.latest < n {
		b.latest++
		c := &b.ring[b.latest%steps]
		b.requests -= int(c.requests)
		b.retries -= int(c.retries)
		*c = counts{}
	}
	return &b.ring[b.latest%steps]
}
