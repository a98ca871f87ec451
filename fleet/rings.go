package fleet

import (
	"slices"

	"github.com/calinix/caddy-calinix/selection"
)

// ring is a ring of all live pods, with what has become of it.
type ring struct {
	nodes   int             // virtual nodes of each pod
	now     *selection.Ring // never nil
	changes int
	moved   float64
}

// RingStatus is what is known of a ring.
type RingStatus struct {
	// Nodes is the number of virtual nodes of each pod.
	Nodes int
	// Changes is how often the pods on the ring have changed, the first pods left
	// out, and Moved the sum of the shares of all keys that moved with it.
	Changes int
	Moved   float64
}

// SetRings makes the fleet keep a ring of its pods for each of these numbers of
// virtual nodes, for the strategies that hash, and no other. Legs that ask for a
// number without a ring find an empty one.
func (f *Fleet) SetRings(nodes ...int) {
	f.applying.Lock()
	defer f.applying.Unlock()
	f.mu.Lock()
	f.rings = slices.DeleteFunc(f.rings, func(r ring) bool { return !slices.Contains(nodes, r.nodes) })
	for _, n := range nodes {
		if f.ring(n) == nil {
			f.rings = append(f.rings, ring{nodes: n, now: selection.NewRing(nil, n)})
		}
	}
	f.mu.Unlock()
	f.rebuild()
}

// rebuild makes the rings those of the live pods. It sorts up to some hundred
// thousand points, and so runs without mu; until it is done legs use the rings as
// they were: pods that are gone are no candidates, those that are new get their
// keys a moment later. Guarded by applying.
func (f *Fleet) rebuild() {
	f.mu.Lock()
	pods := make([]selection.Place, 0, len(f.byID))
	for _, slot := range f.byID {
		pods = append(pods, selection.Place{Slot: slot, ID: f.view.ID[slot]})
	}
	rings := slices.Clone(f.rings)
	f.mu.Unlock()
	for i := range rings {
		r := &rings[i]
		if r.now.Same(pods) {
			continue
		}
		before := r.now
		r.now = selection.NewRing(pods, r.nodes)
		if none := before.Pods(); !none.Empty() {
			r.changes++
			r.moved += r.now.Moved(before)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rings = rings
}

// ring returns the ring with so many virtual nodes, nil if none is kept. Guarded
// by mu.
func (f *Fleet) ring(nodes int) *selection.Ring {
	for i := range f.rings {
		if f.rings[i].nodes == nodes {
			return f.rings[i].now
		}
	}
	return nil
}

// Rings returns what is known of the rings, in the order of SetRings.
func (f *Fleet) Rings() []RingStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]RingStatus, len(f.rings))
	for i, r := range f.rings {
		all[i] = RingStatus{r.nodes, r.changes, r.moved}
	}
	return all
}
