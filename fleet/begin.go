package fleet

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/calinix/caddy-calinix/index"
	"github.com/calinix/caddy-calinix/selection"
)

// Ask is what a leg wants of the fleet.
type Ask struct {
	// Role is what the pod has to serve.
	Role Role
	// Model is the name that engines have for the model; empty: any pod will do.
	Model []byte
	// Chain is that of the prompt; nil or empty: there is no prompt, and caches
	// play no part. It must stay as it is until the lease has ended
	// or its first byte has come.
	Chain Chain
	// Later says that Lease.Complete follows: until then no more of the chain is
	// hashed than the decision takes, and nothing registered.
	Later bool
	// Tokens is the length of the prompt in estimated tokens of the engine; 0:
	// by the length of the chain's text.
	Tokens int
	// Key is a hash of the prompt, by which equals are told apart, if HasKey;
	// without one the legs take equals in turn.
	Key    uint64
	HasKey bool
	// Session is a hash of the session's key; 0: there is none.
	Session uint64
	// Hash is what the strategies that hash look up, if HasHash, on the ring of
	// so many VirtualNodes (SetRings); LoadFactor is how many times the mean
	// number of legs a pod may hold.
	Hash         uint64
	HasHash      bool
	VirtualNodes int
	LoadFactor   float64
	// Exclude has the slots of pods to which the leg must not go.
	Exclude index.Bitmap
	// Near is the pod of the other leg, to which the pod should be near, if
	// HasNear; but it should not be that pod itself.
	Near    Ref
	HasNear bool
	// Toward is what the decode leg is going to ask, with HasNear, if this is for
	// the prefill leg and no decode pod is picked yet: the prefill pod of the best
	// pair is picked (selection.Pair). It must have the same Chain and Strategy.
	Toward *Ask
	// AssumeNear is for Explain alone: it is to be taken that the prefill leg
	// has just begun at Near, which is one leg more there, with this prompt.
	AssumeNear bool

	Strategy selection.Strategy
	Weights  selection.Weights
	TieBreak selection.TieBreak
	// TTFT are the constants of ExpectedTTFT; its prefill rate counts with every
	// strategy, since others may look at the same pods. Zero: the defaults.
	TTFT selection.TTFT
	// Hold is set if the leg may be held, by what SetOverload says. Only
	// ExpectedTTFT knows when.
	Hold *Hold
	// Whole says that the answer comes in one piece: its first byte will tell
	// nothing of when the prompt was computed, and that is estimated.
	Whole bool
}

// work is what a decision needs room for.
type work struct {
	query   index.Query
	request selection.Request
	work    []float64 // of request
	session int32     // entry of the session in the memory, 0 if unknown
	fell    selection.Fallback
	home    bool
	next    *work // for the decode leg that is to follow, of no meaning unless Ask.paired
}

var works = sync.Pool{New: func() any { return new(work) }}

// Begin picks a pod for the leg and makes l the lease on it: the load is
// reserved within the pick, so that of legs that begin at once each sees those
// before it, the session is noted, and the chain is registered at the pod. l
// must be new or ended. If no pod can be had the error is an *UnavailableError
// and l is as before; so it is if the leg is held (ErrHeld) or would be, but too
// many are (ErrCrowded).
//
// The index is asked before the pick and told after it, without the lock. Two
// legs with the same new prompt that begin at the same moment may so both find
// nothing cached: the cost is one prompt computed twice.
func (f *Fleet) Begin(now time.Time, a *Ask, l *Lease) error {
	if a.Hold != nil {
		return f.beginOrHold(now, a, l)
	}
	w := works.Get().(*work)
	err := f.begin(now, a, l, w)
	if err != nil || l.record.work == nil {
		works.Put(w)
	}
	return err
}

func (f *Fleet) begin(now time.Time, a *Ask, l *Lease, w *work) error {
	prompt := a.Chain != nil && a.Chain.Extend(1) > 0
	for {
		f.mu.Lock()
		s := f.state(a)
		var decode index.Bitmap
		if a.paired() {
			s := f.state(a.Toward)
			decode = selection.Usable(&s)
		}
		reuse := f.reuse
		f.mu.Unlock()
		usable := selection.Usable(&s)
		if usable.Empty() {
			return refusal(&s, a.Role)
		}
		w.fill(now, f.index, a, prompt, usable)
		w.fillNext(now, f.index, a, prompt, decode)

		f.mu.Lock()
		if f.reuse != reuse {
			// A slot that the index was asked about may have another pod now.
			// Pods come seldom, so this cannot go on for long.
			f.mu.Unlock()
			continue
		}
		slot, err := f.pick(now, a, w)
		if a.Hold != nil {
			err = f.admit(now, a, w, slot, err)
		}
		if err == nil {
			f.lease(now, a, w, slot, l)
			// The pod is busier now: for those who are held another one may be the best.
			f.wake(w.request.Now)
		}
		f.mu.Unlock()
		if err != nil {
			return err
		}
		if prompt {
			l.Tokens = a.tokens()
			l.Covered, l.Available = a.covered(l.Depth, l.Tokens), a.covered(w.deepest(), l.Tokens)
			l.register(now, a, w)
		}
		return nil
	}
}

