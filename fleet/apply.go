package fleet

import (
	"fmt"
	"time"

	"github.com/calinix/caddy-calinix/index"
	"github.com/calinix/caddy-calinix/selection"
)

// MaxPods is how many pods one fleet can have.
const MaxPods = selection.Slots

// Diff is what an Apply changed, as ids of pods in the order of the lists.
type Diff struct {
	Added   []string
	Removed []string
}

// Apply makes desired the fleet's pods, in this order. A pod with the ID and
// URL of a known one is that one: it keeps its slot, its marks, its load and
// what is known of its cache, and takes on the rest. A pod that is not desired
// any more gets no new legs; those that it has end as usual.
//
// If it fails nothing has changed: more than MaxPods, an id that is empty or
// there twice, a pod without a role or with a negative MaxConns, or, after much
// change in a fleet of nearly MaxPods, no slot that is free of legs.
func (f *Fleet) Apply(_ time.Time, desired []Pod) (Diff, error) {
	if err := check(desired); err != nil {
		return Diff{}, err
	}
	f.applying.Lock()
	defer f.applying.Unlock()
	diff, gone, err := f.apply(desired)
	if err != nil {
		return Diff{}, err
	}
	// Those that have legs left are wiped once more when the last one ends.
	for slot := gone.busy.Next(0); slot >= 0; slot = gone.busy.Next(slot + 1) {
		f.index.Wipe(uint8(slot))
	}
	for slot := gone.idle.Next(0); slot >= 0; slot = gone.idle.Next(slot + 1) {
		f.clear(uint8(slot))
	}
	if len(diff.Added)+len(diff.Removed) > 0 {
		f.rebuild()
	}
	f.fitAll()
	return diff, nil
}

// Fits says whether Apply would succeed as things stand, and changes nothing.
func (f *Fleet) Fits(desired []Pod) error {
	if err := check(desired); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	_, err := f.plan(desired)
	return err
}

// clear makes the index forget the pod of a slot in which nothing is left to
// happen, and frees the slot.
func (f *Fleet) clear(slot uint8) {
	f.index.Wipe(slot)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.slots[slot].life, f.slots[slot].pod = free, nil
}

func check(desired []Pod) error {
	if len(desired) > MaxPods {
		return fmt.Errorf("%d pods, at most %d can be in one balancer", len(desired), MaxPods)
	}
	seen := make(map[string]int, len(desired))
	for i := range desired {
		p := &desired[i]
		first, twice := seen[p.ID]
		switch {
		case p.ID == "":
			return fmt.Errorf("pod %d (%s) has no id", i, p.URL)
		case twice:
			return fmt.Errorf("pods %d and %d have the same id %q", first, i, p.ID)
		case p.Roles&(1<<Roles-1) == 0 || p.Roles>>Roles != 0:
			return fmt.Errorf("pod %q: want one or more of the roles single, prefill and decode", p.ID)
		case p.Limited && (p.MaxConns < 0 || p.MaxConns > 1<<31-1):
			return fmt.Errorf("pod %q: maxConns %d is out of range", p.ID, p.MaxConns)
		}
		seen[p.ID] = i
	}
	return nil
}

// removed are the slots of pods that were removed: with legs left, or without.
type removed struct{ busy, idle index.Bitmap }

// plan is what an Apply has to do.
type plan struct {
	at   []int        // the slot of each desired pod, -1 if it needs one
	kept index.Bitmap // slots whose pods stay
	need int          // how many pods need a slot
	room index.Bitmap // slots that are free
	gone removed
}

// plan finds out what Apply has to do, and whether it can. Guarded by mu.
func (f *Fleet) plan(desired []Pod) (p plan, err error) {
	p.at, p.kept = f.match(desired)
	for _, slot := range p.at {
		if slot < 0 {
			p.need++
		}
	}
	for i := range f.slots {
		switch s := &f.slots[i]; {
		case s.life == free:
			p.room.Set(i)
		case s.life == live && !p.kept.Has(i) && f.view.Inflight(uint8(i)) == 0:
			p.gone.idle.Set(i)
		case s.life == live && !p.kept.Has(i):
			p.gone.busy.Set(i)
		}
	}
	if have := p.room.Count() + p.gone.idle.Count(); p.need > have {
		return plan{}, fmt.Errorf(
			"%d new pods, but only %d of %d slots are free: the others still finish requests of removed pods; try again later",
			p.need, have, MaxPods)
	}
	return p, nil
}

