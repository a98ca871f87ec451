package fleet

import (
	"math"

	"github.com/calinix/caddy-calinix/selection"
)

// queued is the part of a lease that says what the leg still is to its pod's
// queue. Guarded by Fleet.mu.
type queued struct {
	load  selection.Load
	rate  float64 // tokens a second at which the pod was assumed to compute
	duty  selection.Duty
	stage stage
	due   int64 // when the first byte is taken for come, if place is not 0
	place int32 // in estimates, from 1; 0: in none
}

// stage is how far the pod is with a leg's prompt, as far as it is known.
type stage uint8

const (
	left      stage = iota // nothing of the leg counts at the pod
	computing              // the prompt is in the pod's queue
	computed               // the first byte has come, or is taken for come
)

// enqueue counts the leg at its pod. With whole no first byte will be seen
// before the end, and it is taken for come when the uncached part has had the
// time to be computed. Guarded by mu.
func (f *Fleet) enqueue(now int64, l *Lease, whole bool) {
	q := &l.queued
	f.view.Queue(l.ref.Slot, q.load, now, q.rate)
	q.stage = computing
	if whole {
		q.due = now + int64(math.Min(float64(q.load.Uncached)*1e9/q.rate, maxEstimate))
		f.estimates.push(l)
	}
}

// maxEstimate bounds for how long an answer that comes whole is taken for being
// computed, in nanoseconds: a day.
const maxEstimate = 24 * 3600 * 1e9

// compute says that the leg's prompt is computed. Guarded by mu.
func (f *Fleet) compute(now int64, l *Lease) {
	q := &l.queued
	if q.stage != computing {
		return
	}
	q.stage = computed
	f.estimates.remove(l)
	f.view.Computed(l.ref.Slot, q.load, now, q.rate)
	if q.duty != selection.Compute {
		f.view.Decode(l.ref.Slot, q.load, 1)
	}
}

// dequeue takes all that is left of the leg off its pod. Guarded by mu.
func (f *Fleet) dequeue(now int64, l *Lease) {
	q := &l.queued
	switch {
	case q.stage == computing:
		f.estimates.remove(l)
		f.view.Computed(l.ref.Slot, q.load, now, q.rate)
	case q.stage == computed && q.duty != selection.Compute:
		f.view.Decode(l.ref.Slot, q.load, -1)
	}
	f.view.Unqueue(l.ref.Slot, q.load)
	q.stage = left
}

// settle takes the first bytes that are due for come. Guarded by mu.
func (f *Fleet) settle(now int64) {
	for len(f.estimates) > 0 && f.estimates[0].queued.due <= now {
		l := f.estimates[0]
		f.compute(l.queued.due, l)
	}
}

// estimates is a binary heap of the legs whose first byte will not be seen, by
// when it is due. Each knows its place.
type estimates []*Lease

func (e *estimates) push(l *Lease) {
	*e = append(*e, l)
	l.queued.place = int32(len(*e))
	e.up(len(*e) - 1)
}

// remove takes l out, if it is in.
func (e *estimates) remove(l *Lease) {
	if l.queued.place == 0 {
		return
	}
	i, last := int(l.queued.place)-1, len(*e)-1
	e.swap(i, last)
	(*e)[last] = nil
	*e = (*e)[:last]
	l.queued.place = 0
	if i < last {
		e.up(i)
		e.down(i)
	}
}

func (e *estimates) up(i int) {
	for i > 0 && e.before(i, (i-1)/2) {
		e.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
}

func (e *estimates) down(i int) {
	for {
		child := 2*i + 1
		if child+1 < len(*e) && e.before(child+1, child) {
			child++
		}
		if child >= len(*e) || !e.before(child, i) {
			return
		}
		e.swap(i, child)
		i = child
	}
}

func (e *estimates) before(i, j int) bool { return (*e)[i].queued.due < (*e)[j].queued.due }

func (e *estimates) swap(i, j int) {
	h := *e
	h[i], h[j] = h[j], h[i]
	h[i].queued.place, h[j].queued.place = int32(i)+1, int32(j)+1
}
