// Package fleet owns the pods: who they are, whether they may be used, what
// runs on them, and which session they served. It is stage 5 and 7 of a
// request's way.
//
//	Apply   the wanted list of pods comes in, and what changed goes out
//	Begin   candidates are queried, scored and picked; in the same step the load
//	        is reserved and the chain of the prompt is registered at the pod
//	Lease   what Begin hands out: Start, FirstByte, and exactly one End, which
//	        gives the load back and takes the registration back if it was in vain
//
// A pod lives in one of 256 slots; a Ref (slot and generation) names it without
// keeping it alive. A removed pod's slot is given to nobody before the last
// lease on it has ended and the index has forgotten it.
//
// One mutex guards it all. It is held for a pick and for bookkeeping, never
// while the index is asked, told or wiped. The package reads no clock and starts
// no goroutine.
package fleet
