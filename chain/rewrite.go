package chain

import "math/bits"

// runs16 returns the bytes that end a run of 16 bytes without white space in
// this chunk.
func runs16(space uint64) uint64 {
	r := ^space
	r &= r << 1
	r &= r << 2
	r &= r << 4
	r &= r << 8
	return r
}

// splits returns the bytes of the chunk before which a token ends because it is
// as long as it may be. run is the length of the open token.
func (s *scanner) splits(space, runs uint64, run int) uint64 {
	lead := uint64(1)<<bits.TrailingZeros64(space) - 1
	split := s.every << (s.max - run) & lead
	if s.max >= chunkBytes {
		return split
	}
	// Bit i of long: byte i, and the max bytes before it, are of one token that
	// begins in the chunk.
	long, n := runs, 16
	if s.max < n {
		long, n = ^space, 1
	}
	for n <= s.max {
		k := min(n, s.max+1-n)
		long &= long << k
		n += k
	}
	long &^= lead
	for b := long &^ (long << 1); b != 0; b = b << s.max & long {
		split |= b
	}
	return split
}

// rewrite writes the rest of a chunk again, from the first byte that is to drop
// or before which a separator is missing. dst is where in the stream the chunk
// is, with room for streamSlack bytes. Since bytes move both ways, they are taken
// from a copy of the chunk.
func (s *scanner) rewrite(dst []byte, drop, split uint64) {
	rest := drop&^(drop<<1) | split
	to := bits.TrailingZeros64(rest)
	src := &s.work.spare
	d := (*[chunkBytes]byte)(dst)
	for i := 0; i < chunkBytes; i += 16 {
		*(*[16]byte)(src[i:]) = *(*[16]byte)(d[i:])
	}
	for rest != 0 {
		// Here something is missing, or a run of bytes is to drop. Then come
		// bytes to keep, up to the next such place.
		from := bits.TrailingZeros64(rest)
		dst[to] = separator
		to += int(split >> from & 1)
		from += bits.TrailingZeros64(^(drop >> from))
		rest &= rest - 1
		keep := bits.TrailingZeros64(rest) - from
		d, k := (*[chunkBytes]byte)(dst[to:]), (*[chunkBytes]byte)(src[from:])
		*(*[16]byte)(d[0:]) = *(*[16]byte)(k[0:])
		*(*[16]byte)(d[16:]) = *(*[16]byte)(k[16:])
		*(*[16]byte)(d[32:]) = *(*[16]byte)(k[32:])
		*(*[16]byte)(d[48:]) = *(*[16]byte)(k[48:])
		to += keep
	}
}

// spread writes a chunk without white space again, with the separators that are
// missing. It takes 16 bytes at a time, which is the common limit.
func spread(dst []byte, src *[windowBytes]byte, split uint64) {
	for shift := 0; split != 0; {
		from := bits.TrailingZeros64(split)
		split &= split - 1
		dst[from+shift] = separator
		shift++
		d, s := (*[chunkBytes]byte)(dst[from+shift:]), (*[chunkBytes]byte)(src[from:])
		for i := 0; i < bits.TrailingZeros64(split)-from; i += 16 {
			*(*[16]byte)(d[i:]) = *(*[16]byte)(s[i:])
		}
	}
}

// moved returns where byte i of a chunk is after rewrite.
func moved(i int, drop, split uint64) int {
	below := uint64(1)<<i - 1
	return i - bits.OnesCount64(drop&below) + bits.OnesCount64(split&below)
}
