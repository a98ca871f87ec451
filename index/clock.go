package index

import "time"

// The index counts time in ticks of 2^24 ns (16.8 ms) since the first time it
// was told. Ticks are kept in 31 bits and compared by their distance, so they
// may wrap. A distance beyond maxAge (208 days) would be taken for a negative
// one; therefore nothing is kept longer than maxTTL (205 days), and Expire has
// three days to see to it.
const (
	tickShift = 24
	tickMask  = 1<<31 - 1
	maxAge    = 1<<30 - 1
	maxTTL    = maxAge - 1<<24
)

// tick converts a time and lets the index's own clock catch up with it.
func (x *Index) tick(now time.Time) uint32 {
	base := x.base.Load()
	if base == nil {
		first := now // declared here, that now itself need not be allocated
		x.base.CompareAndSwap(nil, &first)
		base = x.base.Load()
	}
	t := uint32(now.Sub(*base)>>tickShift) & tickMask
	for {
		latest := x.latest.Load()
		if ahead := (t - latest) & tickMask; ahead == 0 || ahead > maxAge {
			return t
		}
		if x.latest.CompareAndSwap(latest, t) {
			return t
		}
	}
}

// age is how many ticks t lies before now; 0 if it lies after.
func age(now, t uint32) uint32 {
	if d := (now - t) & tickMask; d <= maxAge {
		return d
	}
	return 0
}

// ticksOf converts a time to live, rounding up, so that with the rounding of
// both ends nothing is forgotten early and everything at most two ticks late.
// Zero or less means as long as possible.
func ticksOf(ttl time.Duration) uint32 {
	if t := (int64(ttl) + 1<<tickShift - 1) >> tickShift; t > 0 && t < maxTTL {
		return uint32(t)
	}
	return maxTTL
}
