package enginesim

import "time"

// Clock is where an engine's time comes from, so that tests need no sleeping. Both
// functions must be safe for concurrent use, and AfterFunc must not run f before it
// returns: the engine calls it under its lock.
type Clock struct {
	// Now returns the time.
	Now func() time.Time
	// AfterFunc runs f once after d has passed, in a goroutine of its own or of the
	// clock. stop prevents that if f has not started.
	AfterFunc func(d time.Duration, f func()) (stop func() bool)
}

// SystemClock is the machine's own clock.
func SystemClock() Clock {
	return Clock{
		Now:       time.Now,
		AfterFunc: func(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop },
	}
}
