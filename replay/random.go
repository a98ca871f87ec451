package replay

// random is SplitMix64, so that a seed means the same in every release of Go.
type random struct{ state uint64 }

func (r *random) next() uint64 {
	r.state += 0x9e3779b97f4a7c15
	z := r.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// share returns a number from 0 to just below 1.
func (r *random) share() float64 { return float64(r.next()>>11) / (1 << 53) }

// below returns a number from 0 to n-1.
func (r *random) below(n int) int { return int(r.next() % uint64(n)) }

// mix is a fixed function whose values look drawn.
func mix(x uint64) uint64 {
	r := random{x}
	return r.next()
}
