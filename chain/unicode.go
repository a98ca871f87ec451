package chain

import (
	"encoding/binary"
	"math/bits"
)

// wide does what blend does for a chunk with any bytes. lead has the first byte
// of each white space beyond ASCII, into whose place a separator is yet to be
// put; space has all bytes of it.
func (s *scanner) wide(dst *[chunkBytes]byte, src *[windowBytes]byte) (space, lead uint64) {
	space, maybe := blendWide(dst, src, separator)
	space |= s.spill
	s.spill = 0
	for ; maybe != 0; maybe &= maybe - 1 {
		i := bits.TrailingZeros64(maybe)
		if n := wideSpace(src[i], src[i+1], src[i+2]); n > 0 {
			all := uint64(1)<<n - 1
			lead |= 1 << i
			space |= all << i
			s.spill = all >> (chunkBytes - i)
		}
	}
	return space, lead
}

// blendWide does what blend does for a chunk with any bytes. maybe has the
// places where white space beyond ASCII can begin.
func blendWide(dst *[chunkBytes]byte, src *[windowBytes]byte, all uint64) (space, maybe uint64) {
	le := binary.LittleEndian
	for i := chunkBytes - 8; i >= 0; i -= 8 {
		w := le.Uint64(src[i:])
		low, next := w&lows, le.Uint64(src[i+1:])&lows
		e := spaces(low) &^ w >> 7 & ones
		space = space*2 + e
		maybe = maybe*2 + wideLeads(low)&widePairs((low+next)&lows)&w>>7&ones
		le.PutUint64(dst[i:], w|e*all)
	}
	return transpose(space), transpose(maybe)
}

// White space beyond ASCII is, in UTF-8:
//
//	c2 85, c2 a0           U+0085, U+00A0
//	e1 9a 80               U+1680
//	e2 80 80 .. e2 80 8a   U+2000 .. U+200A
//	e2 80 a8, a9, af       U+2028, U+2029, U+202F
//	e2 81 9f               U+205F
//	e3 80 80               U+3000
//
// None of these can be part of another character, so the text around need not
// be decoded, nor be valid. To sort out nearly all other text, CJK among it, the
// first byte must fit, and the sum of the first two. Both tests were found as
// that of spaces was.

// wideLeads sets bit 7 of each byte of low that is 0x42 or 0x61 to 0x63: the
// first bytes above without their bit 7.
func wideLeads(low uint64) uint64 {
	return (((low ^ 0x1c*ones) + 0x03*ones) ^ 0x1e*ones) + 0x01*ones
}

// widePairs sets bit 7 of each byte of sum that is 0x47, 0x62, 0x63 or 0x7b,
// the sums of the first two bytes above without their bit 7, or any other from
// 0x70 to 0x7f.
func widePairs(sum uint64) uint64 {
	return (((sum ^ 0x0c*ones) + 0x12*ones) ^ 0x22*ones) + 0x01*ones
}

// wideSpace returns how many of the three bytes are one character of white
// space beyond ASCII: 2 or 3, or 0.
func wideSpace(a, b, c byte) int {
	const last = 0x07ff | 1<<0x28 | 1<<0x29 | 1<<0x2f // of e2 80
	switch {
	case a == 0xe2 && b == 0x80:
		return int(last>>(c&0x3f)&1) * 3 * int(c>>7&^(c>>6)&1)
	case a == 0xe3 && b == 0x80 && c == 0x80,
		a == 0xe2 && b == 0x81 && c == 0x9f,
		a == 0xe1 && b == 0x9a && c == 0x80:
		return 3
	case a == 0xc2 && (b == 0x85 || b == 0xa0):
		return 2
	}
	return 0
}
