package fleet

import (
	"sync"
	"time"

	"github.com/calinix/caddy-calinix/index"
)

// record is what a leg has registered of its prompt, or is going to: one that asked
// for it leaves that until its request is on its way, since what nobody holds need not
// be hashed for the decision. All is a promise, which is kept with the first byte of
// the answer.
type record struct {
	mu           sync.Mutex // guards all below; taken before Fleet.mu
	chain        index.Chain
	registration index.Registration
	work         *work  // of the decision, whose query knows where blocks are; nil: nothing is left to do
	memory       uint32 // that of the pod's slot at the pick
	kept         bool   // the pod has computed the prompt
}

func (t *record) reset(memory uint32) {
	t.chain, t.registration, t.work, t.memory = nil, index.Registration{}, nil, memory
	t.kept = false
}

// register tells the index what the picked pod is about to hold, or notes that
// Complete will.
func (l *Lease) register(now time.Time, a *Ask, w *work) {
	t := &l.record
	t.chain = a.Chain
	if a.Later {
		t.work = w
		return
	}
	t.registration = l.fleet.index.Promise(now, l.ref.Slot, a.Chain, &w.query)
	l.Blocks = a.Chain.Complete()
}

// Complete hashes and registers the prompt's chain if Begin has left that; else it
// does nothing. It is to be called as soon as the request is on its way: legs with the
// same prompt that begin before do not know of it. Nothing else may use the chain
// meanwhile. An End that comes first does it too, or has no need of it: a leg that
// fails takes back what has been registered.
func (l *Lease) Complete(now time.Time) {
	if l.fleet == nil {
		return
	}
	l.record.mu.Lock()
	defer l.record.mu.Unlock()
	l.complete(now)
}

// complete is Complete. Guarded by record.mu.
func (l *Lease) complete(now time.Time) {
	f, t := l.fleet, &l.record
	if t.work == nil {
		return
	}
	if !l.forgotten() { // else what the pod computes of the prompt is not known
		t.registration = f.index.Promise(now, l.ref.Slot, t.chain, &t.work.query)
		if t.kept {
			f.index.Keep(now, t.registration, t.chain)
		}
	}
	l.Blocks = t.chain.Complete()
	works.Put(t.work)
	t.work = nil
}

// keep notes that the pod has computed the prompt: it holds it now, and what that
// displaces goes. Of what is left to register, Complete notes the same. A pod that has
// lost its cache meanwhile is not known to hold anything. Guarded by record.mu.
func (l *Lease) keep(now time.Time) {
	f, t := l.fleet, &l.record
	if t.chain == nil || t.kept {
		return
	}
	t.kept = true
	if t.work == nil && !l.forgotten() {
		f.index.Keep(now, t.registration, t.chain)
	}
}

// forgotten says whether the pod has lost its cache since it was picked. Guarded by
// record.mu.
func (l *Lease) forgotten() bool {
	f := l.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.slots[l.ref.Slot].memory != l.record.memory
}

// unregister ends what the leg has to do with the index. With undo it takes back
// what was registered, and reports whether there was anything. Guarded by record.mu.
func (l *Lease) unregister(now time.Time, undo bool) bool {
	t := &l.record
	undo = undo && t.chain != nil
	switch {
	case !undo:
		l.complete(now)
		l.keep(now)
	default:
		l.fleet.index.Undo(t.registration, t.chain)
		if t.work != nil {
			works.Put(t.work)
			t.work = nil
		}
	}
	t.chain = nil
	return undo
}
