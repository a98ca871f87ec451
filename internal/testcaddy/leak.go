package testcaddy

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

// background are goroutines of Caddy's that outlive its stopping by design. Each
// entry says why; nothing else may be left.
func background() []goleak.Option {
	return []goleak.Option{
		// refreshes the file of a storage lock every 5 s and notices at the next
		// turn only that the lock has been released
		goleak.IgnoreAnyFunction("github.com/caddyserver/certmagic.keepLockfileFresh"),
	}
}

// NoLeaks checks, at the end of the test and after everything that the test
// cleans up later in its text has been cleaned up, that no goroutine is left
// that was not there when NoLeaks was called. Call it first.
func NoLeaks(tb testing.TB) {
	tb.Helper()
	allowed := append(background(), goleak.IgnoreCurrent())
	tb.Cleanup(func() {
		if tb.Failed() {
			return // a test that ended early leaves things behind
		}
		var err error
		for deadline := time.Now().Add(Patience); time.Now().Before(deadline); {
			if err = goleak.Find(allowed...); err == nil {
				return
			}
		}
		tb.Error(err)
	})
}
