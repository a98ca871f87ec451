package fleet

import (
	"errors"
	"math"
	"slices"
	"time"

	"github.com/calinix/caddy-calinix/selection"
)

// Overload says when legs are held: kept back until a pod has less to do. The
// zero value holds none.
//
// What a pod has got it computes in the order in which it came. As long as there
// is more than the pods can do, that order makes everybody late. A leg that is
// held can still be overtaken by a shorter one.
type Overload struct {
	// Above is the estimated wait at the pod that is picked for a leg from which
	// on the leg is held; 0: never.
	Above time.Duration
	// Ageing is how much of the time that a leg waits is taken off the time that
	// its prompt takes, which is what legs are ordered by. A leg whose prompt takes
	// t to compute, at the rate that is assumed, is overtaken by none that comes
	// more than t/Ageing after it.
	Ageing float64
	// Max is how many legs may be held at a time; further ones are refused.
	Max int
}

// DefaultOverload returns what holds where overload is on and nothing else is said;
// see docs/routing-policies.md.
func DefaultOverload() Overload {
	return Overload{Above: 100 * time.Millisecond, Ageing: 0.1, Max: 1000}
}

// ErrHeld is what Begin returns for a leg that is held. It is no failure.
var ErrHeld = errors.New("held until a pod has less to do")

// ErrCrowded is what Begin returns for a leg that would be held, but Max are.
var ErrCrowded = errors.New("too many legs are held already")

// Hold is the place of a leg among those that are held. A leg that may be held
// brings one in Ask.Hold. It must not be copied, and be for one leg only.
type Hold struct {
	// Turn is called when it is the leg's turn: Begin is then to be called again
	// with the same Ask, or Leave. Until then nobody else has a turn. It is called
	// under the fleet's lock: it must not block, nor call the fleet.
	Turn func()

	// Nobody but the leg's own Begin and Leave changes these, while it has the turn
	// or with Fleet.mu; others read them with that while nobody has the turn.
	queued bool
	key    int64 // the lowest goes first
	ask    Ask
	work   *work // of the last Begin
}

// held are the legs that are held. Guarded by Fleet.mu.
type held struct {
	Overload
	// legs are in their order, equals in that in which they came. A heap would not
	// do: whoever cannot use the pod that has become free is passed over. Inserting
	// moves some KiB at most.
	legs []*Hold
	// turn is the one whose turn it is, nil if it is nobody's.
	turn *Hold
	// stirred says that pods, or their marks, have changed since legs was gone
	// through.
	stirred bool
	// alarm is for when Options.Alarm was asked last, 0: for none.
	alarm int64
}

// tried is how many legs are scored to find one that is to go to a free pod. One
// that is not waits for the pod that has its prompt's beginning, which will be free
// soon.
const tried = 16

// SetOverload says when legs are held from now on, also those that are.
func (f *Fleet) SetOverload(o Overload) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held.Overload = o
	f.stir()
}

// Held returns how many legs are held.
func (f *Fleet) Held() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.held.legs)
}

// beginOrHold is Begin for a leg that may be held.
func (f *Fleet) beginOrHold(now time.Time, a *Ask, l *Lease) error {
	h := a.Hold
	w := h.work
	if w == nil {
		w = works.Get().(*work)
	}
	err := f.begin(now, a, l, w)
	if errors.Is(err, ErrHeld) {
		return err // h keeps w
	}
	h.work = nil
	if err != nil || l.record.work == nil {
		works.Put(w)
	}
	if h.queued {
		f.Leave(now, h)
	}
	return err
}

// Leave gives up the place of a leg that is held; if it is not held it does
// nothing.
func (f *Fleet) Leave(now time.Time, h *Hold) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !h.queued {
		return
	}
	q := &f.held
	i := slices.Index(q.legs, h)
	q.legs = slices.Delete(q.legs, i, i+1)
	h.queued, h.ask = false, Ask{}
	if h.work != nil {
		works.Put(h.work)
		h.work = nil
	}
	if q.turn == h {
		q.turn = nil
	}
	f.next(f.clock(now))
}

