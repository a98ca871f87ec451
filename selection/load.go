package selection

import (
	"github.com/calinix/caddy-calinix/index"
)

// scale is what the load factors of one set of candidates are measured with.
// An idle pod has 100, and more legs never mean a higher factor.
//
// A pod with a maxConns is measured against it: 100·(1 − inflight/maxConns),
// not below 0.
//
// A pod without one is measured against the other candidates, m being their
// mean number of legs: 100·(1 − inflight/(1+m)), below 0 in a pile-up. The mean
// leaves the pod itself out: with it in, one of two pods could hold any number
// of legs and not fall below −100, so that a cached prefix would outweigh every
// pile-up.
//
// In a set of both kinds the two measures would not meet: at ten legs
// everywhere a pod with maxConns 1000 has 99 and one without has 9. There a pod
// without counts as used as the pods with one are together (u) when it has m
// legs, in proportion below that; above it the surplus is measured against the
// others: 100·(1 − u − (inflight−m)/(1+m)). It so takes as many legs as its
// peers do and is given up as quickly in a pile-up.
type scale struct {
	legs  float64 // in flight at all candidates
	each  float64 // 1/(candidates−1); 0 for a lone candidate
	used  float64 // u
	mixed bool    // candidates of both kinds
}

// scaleOf measures the candidates. All sums are of integers, so that the order
// of the slots cannot change a bit of a factor.
func scaleOf(v *View, c *index.Bitmap) scale {
	n, limited := c.Count(), c.And(v.Limited).Count()
	var s scale
	if limited == n {
		return s // no factor depends on the others
	}
	s.legs = float64(v.legs(c))
	if n > 1 {
		s.each = 1 / float64(n-1)
	}
	if limited > 0 {
		s.mixed, s.used = true, used(v, c)
	}
	return s
}

// used returns how used the limited candidates are together, 0 to 1.
func used(v *View, c *index.Bitmap) float64 {
	var legs, room int64
	for w := range c {
		for b := c[w] & v.Limited[w]; b != 0; b &= b - 1 {
			p := slotAt(w, b)
			legs += int64(v.inflight[p])
			room += int64(v.limit[p])
		}
	}
	if legs >= room {
		return 1
	}
	return float64(legs) / float64(room)
}

// factor returns the load factor of the pod in slot.
func (s *scale) factor(v *View, slot uint8) float64 {
	if v.Limited.Has(int(slot)) {
		return limitedLoad(v.inflight[slot], v.limit[slot])
	}
	k := float64(v.inflight[slot])
	if s.mixed {
		return s.mixedLoad(k)
	}
	return s.relativeLoad(k)
}

func limitedLoad(inflight, limit int32) float64 {
	if inflight >= limit {
		return 0
	}
	return 100 * (1 - float64(inflight)/float64(limit))
}

func (s *scale) relativeLoad(k float64) float64 {
	return 100 * (1 - k/(1+float64((s.legs-k)*s.each)))
}

func (s *scale) mixedLoad(k float64) float64 {
	m := float64((s.legs - k) * s.each)
	switch {
	case k == 0:
		return 100
	case k <= m:
		return 100 * (1 - float64(s.used*(k/m)))
	default:
		return 100 * (1 - s.used - (k-m)/(1+m))
	}
}
