package selection

import "github.com/calinix/caddy-calinix/index"

// Pick returns the slot of the pod that comes first by the request's order
// among equals, of those that Score returned; -1 if there are none.
func Pick(v *View, top *index.Bitmap, r *Request) int {
	if top.Count() <= 1 {
		return top.Next(0)
	}
	if o := r.order(); o.hashed {
		return firstByHash(v, top, o.key)
	} else {
		return firstByTurn(v, top, o.turn)
	}
}

// firstByHash returns the pod with the highest hash; should two have the same,
// the one of the lower rank.
func firstByHash(v *View, top *index.Bitmap, key uint64) int {
	pick, highest := -1, uint64(0)
	for w, b := range top {
		for ; b != 0; b &= b - 1 {
			p := slotAt(w, b)
			x := mix(key, v.ID[p])
			if x > highest || pick < 0 || x == highest && v.Rank[p] < v.Rank[uint8(pick)] {
				pick, highest = int(p), x
			}
		}
	}
	return pick
}

// firstByTurn returns the pod whose rank is the next after turn, going round.
func firstByTurn(v *View, top *index.Bitmap, turn uint8) int {
	pick, nearest := -1, uint8(0)
	for w, b := range top {
		for ; b != 0; b &= b - 1 {
			p := slotAt(w, b)
			// Unsigned on purpose: a rank up to turn is a whole round away.
			if d := v.Rank[p] - turn - 1; d < nearest || pick < 0 {
				pick, nearest = int(p), d
			}
		}
	}
	return pick
}

// first says whether pod a comes before pod b among equals.
func (o order) first(v *View, a, b uint8) bool {
	if o.hashed {
		if x, y := mix(o.key, v.ID[a]), mix(o.key, v.ID[b]); x != y {
			return x > y
		}
		return v.Rank[a] < v.Rank[b]
	}
	return v.Rank[a]-o.turn-1 < v.Rank[b]-o.turn-1
}
