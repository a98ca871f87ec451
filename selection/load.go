package selection

import "github.com/calinix/caddy-calinix/index"

// scale is what the load factors of one set of candidates are measured with.
// An idle pod has 100, and each further leg lowers the factor.
//
// A pod with a maxConns is measured against it: 100·(1 − inflight/maxConns),
// not below 0.
//
// A pod without one is measured against the other candidates, m being their
// mean number of legs: 100·(1 − (inflight/(1+m))²), below 0 in a pile-up. The
// mean leaves the pod itself out: with it in, one of two pods could hold any
// number of legs for less than a cached prefix weighs. The square forgives a
// leg more or less, for which no cache is worth leaving, and not a pile-up: in
// proportion alone, of four pods with one long system prompt the one that does
// not hold it stays idle beside three with five legs each.
//
// In a set of both kinds the two measures would not meet: at ten legs
// everywhere a pod with maxConns 1000 has 99 and one without has 17. There a
// pod without counts up to m legs as one with the mean maxConns of those that
// have one, if that is above 1+m, and beyond m as it loses among its like. It so
// takes as many legs as its peers do and is given up as quickly in a pile-up.
type scale struct {
	legs float64 // in flight at all candidates
	each float64 // 1/(candidates−1); 0 for a lone candidate
	room float64 // mean maxConns of the candidates that have one; 0: none has
}

// scaleOf measures the candidates. All sums are of integers, so that the order
// of the slots cannot change a bit of a factor.
func scaleOf(v *View, c *index.Bitmap) scale {
	n, limited := c.Count(), c.And(v.Limited)
	switch some := limited.Count(); {
	case some == n:
		return scale{} // no factor depends on the others
	case some == 0:
		return scale{legs: float64(v.legs(c)), each: share(n - 1)}
	default:
		var room int64
		for w, b := range limited {
			for ; b != 0; b &= b - 1 {
				room += int64(v.limit[slotAt(w, b)])
			}
		}
		return scale{float64(v.legs(c)), share(n - 1), float64(room) / float64(some)}
	}
}

func share(others int) float64 {
	if others == 0 {
		return 0
	}
	return 1 / float64(others)
}

// factor returns the load factor of the pod in slot. Conversions keep products
// and sums apart; see weigh.
func (s *scale) factor(v *View, slot uint8) float64 {
	inflight, limit := v.inflight[slot], v.limit[slot]
	k := float64(inflight)
	if v.Limited.Has(int(slot)) {
		if inflight >= limit {
			return 0
		}
		return 100 * (1 - k/float64(limit))
	}
	m := float64((s.legs - k) * s.each)
	x := k / (1 + m)
	if s.room == 0 {
		return 100 * (1 - float64(x*x))
	}
	room, mean := max(s.room, 1+m), m/(1+m)
	if k <= m {
		return 100 * (1 - k/room)
	}
	return 100 * (1 - m/room - float64(x*x) + float64(mean*mean))
}
