package chain

import (
	"encoding/binary"
	"math/bits"
)

// suspects returns 0 if no token longer than max lies within the chunk. It
// looks for runs of 16 bytes, as the common limit is 16; splits looks closer.
func (s *scanner) suspects(space uint64) uint64 {
	r := ^space
	r &= r << 1
	r &= r << 2
	r &= r << 4
	r &= r << 8
	return r&s.inner | s.tiny
}

// splits returns the bytes of the chunk before which a token ends because it is
// as long as it may be. run is the length of the open token.
func (s *scanner) splits(space uint64, run int) uint64 {
	var split uint64
	lead := bits.TrailingZeros64(space)
	for i := s.max - run; i < lead; i += s.max {
		split |= 1 << i
	}
	if s.max >= chunkBytes {
		return split
	}
	// Bit i of long: the max bytes before byte i, and it, are of one token that
	// begins in the chunk behind white space.
	long := ^space &^ (1<<lead - 1)
	for n := 1; n <= s.max; {
		k := min(n, s.max+1-n)
		long &= long << k
		n += k
	}
	for b := long &^ (long << 1); b != 0; b = b << s.max & long {
		split |= b
	}
	return split
}

// keepBytes is how many bytes rewrite copies at a time. Most lines of code are
// shorter, so that the branch that asks for more is rarely guessed wrong.
const keepBytes = 40

// rewrite writes the rest of a chunk again, from the first byte that is to drop
// or before which a separator is missing. dst is where in the stream the chunk
// is, with room for streamSlack bytes.
func rewrite(dst []byte, src *[windowBytes]byte, drop, split uint64) {
	rest := drop&^(drop<<1) | split
	to := bits.TrailingZeros64(rest)
	for rest != 0 {
		// Here something is missing, or a run of bytes is to drop. Then come
		// bytes to keep, up to the next such place.
		from := bits.TrailingZeros64(rest)
		dst[to] = separator
		to += int(split >> from & 1)
		from += bits.TrailingZeros64(^(drop >> from))
		rest &= rest - 1
		keep := bits.TrailingZeros64(rest) - from
		d, s := (*[keepBytes]byte)(dst[to:]), (*[keepBytes]byte)(src[from:])
		blendWord(d[0:], s[0:])
		blendWord(d[8:], s[8:])
		if keep > 16 {
			blendWord(d[16:], s[16:])
			blendWord(d[24:], s[24:])
			blendWord(d[32:], s[32:])
			for i := keepBytes; i < keep; i += 8 {
				blendWord(dst[to+i:], src[from+i:])
			}
		}
		to += keep
	}
}

// blendWord copies eight bytes, with a separator instead of each ASCII white
// space.
func blendWord(dst, src []byte) {
	w := binary.LittleEndian.Uint64(src)
	e := spaces(w&lows) &^ w >> 7 & ones
	binary.LittleEndian.PutUint64(dst, w|e*separator)
}

// moved returns where byte i of a chunk is after rewrite.
func moved(i int, drop, split uint64) int {
	below := uint64(1)<<i - 1
	return i - bits.OnesCount64(drop&below) + bits.OnesCount64(split&below)
}
