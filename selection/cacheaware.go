package selection

import (
	"math"

	"github.com/calinix/caddy-calinix/index"
)

// topCacheAware returns the candidates with the highest four-factor score, as
// weigh gives it. Candidates that hold the same part of the prompt are rated
// together: they differ in load alone, but for the one that served the session.
func topCacheAware(v *View, c *index.Bitmap, r *Request) index.Bitmap {
	s := scan{v: v, r: r, scale: scaleOf(v, c), best: math.Inf(-1)}
	if p := c.And(v.Limited); !p.Empty() {
		s.limit[1] = v.limit[p.Next(0)]
	}
	s.inOrder = s.falls(c)
	rest := *c
	if r.Sticky >= 0 && rest.Has(r.Sticky) {
		rest.Clear(r.Sticky)
		s.one(uint8(r.Sticky))
	}
	for i := range r.Frames {
		f := &r.Frames[i]
		holders := rest.And(f.Pods)
		rest = rest.AndNot(f.Pods)
		s.alike(&holders, float64(cacheFactor(f.Depth, r.Blocks)*r.Weights.Cache))
	}
	s.alike(&rest, float64(0*r.Weights.Cache))
	if s.top.Empty() { // no score is a number
		return *c
	}
	return s.top
}

// scan is the state of one pass over the candidates.
type scan struct {
	v     *View
	r     *Request
	scale scale
	// inOrder says that a pod with more legs never has the higher score.
	inOrder bool

	best float64      // highest score so far
	top  index.Bitmap // pods that have it

	// terms holds load factors times their weight, for pods without a maxConns
	// ([0]) and for those whose maxConns is limit[1] ([1]), by the low bits of
	// their number of legs; of holds that number plus 1, or 0. Pods hold similar
	// numbers of legs and have the same maxConns, so that few are computed.
	terms [2][terms]float64
	of    [2][terms]uint32
	limit [2]int32
}

const terms = 32

// alike rates pods whose cache term is the same and that have no session.
func (s *scan) alike(pods *index.Bitmap, cache float64) {
	if s.inOrder {
		s.climb(pods, cache)
	} else {
		s.each(pods, cache)
	}
}

// each rates one pod after another. It is the plain twin of climb.
func (s *scan) each(pods *index.Bitmap, cache float64) {
	for w, b := range pods {
		if limited := b & s.v.Limited[w]; limited != 0 {
			s.word(w, limited, 1, cache)
			b &^= limited
		}
		if b != 0 {
			s.word(w, b, 0, cache)
		}
	}
}

// word is alike for pods in one word of the bitmap, all with a maxConns (kind
// 1) or all without. Products with a factor of 0 are taken too: they are not 0
// where a weight is no number.
func (s *scan) word(w int, b, kind uint64, cache float64) {
	v, wt := s.v, &s.r.Weights
	near := s.r.Node|s.r.Zone != 0
	sticky, place := float64(0*wt.Sticky), float64(0*wt.Locality)
	best, equal := s.best, uint64(0)
	known, of, limit := &s.terms[kind&1], &s.of[kind&1], s.limit[kind&1]
	for ; b != 0; b &= b - 1 {
		p := slotAt(w, b)
		legs := uint32(v.inflight[p])
		load := known[legs%terms]
		if of[legs%terms] != legs+1 || v.limit[p] != limit {
			load = s.term(p, kind)
		}
		if near {
			place = float64(locality(v, s.r, p) * wt.Locality)
		}
		switch x := cache + load + sticky + place; {
		case x > best:
			best, s.top, equal = x, index.Bitmap{}, b&-b
		case x == best:
			equal |= b & -b
		}
	}
	s.best = best
	s.top[w] |= equal
}

// term returns the pod's load factor times its weight.
func (s *scan) term(slot uint8, kind uint64) float64 {
	x := float64(s.scale.factor(s.v, slot) * s.r.Weights.Load)
	if s.v.limit[slot] == s.limit[kind] {
		legs := uint32(s.v.inflight[slot])
		s.terms[kind][legs%terms], s.of[kind][legs%terms] = x, legs+1
	}
	return x
}

// one rates a single pod, the first one.
func (s *scan) one(slot uint8) {
	if p := s.scale.parts(s.v, s.r, slot); p.Score >= s.best {
		s.best, s.top = p.Score, index.Of(int(slot))
	}
}

// cacheFactor returns 100 times the share of the prompt that is cached.
func cacheFactor(depth, blocks int) float64 {
	if blocks == 0 {
		return 0
	}
	return 100 * float64(depth) / float64(blocks)
}

// locality returns 100 for a pod on the node that the request should be near
// to, 50 for one in its zone, else 0.
func locality(v *View, r *Request, slot uint8) float64 {
	switch {
	case r.Node != 0 && v.Node[slot] == r.Node:
		return 100
	case r.Zone != 0 && v.Zone[slot] == r.Zone:
		return 50
	default:
		return 0
	}
}