// Tick is what the alarm calls, at the time for which it was asked or later.
func (f *Fleet) Tick(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held.alarm = 0
	f.next(f.clock(now))
}

// admit decides whether a leg for which the pod in the slot was picked, or none
// for the reason in err, goes there or is held. Guarded by mu.
func (f *Fleet) admit(now time.Time, a *Ask, w *work, slot uint8, err error) error {
	q, h, at := &f.held, a.Hold, f.clock(now)
	full := errors.Is(err, ErrAllFull)
	if q.Above == 0 || err != nil && !full {
		return err
	}
	depth := w.deepest()
	if !full {
		depth = w.query.Depth(int(slot))
	}
	key := h.key
	if !h.queued {
		f.next(at) // those who were here before go first
		key = selection.WorkTime(a.load(depth).Uncached, a.rate()) + int64(q.Ageing*float64(at))
	}
	behind := q.turn != nil && q.turn != h && key >= q.turn.key
	if !full && !behind && f.view.Wait(slot, at) <= int64(q.Above) {
		return nil
	}
	if !h.queued {
		if len(q.legs) >= q.Max {
			return ErrCrowded
		}
		h.queued, h.key = true, key
		i, _ := slices.BinarySearchFunc(q.legs, key, func(o *Hold, key int64) int {
			if o.key <= key {
				return -1
			}
			return 1
		})
		q.legs = slices.Insert(q.legs, i, h)
	}
	h.ask, h.work = *a, w
	if q.turn == h {
		q.turn = nil
	}
	f.next(at)
	return ErrHeld
}

// wake is next for where legs are seldom held: small enough to be inlined. Guarded by
// mu.
func (f *Fleet) wake(at int64) {
	if len(f.held.legs) > 0 {
		f.next(at)
	}
}

// next gives the turn, unless somebody has it, to the first leg that need not be
// held any more. If there is none it sets the alarm to when time alone may have
// changed that. Guarded by mu.
func (f *Fleet) next(at int64) {
	q := &f.held
	if q.turn != nil || len(q.legs) == 0 {
		return
	}
	f.settle(at)
	pods := f.role[Single].Or(f.role[Prefill]).And(f.up).AndNot(f.draining).AndNot(f.view.Full)
	free, soonest := f.view.Free(&pods, at, int64(q.Above))
	if free || q.stirred {
		if h := f.ready(at); h != nil {
			q.turn = h
			h.Turn()
			return
		}
		q.stirred = false
	}
	if len(f.estimates) > 0 {
		soonest = min(soonest, f.estimates[0].queued.due)
	}
	if soonest < math.MaxInt64 && soonest != q.alarm {
		q.alarm = soonest
		f.alarm(f.base.Add(time.Duration(soonest)))
	}
}

// ready returns the first leg that need not be held any more, nil if there is none.
// What it knows of the caches is as old as the leg's last Begin; that is asked
// again. Guarded by mu.
func (f *Fleet) ready(at int64) *Hold {
	if f.held.Above == 0 {
		return f.held.legs[0]
	}
	above, left := int64(f.held.Above), tried
	for _, h := range f.held.legs {
		s := f.state(&h.ask)
		c := f.candidates(&s, &h.ask)
		if c.Empty() {
			if selection.Usable(&s).Empty() {
				return h // to be refused
			}
			continue
		}
		if free, _ := f.view.Free(&c, at, above); !free {
			continue
		}
		r := &h.work.request
		r.Now = at
		if f.view.Wait(uint8(f.choose(&h.ask, &c, h.work)), at) <= above {
			return h
		}
		if left--; left == 0 {
			return nil
		}
	}
	return nil
}

// stir has the legs that are held gone through soon: pods, or their marks, have
// changed at a time that is not known here. Guarded by mu.
func (f *Fleet) stir() {
	if q := &f.held; len(q.legs) > 0 {
		q.stirred, q.alarm = true, 0
		f.alarm(time.Time{})
	}
}
