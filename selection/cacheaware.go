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
	rest := *c
	if r.Sticky >= 0 && rest.Has(r.Sticky) {
		rest.Clear(r.Sticky)
		s.one(uint8(r.Sticky), Explain(v, c, r, uint8(r.Sticky)).Score)
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

	best float64      // highest score so far
	top  index.Bitmap // pods that have it

	// terms holds load factors times their weight by the number of legs, of
	// pods without a maxConns ([0]) and of those with one that is limit[1]
	// ([1]). known has the entries that are filled. Most pods hold few legs and
	// have the same maxConns or none, so that few divisions are done.
	terms [2][64]float64
	known [2]uint64
	limit [2]int32
}

// alike rates pods whose cache term is the same and that have no session.
// Products with a factor of 0 are taken too: they are not 0 where a weight is
// no number.
func (s *scan) alike(pods *index.Bitmap, cache float64) {
	v, wt := s.v, &s.r.Weights
	near := s.r.Node|s.r.Zone != 0
	sticky, place := float64(0*wt.Sticky), float64(0*wt.Locality)
	best := s.best
	for w, b := range pods {
		if b == 0 {
			continue
		}
		limited := v.Limited[w]
		var equal uint64
		for ; b != 0; b &= b - 1 {
			p := slotAt(w, b)
			bit := b & -b
			legs := v.inflight[p]
			var load float64
			kind := limited >> (p & 63) & 1
			if uint32(legs) < 64 && s.known[kind]>>(legs&63)&1 != 0 && v.limit[p] == s.limit[kind] {
				load = s.terms[kind][legs&63]
			} else {
				load = s.term(p, kind)
			}
			if near {
				place = float64(locality(v, s.r, p) * wt.Locality)
			}
			switch x := cache + load + sticky + place; {
			case x > best:
				best, s.top, equal = x, index.Bitmap{}, bit
			case x == best:
				equal |= bit
			}
		}
		s.top[w] |= equal
	}
	s.best = best
}

// term returns the pod's load factor times its weight.
func (s *scan) term(slot uint8, kind uint64) float64 {
	x := float64(s.scale.factor(s.v, slot) * s.r.Weights.Load)
	if s.known[kind] == 0 {
		s.limit[kind] = s.v.limit[slot]
	}
	if legs := s.v.inflight[slot]; uint32(legs) < 64 && s.v.limit[slot] == s.limit[kind] {
		s.terms[kind][legs] = x
		s.known[kind] |= 1 << legs
	}
	return x
}

// one rates a single pod.
func (s *scan) one(slot uint8, x float64) {
	if x >= s.best {
		s.best, s.top = x, index.Of(int(slot))
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
