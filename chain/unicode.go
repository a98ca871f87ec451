package chain

import (
	"encoding/binary"
	"math/bits"
)

// blendWide does what blend does for a chunk with any bytes. It also tells
// where in the chunk the first white space beyond ASCII begins and how long it
// is; at is chunkBytes if there is none. The mask knows ASCII only.
func blendWide(dst *[chunkBytes]byte, src *[windowBytes]byte, all uint64) (space uint64, at, size int) {
	le := binary.LittleEndian
	var acc, leads uint64
	for i := chunkBytes - 8; i >= 0; i -= 8 {
		w := le.Uint64(src[i:])
		low := w & lows
		e := spaces(low) &^ w >> 7 & ones
		acc = acc*2 + e
		leads |= spaceLeads(low) & w
		le.PutUint64(dst[i:], w|e*all)
	}
	at = chunkBytes
	if leads&highs != 0 {
		at, size = firstWideSpace(src)
	}
	return transpose(acc), at, size
}

// firstWideSpace returns place and size of the first white space beyond ASCII
// that begins in the chunk, or chunkBytes and 0.
func firstWideSpace(src *[windowBytes]byte) (at, size int) {
	le := binary.LittleEndian
	for i := 0; i < chunkBytes; i += 8 {
		// For each byte, the byte after it is in the same place of w1.
		w, w1 := le.Uint64(src[i:]), le.Uint64(src[i+1:])
		hits := pairs(w ^ 0xe2*ones | (w1^0x80*ones)&(0xfe*ones)) // U+2000 to U+207F
		hits |= pairs(w ^ 0xe3*ones | w1 ^ 0x80*ones)             // U+3000 to U+303F
		hits |= pairs(w ^ 0xe1*ones | w1 ^ 0x9a*ones)             // U+1680 to U+16BF
		hits |= pairs(w ^ 0xc2*ones | w1&(0xda*ones) ^ 0x80*ones) // U+0085, U+00A0 and six more
		for ; hits != 0; hits &= hits - 1 {
			at := i + bits.TrailingZeros64(hits)>>3
			if n := wideSpace(src[at], src[at+1], src[at+2]); n > 0 {
				return at, n
			}
		}
	}
	return chunkBytes, 0
}

// pairs sets bit 7 of each byte of x that is zero, and of no other.
func pairs(x uint64) uint64 {
	return ^(x&lows + lows | x) & highs
}

// wideSpace returns how many of the three bytes are one character of white
// space beyond ASCII, by unicode.IsSpace: 2 or 3, or 0. No such sequence can be
// part of another character, so that the text around it need not be decoded,
// nor be valid.
func wideSpace(a, b, c byte) int {
	switch a {
	case 0xc2:
		if b == 0x85 || b == 0xa0 { // U+0085, U+00A0
			return 2
		}
	case 0xe1:
		if b == 0x9a && c == 0x80 { // U+1680
			return 3
		}
	case 0xe2:
		switch {
		case b == 0x80 && (c >= 0x80 && c <= 0x8a || c == 0xa8 || c == 0xa9 || c == 0xaf):
			return 3 // U+2000 to U+200A, U+2028, U+2029, U+202F
		case b == 0x81 && c == 0x9f: // U+205F
			return 3
		}
	case 0xe3:
		if b == 0x80 && c == 0x80 { // U+3000
			return 3
		}
	}
	return 0
}
