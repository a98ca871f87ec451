package chain

import "math/bits"

// special deals with the first place of the chunk at which text and stream part
// ways, and drops what was copied from there on. It returns false if there is
// no such place.
func (s *scanner) special(space, double uint64, wide, size int) bool {
	long := s.overlong(space)
	first := min(bits.TrailingZeros64(double), long, wide)
	if first == chunkBytes {
		return false
	}
	ends := space & (1<<first - 1)
	skip, after := 0, uint64(1)
	dst := s.work.stream[s.dst&streamMask:]
	written := first
	switch first {
	case wide:
		// White space of two or three bytes: one separator, if a token ends.
		skip = size
		if s.open(space, first) {
			ends |= 1 << first
			dst[first] = separator
			written++
		}
	case long:
		// The token is as long as it may be, and its run goes on: how far?
		after = 0
		ends |= 1 << first
		dst[first] = separator
		written++
		free := min(first+bits.TrailingZeros64(space>>first), wide, chunkBytes)
		s.clear, s.shut = s.pos+free, free < chunkBytes
	default:
		// White space after white space is left out, to the end of its run.
		skip = bits.TrailingZeros64(^(space >> first))
	}
	s.tokens(ends, 0)
	s.advance(first+skip, written)
	s.after, s.run = after, 0
	return true
}

// open tells whether a token goes on up to byte i of the chunk.
func (s *scanner) open(space uint64, i int) bool {
	if i == 0 {
		return s.after == 0
	}
	return space>>(i-1)&1 == 0
}

// overlong returns the first byte of the chunk that makes its token longer than
// max, or chunkBytes.
func (s *scanner) overlong(space uint64) int {
	if lead := bits.TrailingZeros64(space); s.run+lead > s.max {
		return s.max - s.run
	}
	if s.max >= chunkBytes {
		return chunkBytes
	}
	// Bit i of r: the n bytes up to byte i are free of white space.
	r := ^space
	for n := 1; n <= s.max; {
		k := min(n, s.max+1-n)
		r &= r << k
		n += k
	}
	return bits.TrailingZeros64(r)
}

// pieces goes on within a run that is longer than max, and known to be free of
// white space up to clear: it copies piece after piece without another look.
func (s *scanner) pieces() {
	if !s.shut && s.clear-s.pos < chunkBytes {
		s.explore()
	}
	src := s.src[s.pos:s.clear]
	dst := s.work.stream[s.dst&streamMask:]
	var ends uint64
	n, done := 0, 0 // bytes written and read
	for done < len(src) {
		take := min(s.max-s.run, len(src)-done)
		if n+take >= chunkBytes {
			// The end of this piece would have no bit left in ends.
			if n > 0 {
				break
			}
			take = min(take, chunkBytes)
		}
		if take == 16 {
			*(*[16]byte)(dst[n:]) = [16]byte(src[done:])
		} else {
			copy(dst[n:], src[done:done+take])
		}
		done += take
		n += take
		s.run += take
		if s.run < s.max || done == len(src) || n >= chunkBytes {
			break
		}
		dst[n] = separator
		ends |= 1 << n
		n++
		s.run = 0
	}
	s.tokens(ends, 1)
	s.advance(done, n)
}

// explore looks for white space in the chunk at clear and moves clear to it, or
// to the chunk's end. Near the end of src it leaves things as they are.
func (s *scanner) explore() {
	if s.clear > len(s.src)-windowBytes {
		return
	}
	src := (*[windowBytes]byte)(s.src[s.clear:])
	dst := (*[chunkBytes]byte)(s.work.stream[s.dst&streamMask:]) // overwritten later
	var space uint64
	free := chunkBytes
	if ascii(src) {
		space = blend(dst, src, 0xff)
	} else {
		space, free, _ = blendWide(dst, src, 0xff)
	}
	free = min(free, bits.TrailingZeros64(space))
	s.clear += free
	s.shut = free < chunkBytes
}
