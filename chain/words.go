package chain

import (
	"encoding/binary"
	"math/bits"
)

// Eight bytes at a time in one word ("SIMD within a register"): constants with
// the same byte eight times, and functions whose answer is a bit for each byte.
const (
	ones  = 0x0101010101010101
	highs = 0x80 * ones
	lows  = 0x7f * ones
)

// chunkBytes is how many bytes are looked at in one step: one bit each in a
// mask of 64. windowBytes is how many must be there: some steps look beyond the
// chunk, up to as far again.
const (
	chunkBytes  = 64
	windowBytes = 2 * chunkBytes
)

// spaces sets bit 7 of each byte of w that is ASCII white space: 0x09 to 0x0d
// and 0x20. Bytes above 0x7f must not occur; the other bits are noise.
//
// The four constants come from a search through all chains of two xors and two
// additions without a carry from byte to byte. Step by step: xor and addition
// bring 0x20 next to 0x09..0x0d, so that one more pair maps the six values, and
// no others, to 0x80 and above.
func spaces(w uint64) uint64 {
	return ((((w ^ 0x5f*ones) + 0x01*ones) ^ 0x28*ones) + 0x05*ones)
}

// blend copies a chunk of ASCII, with a separator instead of each white space,
// and returns a mask of the white space, bit i for byte i. all must be 0xff; as
// a constant it would be compiled to three instructions instead of one.
func blend(dst *[chunkBytes]byte, src *[windowBytes]byte, all uint64) uint64 {
	le := binary.LittleEndian

	w := le.Uint64(src[56:])
	e := spaces(w) >> 7 & ones
	acc := e
	le.PutUint64(dst[56:], w|e*all)

	w = le.Uint64(src[48:])
	e = spaces(w) >> 7 & ones
	acc = acc*2 + e
	le.PutUint64(dst[48:], w|e*all)

	w = le.Uint64(src[40:])
	e = spaces(w) >> 7 & ones
	acc = acc*2 + e
	le.PutUint64(dst[40:], w|e*all)

	w = le.Uint64(src[32:])
	e = spaces(w) >> 7 & ones
	acc = acc*2 + e
	le.PutUint64(dst[32:], w|e*all)

	w = le.Uint64(src[24:])
	e = spaces(w) >> 7 & ones
	acc = acc*2 + e
	le.PutUint64(dst[24:], w|e*all)

	w = le.Uint64(src[16:])
	e = spaces(w) >> 7 & ones
	acc = acc*2 + e
	le.PutUint64(dst[16:], w|e*all)

	w = le.Uint64(src[8:])
	e = spaces(w) >> 7 & ones
	acc = acc*2 + e
	le.PutUint64(dst[8:], w|e*all)

	w = le.Uint64(src[0:])
	e = spaces(w) >> 7 & ones
	acc = acc*2 + e
	le.PutUint64(dst[0:], w|e*all)

	return transpose(acc)
}

// transpose turns a matrix of 8 by 8 bits: bit j of byte i becomes bit i of
// byte j.
func transpose(x uint64) uint64 {
	t := (x ^ x>>7) & 0x00aa00aa00aa00aa
	x ^= t ^ t<<7
	t = (x ^ x>>14) & 0x0000cccc0000cccc
	x ^= t ^ t<<14
	t = (x ^ x>>28) & 0x00000000f0f0f0f0
	return x ^ t ^ t<<28
}

// ascii tells whether no byte of the chunk is above 0x7f.
func ascii(src *[windowBytes]byte) bool {
	le := binary.LittleEndian
	return (le.Uint64(src[0:])|le.Uint64(src[8:])|le.Uint64(src[16:])|le.Uint64(src[24:])|
		le.Uint64(src[32:])|le.Uint64(src[40:])|le.Uint64(src[48:])|le.Uint64(src[56:]))&highs == 0
}

// nthBit returns the place of the n-th set bit of x, counted from the lowest,
// which is the first; any place if x has fewer. It branches nowhere.
func nthBit(x uint64, n int) int {
	k := uint64(n)
	// Bits in each byte, then in each byte and all below it.
	c := x - x>>1&0x5555555555555555
	c = c&0x3333333333333333 + c>>2&0x3333333333333333
	c = (c + c>>4) & 0x0f0f0f0f0f0f0f0f * ones
	// The first byte that reaches n, and how many bits of it are needed.
	at := bits.TrailingZeros64((c|highs-k*ones)&highs) & 0x38
	k -= c << 8 >> at & 0xff
	return at + int(bitInByte[x>>at&0xff][(k-1)&7])
}

// bitInByte[b][n] is the place of set bit n of b, counted from 0.
var bitInByte = func() (place [256][8]uint8) {
	for b := range place {
		for i, n := 0, 0; i < 8; i++ {
			if b>>i&1 != 0 {
				place[b][n] = uint8(i)
				n++
			}
		}
	}
	return place
}()
