package fleet

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/calinix/caddy-calinix/index"
	"github.com/calinix/caddy-calinix/selection"
)

// Options are what a fleet is made with.
type Options struct {
	// Index is told which pod is about to hold which blocks, and asked for
	// them. The fleet wipes a pod's entries when the pod goes.
	Index *index.Index
	// Sessions are the bounds of the memory of sessions.
	Sessions Sessions
	// Capacity says how large the pods' caches are; the zero value leaves what
	// the index is told of that to others.
	Capacity Capacity
	// Alarm is asked to have Tick called at a time, or, for the zero time, at once;
	// only what was asked last counts. It is called under the fleet's lock and must
	// not call back. Without one no leg can be held.
	Alarm func(at time.Time)
	// Seed makes the draws of the strategy random repeatable; 0 takes a seed at
	// random.
	Seed uint64
}

// Fleet is the pods of one balancer. All methods are safe for concurrent use.
type Fleet struct {
	index *index.Index

	// applying is held by Apply from its first change to its last, so that two
	// of them do not mix. Taken before mu.
	applying sync.Mutex
	// fitting is held while the index is told a pod's capacity. Taken before mu.
	fitting sync.Mutex

	models atomic.Pointer[models] // replaced under mu, read without

	mu       sync.Mutex // guards all below
	view     selection.View
	role     [Roles]index.Bitmap // live pods by role
	up       index.Bitmap
	draining index.Bitmap
	slots    [selection.Slots]slot
	byID     map[string]uint8 // live pods
	sessions sessions
	// reuse counts the pods that were put into slots. While it stays, what was
	// learnt of a slot outside the lock is true of the pod that is there.
	reuse uint64
	turn  [Roles]uint8 // rank of the pod picked last by rotation
	draws rand.PCG
	rings []ring // in the order of SetRings; replaced under applying too
	// estimates has the legs whose first byte comes with the end of the answer.
	estimates estimates
	held      held
	capacity  Capacity
	base      time.Time // origin of the fleet's clock
	alarm     func(at time.Time)
}

// slot is what is known of the pod in a slot and not read in scoring.
type slot struct {
	pod  *Pod // as of the last Apply; never changed, only replaced
	gen  uint32
	life life
	// running counts the legs that were started and have not ended, by role.
	running [Roles]int32
	drained verdict
	// memory numbers what the pod can remember: it rises when the pod goes or
	// loses its cache, and sessions that it served before are forgotten.
	memory uint32
	// learned are the models that the pod has said it serves.
	learned []string
	// cache is how many tokens the engine says that its cache holds, 0 if it
	// does not; sizes how many of them a block has; room how many blocks the
	// index was told to keep.
	cache int64
	sizes sizes
	room  int
	trust trust
}

// life is what a slot is in the middle of.
type life uint8

const (
	free    life = iota // nobody's
	live                // its pod is one of the fleet
	leaving             // its pod was removed, and has legs left
	wiping              // its pod is gone; the index is about to forget it
)

// verdict is what Drain decided of a pod.
type verdict uint8

const (
	undecided verdict = iota // the configuration's word stands
	drain
	undrain
)

// New returns a fleet without pods.
func New(o Options) *Fleet {
	if o.Seed == 0 {
		o.Seed = rand.Uint64()
	}
	f := &Fleet{
		index:    o.Index,
		byID:     map[string]uint8{},
		sessions: newSessions(o.Sessions),
		capacity: o.Capacity,
		alarm:    o.Alarm,
	}
	if f.alarm == nil {
		f.alarm = func(time.Time) {}
	}
	f.models.Store(new(models))
	f.draws.Seed(o.Seed, 0)
	for r := range f.turn {
		f.turn[r] = math.MaxUint8 // the first turn is rank 0's
	}
	for i := range f.slots {
		f.slots[i].memory = 1 // 0 is nobody's
	}
	return f
}

// Configure sets other bounds for the memory of sessions; what is beyond them
// is forgotten, those not used for longest first.
func (f *Fleet) Configure(s Sessions) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sessions.configure(s)
}

// Expire forgets sessions that were not used for too long, and ends the
// staleness of pods of whose caches nothing was heard for too long; it returns
// the ids of these. Calling it once in a while keeps memory for those that are.
func (f *Fleet) Expire(now time.Time) (believed []string) {
	f.mu.Lock()
	f.sessions.expire(f.clock(now))
	slots := f.believe(f.clock(now))
	for _, slot := range slots {
		if p := f.slots[slot].pod; p != nil {
			believed = append(believed, p.ID)
		}
	}
	f.mu.Unlock()
	for _, slot := range slots {
		f.fit(slot)
	}
	return believed
}

// SetUp marks the pod up or down. With forget its engine has lost its cache:
// the index forgets what the pod held, and sessions do not come back to it for
// its sake. It does nothing if the pod is gone.
func (f *Fleet) SetUp(ref Ref, up, forget bool) {
	f.mu.Lock()
	s := &f.slots[ref.Slot]
	known := s.life == live && s.gen == ref.Gen
	if known {
		setBit(&f.up, ref.Slot, up)
		f.stir()
		if forget {
			s.memory++
			s.doubt()
		}
	}
	f.mu.Unlock()
	if known && forget {
		f.index.Wipe(ref.Slot)
		f.fit(ref.Slot)
	}
}

// Drain makes the pod finish what it has and get nothing new, or ends that. It
// is kept over Apply, against what the configuration says. It reports whether
// there is a pod with that id.
func (f *Fleet) Drain(id string, on bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	i, ok := f.byID[id]
	if !ok {
		return false
	}
	s := &f.slots[i]
	s.drained = undrain
	if on {
		s.drained = drain
	}
	setBit(&f.draining, i, s.drains())
	f.stir()
	return true
}

// drains says whether the pod in the slot is to get nothing new.
func (s *slot) drains() bool {
	if s.drained == undecided {
		return s.pod.Draining
	}
	return s.drained == drain
}

// Forget makes the index forget what every pod holds: its blocks are to be of
// another kind from now on.
func (f *Fleet) Forget() {
	f.mu.Lock()
	for i := range f.slots {
		f.slots[i].sizes = sizes{}
	}
	f.mu.Unlock()
	f.fitAll()
	for i := range selection.Slots {
		f.index.Wipe(uint8(i))
	}
}

// clock turns now into nanoseconds since the first now that the fleet saw, by
// the monotonic clock where there is one. Guarded by mu.
func (f *Fleet) clock(now time.Time) int64 {
	if f.base.IsZero() {
		f.base = now
	}
	return int64(now.Sub(f.base))
}

// state returns the pods of the role by what decides whether they may be
// picked. Guarded by mu.
func (f *Fleet) state(a *Ask) selection.State {
	return selection.State{
		Role: f.role[a.Role], Other: f.models.Load().others(a.Model), Up: f.up, Draining: f.draining,
		Full: f.view.Full, Excluded: a.Exclude,
	}
}

func setBit(b *index.Bitmap, slot uint8, on bool) {
	if on {
		b.Set(int(slot))
	} else {
		b.Clear(int(slot))
	}
}
