package selection

import "github.com/calinix/caddy-calinix/index"

// Score rates the candidates by the request's strategy and returns those with
// the highest score: at least one if there are candidates. A score that is no
// number ranks below all others, equal to its like.
//
// Scores are compared exactly. Pods in the same state have the same score to
// the last bit, because it is one function of that state, computed in one order
// from integers. A tolerance would find more equals, but then a could equal b
// and b equal c without a equalling c, and the pick would depend on the order
// of comparing. As it is the candidates stand in one total order (score, then
// the request's order among equals, then rank): as long as the load factors
// stay what they are, a candidate that loses never changes who wins.
func Score(v *View, c *index.Bitmap, r *Request) index.Bitmap {
	switch r.Strategy {
	case LeastLoaded:
		return topLeastLoaded(v, c)
	case RoundRobin:
		return topRoundRobin(c)
	case Random:
		return topRandom(c)
	case ExpectedTTFT:
		return topExpectedTTFT(v, c, r)
	case SessionAffinity, Prefix:
		return topHashed(v, c, r)
	case PowerOfTwo:
		return topPowerOfTwo(v, c, r)
	default:
		return topCacheAware(v, c, r)
	}
}

// Explain returns the factors and the score of one pod, a candidate or not, to
// the bit as Score has it, but that PowerOfTwo scores only the two that it draws.
// It is for showing, and it is the plain twin of Score's loops.
func Explain(v *View, c *index.Bitmap, r *Request, slot uint8) Parts {
	with := *c
	with.Set(int(slot))
	s := scaleOf(v, &with)
	p := s.parts(v, r, slot)
	switch r.Strategy {
	case LeastLoaded, PowerOfTwo:
		p.Score = p.Load
	case SessionAffinity, Prefix:
		p.Score = 0
		if top := topHashed(v, c, r); r.HasHash && top.Has(int(slot)) {
			p.Score = 100
		}
	case RoundRobin, Random:
		p.Score = 0
	case ExpectedTTFT:
		p.Score = -costOf(v, r, slot)
	}
	return p
}

// parts returns the four factors of a pod and their weighed sum.
func (s *scale) parts(v *View, r *Request, slot uint8) Parts {
	depth := 0
	for i := range r.Frames {
		if f := &r.Frames[i]; f.Pods.Has(int(slot)) {
			depth = f.Depth
		}
	}
	return s.rate(v, r, slot, depth)
}

// rate is parts for a pod of which it is known how many leading blocks it holds.
func (s *scale) rate(v *View, r *Request, slot uint8, depth int) Parts {
	p := Parts{Cache: cacheFactor(depth, r.Blocks), Load: s.factor(v, slot), Locality: locality(v, r, slot)}
	if int(slot) == r.Sticky {
		p.Sticky = 100
	}
	p.Score = r.Weights.weigh(&p)
	return p
}
