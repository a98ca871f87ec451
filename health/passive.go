package health

import "time"

// window counts a pod's failed requests of the last while. It keeps at most
// as many times as it takes to mark the pod down. The Checker's mutex guards
// it.
type window struct {
	times []time.Time // oldest first
}

// failed adds a failure at now and reports whether limit failures have come
// together within d. If so, the count starts anew.
func (w *window) failed(now time.Time, limit int, d time.Duration) bool {
	old := 0
	for old < len(w.times) && now.Sub(w.times[old]) > d {
		old++
	}
	w.times = append(w.times[:0], w.times[old:]...)
	w.times = append(w.times, now)
	if len(w.times) < limit {
		return false
	}
	w.times = w.times[:0]
	return true
}
