package selection

import "github.com/calinix/caddy-calinix/index"

// topHashed returns the candidate to which the request's hash belongs on the
// ring, within the bound on load: the strategies SessionAffinity and Prefix,
// which differ in what is hashed. Without a hash or a ring all candidates are
// equal; Fall sees to it that this does not happen.
func topHashed(v *View, c *index.Bitmap, r *Request) index.Bitmap {
	if !r.HasHash {
		return *c
	}
	slot := r.Ring.Bounded(v, c, r.Hash, r.LoadFactor)
	if slot < 0 {
		return *c
	}
	return index.Of(slot)
}