// apply does what Apply says, but for wiping the slots of removed pods.
func (f *Fleet) apply(desired []Pod) (diff Diff, gone removed, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()

	todo, err := f.plan(desired)
	if err != nil {
		return Diff{}, removed{}, err
	}
	gone = todo.gone
	for _, slot := range f.ranked() {
		if gone.busy.Has(int(slot)) || gone.idle.Has(int(slot)) {
			diff.Removed = append(diff.Removed, f.slots[slot].pod.ID)
			f.remove(slot)
		}
	}
	for todo.room.Count() < todo.need {
		// So many pods change at once that this slot is needed before its
		// entries can be wiped without the lock.
		i := gone.idle.Next(0)
		gone.idle.Clear(i)
		f.index.Wipe(uint8(i))
		todo.room.Set(i)
	}
	for i := range desired {
		p, slot := &desired[i], todo.at[i]
		if slot < 0 {
			slot = todo.room.Next(0)
			todo.room.Clear(slot)
			f.reuse++
			f.slots[slot].gen++
		}
		if !todo.kept.Has(slot) {
			f.add(uint8(slot), p)
			diff.Added = append(diff.Added, p.ID)
		}
		f.describe(uint8(slot), uint8(i), p)
	}
	f.place()
	f.nameModels()
	f.stir()
	return diff, gone, nil
}

// match finds, for each desired pod, the slot in which it lives or is about to
// leave; -1 if in none. kept has those in which it lives.
func (f *Fleet) match(desired []Pod) (at []int, kept index.Bitmap) {
	at = make([]int, len(desired))
	for i := range desired {
		p := &desired[i]
		at[i] = -1
		if slot, ok := f.byID[p.ID]; ok && f.slots[slot].pod.URL == p.URL {
			at[i] = int(slot)
			kept.Set(int(slot))
			continue
		}
		for slot := range f.slots {
			// It was removed and comes back while it still has legs.
			if s := &f.slots[slot]; s.life == leaving && s.pod.ID == p.ID && s.pod.URL == p.URL {
				at[i] = slot
			}
		}
	}
	return at, kept
}

// add makes p live in the slot, new to the fleet.
func (f *Fleet) add(slot uint8, p *Pod) {
	s := &f.slots[slot]
	s.life, s.drained, s.learned = live, undecided, nil
	s.cache, s.sizes = 0, sizes{}
	s.doubt()
	f.view.ID[slot] = selection.IDHash(p.ID)
	if f.view.Inflight(slot) == 0 {
		f.view.ClearQueue(slot)
	}
	f.byID[p.ID] = slot
	setBit(&f.up, slot, !p.Down)
}

// describe takes on what may change while a pod stays the same.
func (f *Fleet) describe(slot, rank uint8, p *Pod) {
	s := &f.slots[slot]
	own := *p
	own.Node = p.node()
	s.pod = &own
	f.view.Rank[slot] = rank
	if p.Limited {
		f.view.SetLimit(slot, int32(p.MaxConns))
	} else {
		f.view.ClearLimit(slot)
	}
	for r := range f.role {
		setBit(&f.role[r], slot, p.Roles.Has(Role(r)))
	}
	setBit(&f.draining, slot, s.drains())
}

// remove takes the pod out of everything that leads to it, but for its leases.
func (f *Fleet) remove(slot uint8) {
	s := &f.slots[slot]
	delete(f.byID, s.pod.ID)
	for r := range f.role {
		f.role[r].Clear(int(slot))
	}
	s.memory++
	s.life = leaving
	if f.view.Inflight(slot) == 0 {
		s.life = wiping
	}
}

// place numbers the nodes and zones of the pods, so that equal names have equal
// numbers. Pods that are leaving count: a lease may still be near to them.
func (f *Fleet) place() {
	nodes, zones := map[string]uint16{"": 0}, map[string]uint16{"": 0}
	number := func(names map[string]uint16, name string) uint16 {
		n, ok := names[name]
		if !ok {
			n = uint16(len(names))
			names[name] = n
		}
		return n
	}
	for i := range f.slots {
		if p := f.slots[i].pod; p != nil {
			f.view.Node[i] = number(nodes, p.Node)
			f.view.Zone[i] = number(zones, p.Zone)
		}
	}
}

// ranked returns the slots of the live pods in the order of the configuration.
func (f *Fleet) ranked() []uint8 {
	order := make([]uint8, len(f.byID))
	for _, slot := range f.byID {
		order[f.view.Rank[slot]] = slot
	}
	return order
}
