package selection

import "github.com/calinix/caddy-calinix/index"

// Fallback says why a request was not decided by the strategy that was asked for:
// a set of reasons, one for each step down. Zero: it was.
type Fallback uint8

const (
	// NoKey: the request has nothing that could be hashed. LeastLoaded decides.
	NoKey Fallback = 1 << iota
	// RingEmpty: no candidate is on the ring. LeastLoaded decides.
	RingEmpty
	// LoadUnknown: LeastLoaded was to decide, but no leg is in flight at any of
	// the candidates, as after a start: nothing is known that could tell them
	// apart. RoundRobin decides.
	LoadUnknown
)

// Fall makes the request's strategy the one that can decide it among the
// candidates, and says why if that is another one than was asked for. Only the
// strategies that hash a key ever need another. A step down takes equals in turn:
// what has no key is to spread, even if its prompt is the same.
func Fall(v *View, c *index.Bitmap, r *Request) (why Fallback) {
	if !r.Strategy.Hashes() {
		return 0
	}
	switch {
	case !r.HasHash:
		why = NoKey
	case !r.Ring.Pods().Intersects(*c):
		why = RingEmpty
	default:
		return 0
	}
	r.Strategy, r.HasKey, r.TieBreak = LeastLoaded, false, ByPrompt
	if v.legs(c) == 0 {
		r.Strategy = RoundRobin
		why |= LoadUnknown
	}
	return why
}
