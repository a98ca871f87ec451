//go:build !linux

package fakepod

import "testing"

// Blackhole skips the test: only Linux can fill the queue of a listener.
func Blackhole(tb testing.TB) (addr string) {
	tb.Helper()
	tb.Skip("a black hole needs Linux")
	return ""
}
