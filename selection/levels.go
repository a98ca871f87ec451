package selection

import (
	"math"

	"github.com/calinix/caddy-calinix/index"
)

// levels is up to which number of legs a View keeps a bitmap of the pods that hold
// so many.
const levels = 32

func (v *View) leave(slot uint8) {
	if k := v.inflight[slot]; uint32(k) < levels {
		v.level[k].Clear(int(slot))
	}
}

func (v *View) enter(slot uint8) {
	if k := v.inflight[slot]; uint32(k) < levels {
		v.level[k].Set(int(slot))
	}
}

// holding returns those of the pods that hold k legs, k < levels.
func (v *View) holding(k int, pods *index.Bitmap) index.Bitmap {
	if k == 0 {
		return pods.AndNot(v.busy)
	}
	return pods.And(v.level[k])
}

// falls reports whether the candidates' scores fall, or stay, with each further
// leg of the pod, all else being equal: they have no maxConns, or all the same,
// and the load counts for nothing or something, not for less. Each operation of
// a factor rounds, but none can turn a greater value into a lesser one.
func (s *scan) falls(c *index.Bitmap) bool {
	w := s.r.Weights.Load
	if !(w >= 0 && w <= math.MaxFloat64/1e6) || s.r.Node|s.r.Zone != 0 {
		return false
	}
	limited := c.And(s.v.Limited)
	if limited.Empty() {
		return true
	}
	for w, b := range limited {
		for ; b != 0; b &= b - 1 {
			if s.v.limit[slotAt(w, b)] != s.limit[1] {
				return false
			}
		}
	}
	return limited == *c
}

// climb is alike where scores fall: it goes from idle pods to busier ones, a level
// at a time, and ends where they are behind the best. Of hundreds of pods it so
// looks at a few.
func (s *scan) climb(pods *index.Bitmap, cache float64) {
	wt := &s.r.Weights
	sticky, place := float64(0*wt.Sticky), float64(0*wt.Locality)
	rest := *pods
	for k := 0; k < levels && !rest.Empty(); k++ {
		here := s.v.holding(k, &rest)
		if here.Empty() {
			continue
		}
		load := float64(s.scale.factor(s.v, uint8(here.Next(0))) * wt.Load)
		switch x := cache + load + sticky + place; {
		case x > s.best:
			s.best, s.top = x, here
		case x == s.best:
			s.top = s.top.Or(here)
		default:
			return
		}
		rest = rest.AndNot(here)
	}
	s.each(&rest, cache)
}
