package chain

import (
	"encoding/binary"
	"math"
)

const (
	// laneCount is how many blocks are hashed side by side. A step of FNV-1a
	// waits four cycles for its multiplication, and a core starts one in each
	// cycle, so four independent hashes take the time of one.
	laneCount = 4
	// strideBytes is how many bytes the lanes take at a time.
	strideBytes = 8
	// idle is the number of no block.
	idle = math.MaxInt
	// idleBytes is how far an idle lane goes before it looks for a block again.
	idleBytes = 64 * strideBytes
)

// lanes are the blocks being hashed. Where a lane is in its block, and its hash,
// are variables of run.
type lanes struct {
	block  [laneCount]int // number of the block, or idle
	from   [laneCount]int // where in the stream it begins
	to     [laneCount]int // and ends
	busy   int            // lanes that have a block
	oldest int            // the lowest number of a block in the lanes, or idle
}

// run hashes until there are target blocks or the text ends. Each lane goes
// through its block in strides; what is less than a stride is left to turn,
// which gives the lane the next block. An idle lane hashes what it finds, which
// costs nothing as long as another lane has work. A fifth lane combines beside
// the others: half a combination is a stride.
func (c *Chain) run(target int) {
	s, l := c.scan.work, &c.lanes
	l.busy, l.oldest = 0, idle
	for i := range laneCount {
		l.block[i] = idle
	}
	h0, p0, e0 := c.turn(0, 0, 0, target)
	h1, p1, e1 := c.turn(1, 0, 0, target)
	h2, p2, e2 := c.turn(2, 0, 0, target)
	h3, p3, e3 := c.turn(3, 0, 0, target)
	hc, half := uint64(fnvOffset), false
	for l.busy > 0 {
		b0 := (*[strideBytes]byte)(s.stream[p0&streamMask:])
		b1 := (*[strideBytes]byte)(s.stream[p1&streamMask:])
		b2 := (*[strideBytes]byte)(s.stream[p2&streamMask:])
		b3 := (*[strideBytes]byte)(s.stream[p3&streamMask:])
		if c.n < l.oldest {
			w := c.last
			if half {
				w = c.hashes[c.n]
			}
			h0, h1, h2, h3, hc = (h0^uint64(b0[0]))*fnvPrime, (h1^uint64(b1[0]))*fnvPrime, (h2^uint64(b2[0]))*fnvPrime, (h3^uint64(b3[0]))*fnvPrime, (hc^uint64(byte(w>>0)))*fnvPrime
			h0, h1, h2, h3, hc = (h0^uint64(b0[1]))*fnvPrime, (h1^uint64(b1[1]))*fnvPrime, (h2^uint64(b2[1]))*fnvPrime, (h3^uint64(b3[1]))*fnvPrime, (hc^uint64(byte(w>>8)))*fnvPrime
			h0, h1, h2, h3, hc = (h0^uint64(b0[2]))*fnvPrime, (h1^uint64(b1[2]))*fnvPrime, (h2^uint64(b2[2]))*fnvPrime, (h3^uint64(b3[2]))*fnvPrime, (hc^uint64(byte(w>>16)))*fnvPrime
			h0, h1, h2, h3, hc = (h0^uint64(b0[3]))*fnvPrime, (h1^uint64(b1[3]))*fnvPrime, (h2^uint64(b2[3]))*fnvPrime, (h3^uint64(b3[3]))*fnvPrime, (hc^uint64(byte(w>>24)))*fnvPrime
			h0, h1, h2, h3, hc = (h0^uint64(b0[4]))*fnvPrime, (h1^uint64(b1[4]))*fnvPrime, (h2^uint64(b2[4]))*fnvPrime, (h3^uint64(b3[4]))*fnvPrime, (hc^uint64(byte(w>>32)))*fnvPrime
			h0, h1, h2, h3, hc = (h0^uint64(b0[5]))*fnvPrime, (h1^uint64(b1[5]))*fnvPrime, (h2^uint64(b2[5]))*fnvPrime, (h3^uint64(b3[5]))*fnvPrime, (hc^uint64(byte(w>>40)))*fnvPrime
			h0, h1, h2, h3, hc = (h0^uint64(b0[6]))*fnvPrime, (h1^uint64(b1[6]))*fnvPrime, (h2^uint64(b2[6]))*fnvPrime, (h3^uint64(b3[6]))*fnvPrime, (hc^uint64(byte(w>>48)))*fnvPrime
			h0, h1, h2, h3, hc = (h0^uint64(b0[7]))*fnvPrime, (h1^uint64(b1[7]))*fnvPrime, (h2^uint64(b2[7]))*fnvPrime, (h3^uint64(b3[7]))*fnvPrime, (hc^uint64(byte(w>>56)))*fnvPrime
			if half {
				c.combined(hc)
				hc = fnvOffset
			}
			half = !half
		} else {
			h0, h1, h2, h3 = (h0^uint64(b0[0]))*fnvPrime, (h1^uint64(b1[0]))*fnvPrime, (h2^uint64(b2[0]))*fnvPrime, (h3^uint64(b3[0]))*fnvPrime
			h0, h1, h2, h3 = (h0^uint64(b0[1]))*fnvPrime, (h1^uint64(b1[1]))*fnvPrime, (h2^uint64(b2[1]))*fnvPrime, (h3^uint64(b3[1]))*fnvPrime
			h0, h1, h2, h3 = (h0^uint64(b0[2]))*fnvPrime, (h1^uint64(b1[2]))*fnvPrime, (h2^uint64(b2[2]))*fnvPrime, (h3^uint64(b3[2]))*fnvPrime
			h0, h1, h2, h3 = (h0^uint64(b0[3]))*fnvPrime, (h1^uint64(b1[3]))*fnvPrime, (h2^uint64(b2[3]))*fnvPrime, (h3^uint64(b3[3]))*fnvPrime
			h0, h1, h2, h3 = (h0^uint64(b0[4]))*fnvPrime, (h1^uint64(b1[4]))*fnvPrime, (h2^uint64(b2[4]))*fnvPrime, (h3^uint64(b3[4]))*fnvPrime
			h0, h1, h2, h3 = (h0^uint64(b0[5]))*fnvPrime, (h1^uint64(b1[5]))*fnvPrime, (h2^uint64(b2[5]))*fnvPrime, (h3^uint64(b3[5]))*fnvPrime
			h0, h1, h2, h3 = (h0^uint64(b0[6]))*fnvPrime, (h1^uint64(b1[6]))*fnvPrime, (h2^uint64(b2[6]))*fnvPrime, (h3^uint64(b3[6]))*fnvPrime
			h0, h1, h2, h3 = (h0^uint64(b0[7]))*fnvPrime, (h1^uint64(b1[7]))*fnvPrime, (h2^uint64(b2[7]))*fnvPrime, (h3^uint64(b3[7]))*fnvPrime
		}
		p0, p1, p2, p3 = p0+strideBytes, p1+strideBytes, p2+strideBytes, p3+strideBytes
		if p0 == e0 {
			h0, p0, e0 = c.turn(0, h0, p0, target)
		}
		if p1 == e1 {
			h1, p1, e1 = c.turn(1, h1, p1, target)
		}
		if p2 == e2 {
			h2, p2, e2 = c.turn(2, h2, p2, target)
		}
		if p3 == e3 {
			h3, p3, e3 = c.turn(3, h3, p3, target)
		}
	}
	for c.n < len(c.hashes) {
		c.combined(Combine(c.last, c.hashes[c.n]))
	}
}

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
	l, s := &c.lanes, &c.scan
	for {
		if l.block[i] != idle {
			c.hashes[l.block[i]] = s.work.stream.finish(h, p, l.to[i]-p)
			l.block[i] = idle
			l.busy--
		}
		if len(c.hashes) >= target || s.first == s.cuts && !c.read(target) {
			l.oldest = min(l.block[0], l.block[1], l.block[2], l.block[3])
			return h, p, p + idleBytes
		}
		cut := &s.work.cuts[s.first&(maxCuts-1)]
		s.first++
		l.block[i], l.from[i], l.to[i] = len(c.hashes), s.start, cut.to
		l.busy++
		c.hashes = append(c.hashes, 0)
		c.ends = append(c.ends, cut.end)
		h, p, c.carry, s.start = c.carry, s.start, fnvOffset, cut.to
		if end = p + (cut.to-p)&^(strideBytes-1); end > p {
			l.oldest = min(l.block[0], l.block[1], l.block[2], l.block[3])
			return h, p, end
		}
	}
}

