package chain

import (
	"encoding/binary"
	"slices"
)

// combined sets the cumulative hash of block n.
func (c *Chain) combined(h uint64) {
	c.hashes[c.n] = h
	c.last = h
	c.n++
}

// turn finishes the block of lane i, which is at p with hash h and less than a
// stride before the block's end. Then it gives the lane the next block, and
// returns hash and place to begin with, and where the last whole stride ends.
//
// What is missing in the last stride is hashed as zeros, which are then taken
// out again: a zero only multiplies by the prime, and the prime has an inverse.
// So there is no loop whose end a branch predictor would have to guess.
func (c *Chain) turn(i int, h uint64, p, target int) (hash uint64, from, end int) {
	s, work, l := &c.scan, c.scan.work, &c.lanes.lane[i&(laneCount-1)]
	for {
		if l.block != idle {
			n := uint(l.to-p) & (strideBytes - 1)
			w := binary.LittleEndian.Uint64(work.stream[p&streamMask:]) & (1<<(8*n) - 1)
			h = (h ^ uint64(byte(w))) * fnvPrime
			h = (h ^ uint64(byte(w>>8))) * fnvPrime
			h = (h ^ uint64(byte(w>>16))) * fnvPrime
			h = (h ^ uint64(byte(w>>24))) * fnvPrime
			h = (h ^ uint64(byte(w>>32))) * fnvPrime
			h = (h ^ uint64(byte(w>>40))) * fnvPrime
			h = (h ^ uint64(byte(w>>48))) * fnvPrime
			h = (h ^ uint64(byte(w>>56))) * fnvPrime
			c.hashes[l.block] = h * withoutZeros[n]
			l.block = idle
		}
		if c.taken >= target || s.first >= s.cuts && !c.read(target) {
			c.lanes.see()
			return h, p, p + idleBytes
		}
		to := work.cuts[s.first&(maxCuts-1)].to
		s.first++
		h, p, c.carry, s.start = c.carry, s.start, fnvOffset, to
		l.block, l.from, l.to = c.taken, p, to
		c.taken++
		if end = to - (to-p)&(strideBytes-1); end > p {
			c.lanes.see()
			return h, p, end
		}
	}
}

// see finds the oldest block in the lanes.
func (l *lanes) see() {
	l.oldest = min(l.lane[0].block, l.lane[1].block, l.lane[2].block, l.lane[3].block)
}

// read cuts the next blocks from the text. It returns false if there are none,
// or no room for one before another lane has finished.
func (c *Chain) read(target int) bool {
	s, l := &c.scan, &c.lanes
	for {
		s.keep = s.start
		for i := range l.lane {
			if l.lane[i].block != idle {
				s.keep = min(s.keep, l.lane[i].from)
			}
		}
		if s.fill(target - c.taken) {
			c.hashes = slices.Grow(c.hashes, s.cuts)[:c.taken+s.cuts]
			for _, cut := range s.work.cuts[:s.cuts] {
				c.ends = append(c.ends, cut.end)
			}
			return true
		}
		if l.see(); !s.full() || l.oldest != idle {
			return false
		}
		// The open block alone fills the stream.
		for ; s.start < s.dst; s.start++ {
			c.carry = step(c.carry, s.work.stream[s.start&streamMask])
		}
	}
}

// withoutZeros[n] takes the zero bytes out of a hash that fill up n bytes to a
// stride: the prime's inverse to the power of their number.
var withoutZeros = func() (inverse [strideBytes]uint64) {
	// Newton's iteration doubles the number of right bits.
	one := uint64(1)
	for range 6 {
		one *= 2 - fnvPrime*one
	}
	power := uint64(1)
	for n := strideBytes - 1; n >= 0; n-- {
		power *= one
		inverse[n] = power
	}
	return inverse
}()
