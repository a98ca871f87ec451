package fleet

import (
	"sync"
	"time"

	"github.com/calinix/caddy-calinix/index"
)

// tail is what a leg has registered of its prompt, and what is left to register.
// A leg that asked for it leaves the tail of a chain until its request is on its
// way: what nobody holds need not be hashed for the decision.
type tail struct {
	mu           sync.Mutex // guards all below; taken before Fleet.mu
	chain        index.Chain
	registration index.Registration
	work         *work  // of the decision, whose query knows where blocks are; nil: nothing is left
	memory       uint32 // that of the pod's slot at the pick
}

func (t *tail) reset(memory uint32) {
	t.chain, t.registration, t.work, t.memory = nil, index.Registration{}, nil, memory
}

// register tells the index what the picked pod is about to hold: the whole chain,
// or, if the rest comes later, what is hashed of it.
func (l *Lease) register(now time.Time, a *Ask, w *work) {
	x, t := l.fleet.index, &l.tail
	t.chain = a.Chain
	if a.Later {
		t.registration = x.RegisterHead(now, l.ref.Slot, a.Chain, &w.query)
		t.work = w
		return
	}
	t.registration = x.Register(now, l.ref.Slot, a.Chain, &w.query)
	l.Blocks = len(a.Chain.Hashes())
}

// Complete hashes and registers what Begin left of the prompt's chain; if nothing
// is left it does nothing. It is to be called once the request is on its way, and
// nothing else may use the chain meanwhile. An End that comes first does it too, or
// has no need of it: a leg that fails takes back what has been registered, be it
// all or the head.
func (l *Lease) Complete(now time.Time) {
	if l.fleet == nil {
		return
	}
	l.tail.mu.Lock()
	defer l.tail.mu.Unlock()
	l.complete(now)
}

// complete is Complete. Guarded by tail.mu.
func (l *Lease) complete(now time.Time) {
	f, t := l.fleet, &l.tail
	if t.work == nil {
		return
	}
	f.mu.Lock()
	forgotten := f.slots[l.ref.Slot].memory != t.memory
	f.mu.Unlock()
	if !forgotten { // else the pod has lost the head meanwhile, and what it computes of it is not known
		t.registration = f.index.RegisterTail(now, t.registration, t.chain, &t.work.query)
	}
	l.Blocks = t.chain.Complete()
	works.Put(t.work)
	t.work = nil
}

// unregister ends what the leg has to do with the index. With undo it takes back
// what was registered, and reports whether there was anything.
func (l *Lease) unregister(now time.Time, undo bool) bool {
	t := &l.tail
	t.mu.Lock()
	defer t.mu.Unlock()
	undo = undo && t.chain != nil
	switch {
	case !undo:
		l.complete(now)
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
