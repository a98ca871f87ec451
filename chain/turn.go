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
func (c *Chain) turn(i int, h uint64, p, target int) (hash uint64, from, end int) {
	s, ls := &c.scan, &c.lanes
	l := &ls.lane[i&(laneCount-1)]
	if l.block != idle {
		c.hashes[l.block] = s.work.stream.finish(h, p, l.to)
		l.block = idle
		ls.busy--
	}
	for c.taken < target && (s.first < s.cuts || c.read(target)) {
		to := s.work.cuts[s.first&(maxCuts-1)].to
		h, p = c.carry, s.start
		s.first, s.start, c.carry = s.first+1, to, fnvOffset
		if end = to - (to-p)&(strideBytes-1); end > p {
			l.block, l.from, l.to = c.taken, p, to
			c.taken++
			ls.busy++
			ls.see()
			return h, p, end
		}
		c.hashes[c.taken] = s.work.stream.finish(h, p, to)
		c.taken++
	}
	ls.see()
	return h, p, p + idleBytes
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
		if !s.full() || l.busy > 0 {
			return false
		}
		// The open block alone fills the stream.
		for ; s.start < s.dst; s.start++ {
			c.carry = step(c.carry, s.work.stream[s.start&streamMask])
		}
	}
}

// finish takes the bytes from p to end into a hash, less than a stride. What is
// missing in the stride is hashed as zeros, which are then taken out again: a
// zero only multiplies by the prime, and the prime has an inverse. So there is
// no loop whose end a branch predictor would have to guess.
func (s *stream) finish(h uint64, p, end int) uint64 {
	n := uint(end-p) % strideBytes
	w := binary.LittleEndian.Uint64(s[p&streamMask:]) & (1<<(8*n) - 1)
	h = step(h, byte(w))
	h = step(h, byte(w>>8))
	h = step(h, byte(w>>16))
	h = step(h, byte(w>>24))
	h = step(h, byte(w>>32))
	h = step(h, byte(w>>40))
	h = step(h, byte(w>>48))
	h = step(h, byte(w>>56))
	return h * withoutZeros[n]
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
