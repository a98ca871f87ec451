package fleet

import (
	"time"

	"github.com/calinix/caddy-calinix/outcome"
	"github.com/calinix/caddy-calinix/selection"
)

// Lease is a leg's hold on a pod, from Begin to End. Its methods may be called
// by several goroutines; it must not be copied after Begin. The zero value has
// ended.
type Lease struct {
	// Depth is how many leading blocks of the prompt the pod was believed to
	// hold when it was picked, Blocks how many the prompt has. Both are 0
	// without a prompt; with Ask.Later, Blocks is set by Complete.
	Depth, Blocks int
	// Strategy is the one that decided, and Fallback says why if that is not the
	// one that was asked for. Home says, if the strategy hashes, whether the pod
	// is the one to which the key belongs among the candidates whatever the load.
	Strategy selection.Strategy
	Fallback selection.Fallback
	Home     bool
	// Tokens is the estimated length of the prompt; Covered is how many of them
	// lie in its first Depth blocks, Available in those that some pod was
	// believed to hold that could have been picked. All are 0 without a prompt.
	Tokens, Covered, Available int64

	fleet  *Fleet
	pod    *Pod
	ref    Ref
	role   Role
	record record
	phase  phase // guarded by fleet.mu
	queued queued
}

// phase is how far a leg is.
type phase uint8

const (
	ended    phase = iota
	begun          // load is reserved
	running        // the request is on its way to the pod
	answered       // the first byte of the answer has come
)

// Pod returns the pod as it was described when the leg began.
func (l *Lease) Pod() *Pod { return l.pod }

// Ref names the pod.
func (l *Lease) Ref() Ref { return l.ref }

// lease makes l the lease on the pod in the slot. Guarded by mu.
func (f *Fleet) lease(now time.Time, a *Ask, w *work, slot uint8, l *Lease) {
	s := &f.slots[slot]
	f.view.Add(slot, 1)
	if w.request.Rotates() {
		f.turn[a.Role] = f.view.Rank[slot]
	}
	if a.Session != 0 {
		f.sessions.note(a.Session, w.session, a.Role, keeper{slot, s.memory}, f.clock(now))
	}
	l.Depth = w.query.Depth(int(slot))
	l.fleet, l.pod, l.ref, l.role = f, s.pod, Ref{slot, s.gen}, a.Role
	l.record.reset(s.memory)
	l.phase, l.Blocks = begun, 0
	l.Strategy, l.Fallback, l.Home = w.request.Strategy, w.fell, w.home
	l.Tokens, l.Covered, l.Available = 0, 0, 0
	l.queued = queued{load: a.load(l.Depth), rate: a.rate(), duty: a.duty()}
	f.enqueue(f.clock(now), l, a.Whole)
}

// Start says that the request is now sent to the pod: from now on the leg counts
// as running there. Reserved it has been since Begin.
func (l *Lease) Start() {
	if f := l.fleet; f != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		l.advance(running)
	}
}

// FirstByte says that the pod has begun to answer: it has computed the prompt,
// the registration of the chain stands, whatever comes, and what it displaces goes.
// When it and Complete have returned the chain is not used any more, even if another
// goroutine ends the leg meanwhile.
func (l *Lease) FirstByte(now time.Time) {
	f := l.fleet
	if f == nil {
		return
	}
	l.record.mu.Lock()
	defer l.record.mu.Unlock()
	f.mu.Lock()
	first := l.advance(answered)
	if first {
		at := f.clock(now)
		f.settle(at)
		f.compute(at, l)
		f.wake(at)
	}
	f.mu.Unlock()
	if first {
		l.keep(now)
	}
}

// advance moves a leg on to a later phase and reports whether it was not there
// yet. Guarded by fleet.mu.
func (l *Lease) advance(to phase) bool {
	if l.phase == ended || l.phase >= to {
		return false
	}
	if l.phase == begun {
		l.fleet.slots[l.ref.Slot].running[l.role]++
	}
	l.phase = to
	return true
}

// End gives up the hold on the pod: the load is gone, and if the leg failed
// before its first byte what was registered for it is taken back, but for what
// others have computed since. Only the first End counts. It does no harm if
// the pod was removed meanwhile: the slot was kept for this.
func (l *Lease) End(now time.Time, o outcome.Outcome) {
	f := l.fleet
	if f == nil {
		return
	}
	l.record.mu.Lock()
	f.mu.Lock()
	was := l.phase
	l.phase = ended
	f.mu.Unlock()
	if was == ended {
		l.record.mu.Unlock()
		return
	}
	undo := l.unregister(now, was != answered && o.UndoRegistration())
	l.record.mu.Unlock()
	f.mu.Lock()
	refit := !undo && f.weigh(l)
	at := f.clock(now)
	f.settle(at)
	f.dequeue(at, l)
	last := f.release(l.ref.Slot, l.role, was != begun)
	f.wake(at)
	f.mu.Unlock()
	if last {
		f.clear(l.ref.Slot)
	}
	if refit {
		f.fit(l.ref.Slot)
	}
}

// release takes a leg off the slot. It reports whether it was the last one of a
// removed pod; clear is then to follow. Guarded by mu.
func (f *Fleet) release(slot uint8, role Role, started bool) (last bool) {
	s := &f.slots[slot]
	f.view.Add(slot, -1)
	if started {
		s.running[role]--
	}
	if s.life == leaving && f.view.Inflight(slot) == 0 {
		s.life = wiping
		return true
	}
	return false
}
