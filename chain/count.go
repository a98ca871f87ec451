package chain

import (
	"math"
	"math/bits"
)

// Blocks returns the number of blocks of the whole text, hashed or not. It reads
// what the chain has not read yet, at some 20 GB/s where the text is ordinary and
// the processor has AVX2, but hashes nothing of it.
func (c *Chain) Blocks() int {
	if c.total == 0 {
		c.rest = c.scan // which goes on by itself
		c.total = len(c.hashes) + c.rest.blocksLeft()
		c.rest.text, c.rest.src = nil, nil
	}
	return c.total
}

// blocksLeft reads the rest of the text and returns the number of blocks behind
// the last cut. The scanner must not be used any more.
func (s *scanner) blocksLeft() int {
	open := s.block - s.need
	s.need = math.MaxInt
	var copied [2 * chunkBytes]byte // nobody needs it
	for s.pos <= s.limit || s.more() {
		if useSkim && s.tiny == 0 {
			done, why := skim(&copied[0], &s.src[s.pos], 1+max(0, s.limit-s.pos)/chunkBytes, 0, &s.tokens)
			if s.pos += done * chunkBytes; why == ranOut {
				continue
			}
		}
		space, _ := s.look((*[chunkBytes]byte)(copied[:]), (*[windowBytes]byte)(s.src[s.pos:]))
		drop, split := s.divide(space)
		s.need -= bits.OnesCount64(space&^drop | split)
		s.next(space, split)
		s.pos += chunkBytes
	}
	tokens := open + math.MaxInt - s.need
	return (tokens + s.block - 1) / s.block
}
