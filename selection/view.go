package selection

import (
	"math/bits"

	"github.com/calinix/caddy-calinix/index"
)

// Slots is the number of places for pods in one balancer; a slot is an index
// into the arrays of a View and a bit of an index.Bitmap.
const Slots = index.Pods

// View holds what scoring reads of the pods, one array a property, indexed by
// slot. Package fleet owns and guards it; the functions of this package only
// read it, and never the entries of slots that are no candidates. 17 KiB.
type View struct {
	// ID is a hash of the pod's id that is the same in every process: IDHash.
	ID [Slots]uint64
	// Rank is the pod's place in the configuration, from 0, no two the same.
	Rank [Slots]uint8
	// Node and Zone say where the pod runs, as numbers that are equal if the
	// names are; 0 if unknown, which is near to nothing.
	Node, Zone [Slots]uint16

	// Limited has the pods with an explicit maxConns: SetLimit.
	Limited index.Bitmap
	// Full has the limited pods that hold as many legs as they may.
	Full index.Bitmap
	// limit is the maxConns of the pods in Limited, else 0.
	limit [Slots]int32
	// inflight is the number of legs that now run at the pod, in all its roles.
	inflight [Slots]int32
	// busy has the pods with legs; total is the number of all legs. They spare
	// Score a pass over the candidates to learn their mean.
	busy  index.Bitmap
	total int64
	// level[k] has the pods with k legs, for 0 < k < levels.
	level [levels]index.Bitmap
	// queues says what the pods have to compute.
	queues queues
}

// Inflight returns the number of legs that now run at the pod.
func (v *View) Inflight(slot uint8) int32 { return v.inflight[slot] }

// Add counts n more legs at the pod, or fewer if n is negative.
func (v *View) Add(slot uint8, n int32) {
	v.leave(slot)
	v.inflight[slot] += n
	v.enter(slot)
	v.total += int64(n)
	if v.inflight[slot] != 0 {
		v.busy.Set(int(slot))
	} else {
		v.busy.Clear(int(slot))
	}
	v.keepFull(slot)
}

// SetLimit gives the pod a maxConns: it may hold that many legs at a time. 0 is
// a pod that takes nothing, and whose load factor is 0.
func (v *View) SetLimit(slot uint8, limit int32) {
	v.Limited.Set(int(slot))
	v.limit[slot] = limit
	v.keepFull(slot)
}

// ClearLimit takes the pod's maxConns away.
func (v *View) ClearLimit(slot uint8) {
	v.Limited.Clear(int(slot))
	v.limit[slot] = 0
	v.keepFull(slot)
}

// keepFull keeps Full in step with the pod's legs and limit.
func (v *View) keepFull(slot uint8) {
	if v.Limited.Has(int(slot)) && v.inflight[slot] >= v.limit[slot] {
		v.Full.Set(int(slot))
	} else {
		v.Full.Clear(int(slot))
	}
}

// legs returns the number of legs at all candidates together.
func (v *View) legs(c *index.Bitmap) int64 {
	n := v.total
	for w, b := range v.busy.AndNot(*c) {
		for ; b != 0; b &= b - 1 {
			n -= int64(v.inflight[slotAt(w, b)])
		}
	}
	return n
}

// slotAt returns the slot of the lowest bit in word w of a bitmap. Loops over
// members read
//
//	for w, b := range bitmap {
//		for ; b != 0; b &= b - 1 {
//			p := slotAt(w, b)
//
// A uint8 cannot miss an array of Slots, which spares the bounds checks.
func slotAt(w int, b uint64) uint8 { return uint8(w<<6 + bits.TrailingZeros64(b)) }
