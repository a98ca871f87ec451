package replay

import "math/bits"

// ownership is what a reference model knows of the pods' caches: a word of pods
// for each block, and perhaps a bound on what it remembers of each pod.
type ownership struct {
	owners  []uint64
	mirrors []*cache // nil: it never forgets by itself
	depth   []int    // of the last match, by pod
}

// newOwnership makes one that remembers so many blocks of each pod, in the order
// of their use; 0: all, for ever.
func newOwnership(s *sim, capacity int) *ownership {
	o := &ownership{owners: make([]uint64, s.Trace.Blocks), depth: make([]int, s.Pods)}
	if capacity <= 0 || capacity >= unlimited {
		return o
	}
	for p := range s.Pods {
		m := newCache(s.Trace.Blocks, capacity)
		m.inserted = func(b int32) { o.owners[b] |= 1 << p }
		m.evicted = func(b int32) { o.owners[b] &^= 1 << p }
		o.mirrors = append(o.mirrors, m)
	}
	return o
}

// learn notes that the pod holds the blocks.
func (o *ownership) learn(p int, held []int32) {
	for i := len(held) - 1; i >= 0; i-- {
		if o.mirrors != nil {
			o.mirrors[p].touch(held[i])
		} else {
			o.owners[held[i]] |= 1 << p
		}
	}
}

// hear takes a change of a pod's cache over.
func (o *ownership) hear(c change) {
	if c.held {
		o.owners[c.block] |= 1 << c.pod
	} else {
		o.owners[c.block] &^= 1 << c.pod
	}
}

// match fills depth with how many leading blocks each pod holds.
func (o *ownership) match(want []int32) {
	clear(o.depth)
	alive := uint64(1)<<len(o.depth) - 1 // a shift by 64 gives 0, less 1: all
	for i, b := range want {
		still := alive & o.owners[b]
		o.stopped(alive&^still, i)
		if alive = still; alive == 0 {
			return
		}
	}
	o.stopped(alive, len(want))
}

func (o *ownership) stopped(pods uint64, depth int) {
	for ; pods != 0; pods &= pods - 1 {
		o.depth[bits.TrailingZeros64(pods)] = depth
	}
}

// lowest returns the pod with the lowest cost, one of several drawn.
func lowest(r *random, pods int, cost func(p int) float64) int {
	best, low, equal := 0, 0.0, 0
	for p := range pods {
		switch c := cost(p); {
		case p == 0 || c < low:
			best, low, equal = p, c, 1
		case c == low:
			if equal++; r.below(equal) == 0 {
				best = p
			}
		}
	}
	return best
}

// counts is what every reference model counts: the requests under way at each
// pod. It is the part of a router that models share.
type counts struct {
	s        *sim
	inflight []int
}

func countsOf(s *sim) counts { return counts{s, make([]int, s.Pods)} }

func (c *counts) send(p int) int {
	c.inflight[p]++
	return p
}

func (c *counts) first(*job, float64)    {}
func (c *counts) done(j *job, _ float64) { c.inflight[j.pod]-- }
func (c *counts) warm(int, []int32)      {}