// deepest returns how many leading blocks some pod holds that the index was
// asked about.
func (w *work) deepest() int {
	if n := len(w.query.Frames); n > 0 {
		return w.query.Frames[n-1].Depth
	}
	return 0
}

// fill asks the index and makes the part of the selection's request that needs
// no lock.
func (w *work) fill(now time.Time, x *index.Index, a *Ask, prompt bool, pods index.Bitmap) {
	w.request = selection.Request{
		Strategy: a.Strategy, Weights: a.Weights, TieBreak: a.TieBreak,
		Sticky: selection.None, Key: a.Key, HasKey: a.HasKey,
		Hash: a.Hash, HasHash: a.HasHash, LoadFactor: a.LoadFactor,
	}
	if prompt {
		x.Query(&w.query, a.Chain, pods)
	} else {
		x.Query(&w.query, nil, pods)
	}
	w.request.Frames = w.query.Frames
	switch {
	case a.Strategy == selection.ExpectedTTFT:
		w.weigh(now, x, a)
	case len(w.request.Frames) > 0:
		// Shares of the prompt are only needed if somebody holds a share.
		w.request.Blocks = a.Chain.Blocks()
	}
}

// paired says whether the pods that may take the decode leg have a say in the pick.
func (a *Ask) paired() bool {
	return a.Toward != nil && selection.Places(a.Toward.Strategy, a.Toward.Weights)
}

// fillNext is fill for the decode leg that is to follow, if it plays a part.
func (w *work) fillNext(now time.Time, x *index.Index, a *Ask, prompt bool, pods index.Bitmap) {
	if !a.paired() {
		return
	}
	if w.next == nil {
		w.next = new(work)
	}
	w.next.fill(now, x, a.Toward, prompt, pods)
}

// pick filters, scores and picks. Guarded by mu.
func (f *Fleet) pick(now time.Time, a *Ask, w *work) (slot uint8, err error) {
	s := f.state(a)
	c := f.candidates(&s, a)
	if c.Empty() {
		return 0, refusal(&s, a.Role)
	}
	f.complete(now, a, w, &f.draws)
	slot = uint8(f.choose(a, &c, w))
	r := &w.request
	w.home = r.Strategy.Hashes() && r.Ring.Home(&c, r.Hash) == int(slot)
	return slot, nil
}

// choose scores the candidates and picks one, -1 if there are none: the best, or that
// of the best pair. Guarded by mu.
func (f *Fleet) choose(a *Ask, c *index.Bitmap, w *work) int {
	w.fell = selection.Fall(&f.view, c, &w.request)
	if !a.paired() {
		top := selection.Score(&f.view, c, &w.request)
		return selection.Pick(&f.view, &top, &w.request)
	}
	s := f.state(a.Toward)
	decode, next := selection.Filter(&s), &w.next.request
	next.Now = w.request.Now
	return selection.Pair(&f.view, c, &decode, &w.request, next)
}

// candidates returns the pods that may be picked. A pod that serves both legs
// hands nothing over to itself if there is another one for this leg; s is told.
// Guarded by mu.
func (f *Fleet) candidates(s *selection.State, a *Ask) index.Bitmap {
	c := selection.Filter(s)
	if near := int(a.Near.Slot); a.HasNear && f.has(a.Near) && c.Has(near) && c.Count() > 1 {
		c.Clear(near)
		s.Excluded.Set(near)
	}
	return c
}

// complete adds to the request what is known only under the lock. Guarded by
// mu.
func (f *Fleet) complete(now time.Time, a *Ask, w *work, draws *rand.PCG) {
	r := &w.request
	r.Now = f.clock(now)
	f.settle(r.Now)
	r.Turn = f.turn[a.Role]
	if a.Strategy.Draws() {
		r.Draw = draws.Uint64()
	}
	if a.Strategy.Hashes() {
		r.Ring = f.ring(a.VirtualNodes)
	}
	if a.HasNear && f.has(a.Near) {
		r.Node, r.Zone = f.view.Node[a.Near.Slot], f.view.Zone[a.Near.Slot]
	}
	w.session = 0
	if a.Session != 0 {
		if w.session = f.sessions.find(a.Session, f.clock(now)); w.session != 0 {
			k := f.sessions.slab[w.session].served[a.Role]
			if k.memory == f.slots[k.slot].memory {
				r.Sticky = int(k.slot)
			}
		}
	}
	if a.paired() {
		f.complete(now, a.Toward, w.next, draws)
	}
}

// has says whether the pod that ref names is still in its slot, if only to end
// its legs. Guarded by mu.
func (f *Fleet) has(ref Ref) bool {
	s := &f.slots[ref.Slot]
	return s.gen == ref.Gen && s.pod != nil
}

// refusal says why there are no candidates.
func refusal(s *selection.State, role Role) error {
	up := s.Role.And(s.Up).AndNot(s.Other).AndNot(s.Draining)
	cause := ErrNoneUp
	switch {
	case !s.Role.Empty() && s.Role.AndNot(s.Other).Empty():
		cause = ErrNoModel
	case !selection.Usable(s).Empty():
		cause = ErrAllFull
	case !up.Empty():
		cause = ErrNoneLeft
	}
	return &unavailable[cause][role]
}
