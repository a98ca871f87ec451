package chain

import "math"

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

// A lane is a block being hashed. Where in it the lane is, and the hash up to
// there, are variables of run.
type lane struct {
	block    int // number of the block, or idle
	from, to int // where in the stream it lies
}

// lanes are the blocks being hashed.
type lanes struct {
	lane   [laneCount]lane
	oldest int // the lowest number of a block in the lanes, or idle
}

// run hashes until there are target blocks or the text ends. Each lane goes
// through its block in strides; what is less than a stride is left to turn,
// which gives the lane the next block. So no lane waits for another. An idle
// lane hashes what it finds, which costs nothing as long as another lane has
// work. A fifth lane combines beside the others: half a combination is a stride.
//
// The strides are written out, since the compiler would otherwise load all bytes
// of a stride first, and spill them.
func (c *Chain) run(target int) {
	s, l := c.scan.work, &c.lanes
	for i := range l.lane {
		l.lane[i].block = idle
	}
	h0, p0, e0 := c.turn(0, 0, 0, target)
	h1, p1, e1 := c.turn(1, 0, 0, target)
	h2, p2, e2 := c.turn(2, 0, 0, target)
	h3, p3, e3 := c.turn(3, 0, 0, target)
	hc, half := uint64(fnvOffset), false
	for l.oldest != idle {
		b0 := (*[strideBytes]byte)(s.stream[p0&streamMask:])
		b1 := (*[strideBytes]byte)(s.stream[p1&streamMask:])
		b2 := (*[strideBytes]byte)(s.stream[p2&streamMask:])
		b3 := (*[strideBytes]byte)(s.stream[p3&streamMask:])
		if c.n < l.oldest {
			w := c.last
			if half {
				w = c.hashes[c.n]
			}
			hc = (hc ^ uint64(byte(w))) * fnvPrime
			h0 = (h0 ^ uint64(b0[0])) * fnvPrime
			h1 = (h1 ^ uint64(b1[0])) * fnvPrime
			h2 = (h2 ^ uint64(b2[0])) * fnvPrime
			h3 = (h3 ^ uint64(b3[0])) * fnvPrime
			hc = (hc ^ uint64(byte(w>>8))) * fnvPrime
			h0 = (h0 ^ uint64(b0[1])) * fnvPrime
			h1 = (h1 ^ uint64(b1[1])) * fnvPrime
			h2 = (h2 ^ uint64(b2[1])) * fnvPrime
			h3 = (h3 ^ uint64(b3[1])) * fnvPrime
			hc = (hc ^ uint64(byte(w>>16))) * fnvPrime
			h0 = (h0 ^ uint64(b0[2])) * fnvPrime
			h1 = (h1 ^ uint64(b1[2])) * fnvPrime
			h2 = (h2 ^ uint64(b2[2])) * fnvPrime
			h3 = (h3 ^ uint64(b3[2])) * fnvPrime
			hc = (hc ^ uint64(byte(w>>24))) * fnvPrime
			h0 = (h0 ^ uint64(b0[3])) * fnvPrime
			h1 = (h1 ^ uint64(b1[3])) * fnvPrime
			h2 = (h2 ^ uint64(b2[3])) * fnvPrime
			h3 = (h3 ^ uint64(b3[3])) * fnvPrime
			hc = (hc ^ uint64(byte(w>>32))) * fnvPrime
			h0 = (h0 ^ uint64(b0[4])) * fnvPrime
			h1 = (h1 ^ uint64(b1[4])) * fnvPrime
			h2 = (h2 ^ uint64(b2[4])) * fnvPrime
			h3 = (h3 ^ uint64(b3[4])) * fnvPrime
			hc = (hc ^ uint64(byte(w>>40))) * fnvPrime
			h0 = (h0 ^ uint64(b0[5])) * fnvPrime
			h1 = (h1 ^ uint64(b1[5])) * fnvPrime
			h2 = (h2 ^ uint64(b2[5])) * fnvPrime
			h3 = (h3 ^ uint64(b3[5])) * fnvPrime
			hc = (hc ^ uint64(byte(w>>48))) * fnvPrime
			h0 = (h0 ^ uint64(b0[6])) * fnvPrime
			h1 = (h1 ^ uint64(b1[6])) * fnvPrime
			h2 = (h2 ^ uint64(b2[6])) * fnvPrime
			h3 = (h3 ^ uint64(b3[6])) * fnvPrime
			hc = (hc ^ uint64(byte(w>>56))) * fnvPrime
			h0 = (h0 ^ uint64(b0[7])) * fnvPrime
			h1 = (h1 ^ uint64(b1[7])) * fnvPrime
			h2 = (h2 ^ uint64(b2[7])) * fnvPrime
			h3 = (h3 ^ uint64(b3[7])) * fnvPrime
			if half {
				c.combined(hc)
				hc = fnvOffset
			}
			half = !half
		} else {
			h0 = (h0 ^ uint64(b0[0])) * fnvPrime
			h1 = (h1 ^ uint64(b1[0])) * fnvPrime
			h2 = (h2 ^ uint64(b2[0])) * fnvPrime
			h3 = (h3 ^ uint64(b3[0])) * fnvPrime
			h0 = (h0 ^ uint64(b0[1])) * fnvPrime
			h1 = (h1 ^ uint64(b1[1])) * fnvPrime
			h2 = (h2 ^ uint64(b2[1])) * fnvPrime
			h3 = (h3 ^ uint64(b3[1])) * fnvPrime
			h0 = (h0 ^ uint64(b0[2])) * fnvPrime
			h1 = (h1 ^ uint64(b1[2])) * fnvPrime
			h2 = (h2 ^ uint64(b2[2])) * fnvPrime
			h3 = (h3 ^ uint64(b3[2])) * fnvPrime
			h0 = (h0 ^ uint64(b0[3])) * fnvPrime
			h1 = (h1 ^ uint64(b1[3])) * fnvPrime
			h2 = (h2 ^ uint64(b2[3])) * fnvPrime
			h3 = (h3 ^ uint64(b3[3])) * fnvPrime
			h0 = (h0 ^ uint64(b0[4])) * fnvPrime
			h1 = (h1 ^ uint64(b1[4])) * fnvPrime
			h2 = (h2 ^ uint64(b2[4])) * fnvPrime
			h3 = (h3 ^ uint64(b3[4])) * fnvPrime
			h0 = (h0 ^ uint64(b0[5])) * fnvPrime
			h1 = (h1 ^ uint64(b1[5])) * fnvPrime
			h2 = (h2 ^ uint64(b2[5])) * fnvPrime
			h3 = (h3 ^ uint64(b3[5])) * fnvPrime
			h0 = (h0 ^ uint64(b0[6])) * fnvPrime
			h1 = (h1 ^ uint64(b1[6])) * fnvPrime
			h2 = (h2 ^ uint64(b2[6])) * fnvPrime
			h3 = (h3 ^ uint64(b3[6])) * fnvPrime
			h0 = (h0 ^ uint64(b0[7])) * fnvPrime
			h1 = (h1 ^ uint64(b1[7])) * fnvPrime
			h2 = (h2 ^ uint64(b2[7])) * fnvPrime
			h3 = (h3 ^ uint64(b3[7])) * fnvPrime
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
	for c.n < c.taken {
		c.combined(Combine(c.last, c.hashes[c.n]))
	}
}