// read cuts the next blocks from the text. It returns false if there are none,
// or no room for one before another lane has finished.
func (c *Chain) read(target int) bool {
	s, l := &c.scan, &c.lanes
	for {
		s.keep = s.start
		for i := range laneCount {
			if l.block[i] != idle {
				s.keep = min(s.keep, l.from[i])
			}
		}
		if s.fill(target - len(c.hashes)) {
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

// finish takes n more bytes of the stream into a hash, less than a stride. What
// is missing in the stride is hashed as zeros, which are then taken out again: a
// zero only multiplies by the prime, and the prime has an inverse. So there is
// no loop whose end a branch predictor would have to guess.
func (s *stream) finish(h uint64, p, n int) uint64 {
	w := binary.LittleEndian.Uint64(s[p&streamMask:]) & (1<<(8*n) - 1)
	h = step(h, byte(w))
	h = step(h, byte(w>>8))
	h = step(h, byte(w>>16))
	h = step(h, byte(w>>24))
	h = step(h, byte(w>>32))
	h = step(h, byte(w>>40))
	h = step(h, byte(w>>48))
	h = step(h, byte(w>>56))
	return h * withoutZeros[strideBytes-n]
}

// withoutZeros[n] takes n zero bytes out of a hash: the prime's inverse to the
// power of n.
var withoutZeros = func() (inverse [strideBytes + 1]uint64) {
	// Newton's iteration doubles the number of right bits.
	one := uint64(1)
	for range 6 {
		one *= 2 - fnvPrime*one
	}
	inverse[0] = 1
	for n := range strideBytes {
		inverse[n+1] = inverse[n] * one
	}
	return inverse
}()
