package health

import (
	"context"
	"math/bits"
	"time"
)

// launch starts the loop of a pod anew. The Checker's mutex is held.
func (c *Checker) launch(w *watch) {
	w.halt()
	if c.run == nil || c.prober == nil {
		return
	}
	ctx, cancel := context.WithCancel(c.run)
	before, done := w.done, make(chan struct{})
	w.cancel, w.done = cancel, done
	pod, prober, s := w.pod, c.prober, *c.settings.Load()
	c.loops.Go(func() {
		defer close(done)
		if before != nil {
			<-before // probes of one pod never overlap
		}
		c.loop(ctx, w, pod, prober, s)
	})
}

// halt makes the pod's loop end soon, and its probe under way count for
// nothing. The Checker's mutex is held.
func (w *watch) halt() {
	if w.cancel != nil {
		w.cancel()
		w.cancel = nil
	}
}

// loop probes one pod until ctx ends. A probe that outlasts the interval
// delays the next one.
//
// From the second on probes begin at multiples of a 32nd of the interval, so that
// several pods are probed at a time: to wake an idle processor costs more than a probe.
func (c *Checker) loop(ctx context.Context, w *watch, pod Pod, prober Prober, s Settings) {
	first, next := phase(pod.Slot, s.Interval)
	timer := time.NewTimer(first)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-timer.C:
			timer.Reset(now.Add(next).Truncate(s.Interval / 32).Sub(now))
		}
		next = s.Interval
		c.probe(ctx, w, pod, prober, s.Timeout)
	}
}

// probe asks the pod once and enters the result.
func (c *Checker) probe(ctx context.Context, w *watch, pod Pod, prober Prober, timeout time.Duration) {
	c.mu.Lock()
	marks := w.marks
	c.mu.Unlock()
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c.took(ctx, w, marks, prober.Probe(limited, pod))
}

// phase returns when the pod in slot is probed first, counted from the start,
// and how long after that for the second time; from then on the interval
// rules. All pods are probed at once, but for at most a millisecond a slot, lest
// 256 handshakes compete for the same timeout. The second probes are spread over
// half an interval, by the slot's bits in reverse, so that any number of pods
// in the lowest slots lies evenly.
func phase(slot uint8, interval time.Duration) (first, second time.Duration) {
	first = time.Duration(slot) * min(time.Millisecond, interval/1024)
	second = interval/2 + interval/2*time.Duration(bits.Reverse8(slot))/256 - first
	return first, max(second, 1)
}
