package selection

import "github.com/calinix/caddy-calinix/index"

// topPowerOfTwo draws two of the candidates and returns the one with the higher
// load factor, both if they are equal. Any two are as likely to be drawn as any
// other two: they are the first two in the order that the fresh random number
// makes, so that the slots in which pods live do not matter.
func topPowerOfTwo(v *View, c *index.Bitmap, r *Request) index.Bitmap {
	a := firstByHash(v, c, r.Draw)
	if a < 0 {
		return *c
	}
	rest := *c
	rest.Clear(a)
	b := firstByHash(v, &rest, r.Draw)
	if b < 0 {
		return index.Of(a)
	}
	s := scaleOf(v, c)
	switch x, y := s.factor(v, uint8(a)), s.factor(v, uint8(b)); {
	case x > y:
		return index.Of(a)
	case x < y:
		return index.Of(b)
	default:
		return index.Of(a, b)
	}
}
