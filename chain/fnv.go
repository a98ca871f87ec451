package chain

import "encoding/binary"

// The parameters of 64-bit FNV-1a.
const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

// separator follows each token in what a block's hash covers. No UTF-8 text
// holds it, so "ab c" and "a bc" differ.
const separator = 0xff

// FNV1a returns the 64-bit FNV-1a hash of b. It costs four cycles a byte, one
// xor and one multiplication that wait for each other.
func FNV1a(b []byte) uint64 {
	return appendFNV(fnvOffset, b)
}

// Combine returns the cumulative hash of a block: FNV-1a over the eight bytes
// of the cumulative hash before it and the eight bytes of the block's own hash,
// both in little-endian order. The hash before the first block is the chain's
// seed.
func Combine(prev, block uint64) uint64 {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:], prev)
	binary.LittleEndian.PutUint64(b[8:], block)
	return appendFNV(fnvOffset, b[:])
}

// Seed returns the seed of a namespace, that is of everything besides the text
// which must be equal for two prompts to share a prefix: the model, an adapter,
// a cache salt. Each part is hashed after its length, so ("ab", "c") and
// ("a", "bc") differ. Parts that are all empty, or none, give 0, the seed of
// plain text.
func Seed(parts ...[]byte) uint64 {
	h, empty := uint64(fnvOffset), true
	for _, p := range parts {
		var n [8]byte
		binary.LittleEndian.PutUint64(n[:], uint64(len(p)))
		h = appendFNV(appendFNV(h, n[:]), p)
		empty = empty && len(p) == 0
	}
	if empty {
		return 0
	}
	return h
}

// EstimateTokens returns how many tokens an engine makes of so many bytes of
// text, by the rule of thumb of four bytes a token. Text that is not empty has
// at least one.
func EstimateTokens(bytes int) int {
	if bytes <= 0 {
		return 0
	}
	return max(1, bytes/4)
}

// appendFNV goes on with an FNV-1a hash over b.
func appendFNV(h uint64, b []byte) uint64 {
	for _, c := range b {
		h = step(h, c)
	}
	return h
}

// step takes one byte into an FNV-1a hash.
func step(h uint64, b byte) uint64 {
	return (h ^ uint64(b)) * fnvPrime
}
