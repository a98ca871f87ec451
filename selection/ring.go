package selection

import (
	"math"
	"slices"

	"github.com/calinix/caddy-calinix/index"
)

// Ring places pods on the circle of all hashes, each as many virtual nodes of a few
// points. A key belongs to the pod whose point comes next after the key's hash;
// where that pod is no candidate, or has its share of the load already, to the
// one after it, and so on. A pod that comes takes keys over, one that goes hands
// its own on, and no other key moves.
//
// One ring of all pods serves every role and model: who walks it passes over
// those that are no candidates, which is the same as a ring of the candidates
// alone. A Ring does not change once it is made. 8 bytes a point: 100 KiB for 20
// pods of 160 virtual nodes, 1.3 MiB for 256.
type Ring struct {
	points []uint64 // ascending: 56 bits of a hash, then the slot
	on     index.Bitmap
	ids    [Slots]uint64 // of the pods in the slots in on
	nodes  int
}

// Place is a pod to put on a ring.
type Place struct {
	Slot uint8
	ID   uint64 // IDHash of the pod's id
}

// nodePoints is how many points a virtual node has. The share of a pod that has n
// points is off its due by 1/sqrt(n) in the standard deviation: with 160 points
// it is 8 %, and now and then a pod takes 1.25 times its due along when it goes; with
// 640 it is 4 %.
const nodePoints = 4

// NewRing makes the ring of these pods, each with so many virtual nodes. Where a
// pod's points lie depends on its id alone.
func NewRing(pods []Place, nodes int) *Ring {
	perPod := max(nodes, 0) * nodePoints
	r := &Ring{points: make([]uint64, 0, len(pods)*perPod), nodes: nodes}
	for _, p := range pods {
		if perPod == 0 {
			break
		}
		r.on.Set(int(p.Slot))
		r.ids[p.Slot] = p.ID
		for i := range perPod {
			r.points = append(r.points, pointAt(p.ID, i)&^slotBits|uint64(p.Slot))
		}
	}
	slices.Sort(r.points)
	return r
}

// slotBits are those of a point that hold its slot.
const slotBits = Slots - 1

// pointAt is the i-th number of the SplitMix64 sequence that begins at id.
func pointAt(id uint64, i int) uint64 {
	x := id + (uint64(i)+1)*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Pods returns the slots that have points on the ring; none on a nil Ring.
func (r *Ring) Pods() index.Bitmap {
	if r == nil {
		return index.Bitmap{}
	}
	return r.on
}

// Nodes returns the number of virtual nodes of each pod.
func (r *Ring) Nodes() int { return r.nodes }

// Same says whether a ring of these pods would be this one.
func (r *Ring) Same(pods []Place) bool {
	if len(pods) != r.on.Count() {
		return false
	}
	for _, p := range pods {
		if !r.on.Has(int(p.Slot)) || r.ids[p.Slot] != p.ID {
			return false
		}
	}
	return true
}

// after returns the index of the first point not below key, going round.
func (r *Ring) after(key uint64) int {
	i, _ := slices.BinarySearch(r.points, key&^slotBits)
	if i == len(r.points) {
		i = 0
	}
	return i
}

// Home returns the candidate to which the key belongs whatever the load, -1 if
// none is on the ring.
func (r *Ring) Home(c *index.Bitmap, key uint64) int {
	if r == nil || !r.on.Intersects(*c) {
		return None
	}
	for i := r.after(key); ; i++ {
		if i == len(r.points) {
			i = 0
		}
		if slot := int(r.points[i] & slotBits); c.Has(slot) {
			return slot
		}
	}
}

// Bounded returns the candidate to which the key belongs if none may hold more
// than factor times the mean number of legs, rounded up, the new one included:
// the first pod from the key's place on that has room for it. -1 if none is on
// the ring.
//
// There always is one. The candidate with the fewest legs has at most the mean
// of them, and so is below the bound for every factor of at least 1. If factor is
// less, or no number, and nobody has room, the key stays at its home.
func (r *Ring) Bounded(v *View, c *index.Bitmap, key uint64, factor float64) int {
	home := r.Home(c, key)
	if home < 0 {
		return home
	}
	most := bound(v.legs(c), c.Count(), factor)
	left := r.on.And(*c)
	for i := r.after(key); ; i++ {
		if i == len(r.points) {
			i = 0
		}
		slot := int(r.points[i] & slotBits)
		if !left.Has(slot) {
			continue
		}
		if v.inflight[uint8(slot)] < most {
			return slot
		}
		if left.Clear(slot); left.Empty() {
			return home
		}
	}
}

// bound is how many legs a pod may have when there is one more than legs, at so
// many pods.
func bound(legs int64, pods int, factor float64) int32 {
	most := math.Ceil(factor * float64(legs+1) / float64(pods))
	if most >= math.MaxInt32 {
		return math.MaxInt32
	}
	return int32(most) // 0 for what is no number
}

// Moved returns the share of all keys, from 0 to 1, that belong to another pod on
// the ring r than on before. Where one of the two has no pods nothing has moved.
func (r *Ring) Moved(before *Ring) float64 {
	if r == nil || before == nil || len(r.points) == 0 || len(before.points) == 0 {
		return 0
	}
	// Between two neighbouring points of either ring the owner does not change.
	moved, last := uint64(0), uint64(0)
	i, j := 0, 0
	for i < len(before.points) || j < len(r.points) {
		at := uint64(math.MaxUint64)
		if i < len(before.points) {
			at = before.points[i] &^ slotBits
		}
		if j < len(r.points) {
			at = min(at, r.points[j]&^slotBits)
		}
		if before.owner(i) != r.owner(j) {
			moved += at - last
		}
		last = at
		for i < len(before.points) && before.points[i]&^slotBits == at {
			i++
		}
		for j < len(r.points) && r.points[j]&^slotBits == at {
			j++
		}
	}
	if before.owner(0) != r.owner(0) {
		moved += math.MaxUint64 - last
	}
	return float64(moved) / math.MaxUint64
}

// owner is the id of the pod that has the i-th point, going round.
func (r *Ring) owner(i int) uint64 {
	if i == len(r.points) {
		i = 0
	}
	return r.ids[uint8(r.points[i])]
}
