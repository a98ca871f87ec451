package jsonscan

import (
	"encoding/binary"
	"math/bits"
)

// Eight bytes at a time in one word. Adding 0x60 to a byte below 0x80 sets its
// top bit if and only if the byte is 0x20 or more, and cannot carry.
const (
	ones  = 0x0101010101010101
	highs = 0x80 * ones
	pad   = 0x60 * ones
)

// le64 is the first eight bytes of b as a word, the first byte lowest.
func le64(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

// special marks, by the top bit of its byte, the first byte of x that is a
// quote, a backslash, a control character or not ASCII. Bits above the first
// may be wrong; zero means that there is none.
func special(x uint64) uint64 {
	quote, slash := x^('"'*ones), x^('\\'*ones)
	return ((x-0x20*ones)&^x | (quote-ones)&^quote | (slash-ones)&^slash | x) & highs
}

// checkText returns the position of the first byte of s that may not stand in
// a JSON string as it is: a control character or a byte that is not part of
// well-formed UTF-8; -1 if there is none. Quotes and backslashes are the
// caller's.
func checkText(s []byte) int {
	i := 0
	for len(s)-i >= 8 {
		i += asciiBlocks(s[i:])
		// The end, or something else than ASCII: a few words singly.
		for words := 0; words < 8 && len(s)-i >= 8; words++ {
			x := le64(s[i:])
			other := (x+pad)&^x&highs ^ highs
			if other == 0 {
				i += 8
				continue
			}
			// A byte of 0x80 or more may carry into the next one, never into
			// an earlier one: the first mark is exact.
			i += bits.TrailingZeros64(other) >> 3
			n := runesLen(s[i:])
			if n == 0 {
				return i
			}
			i += n
		}
	}
	if k := len(s) - 8; k >= 0 && i > k {
		if x := le64(s[k:]); (x+pad)&^x&highs == highs {
			return -1
		}
	}
	for i < len(s) {
		if c := s[i]; c >= 0x20 && c < 0x80 {
			i++
			continue
		}
		n := runesLen(s[i:])
		if n == 0 {
			return i
		}
		i += n
	}
	return -1
}

// asciiBlocks is the length, a multiple of 64, of the blocks of printable ASCII
// that s begins with.
func asciiBlocks(s []byte) int {
	t := s
	for len(t) >= 64 {
		var (
			a = binary.LittleEndian.Uint64(t)
			b = binary.LittleEndian.Uint64(t[8:])
			c = binary.LittleEndian.Uint64(t[16:])
			d = binary.LittleEndian.Uint64(t[24:])
			e = binary.LittleEndian.Uint64(t[32:])
			f = binary.LittleEndian.Uint64(t[40:])
			g = binary.LittleEndian.Uint64(t[48:])
			h = binary.LittleEndian.Uint64(t[56:])
		)
		all := (a + pad) & (b + pad) & (c + pad) & (d + pad) & (e + pad) & (f + pad) & (g + pad) & (h + pad)
		if all&^(a|b|c|d|e|f|g|h)&highs != highs {
			break
		}
		t = t[64:]
	}
	return len(s) - len(t)
}

// runesLen is the length of the multi-byte UTF-8 sequences that s begins with,
// one or more of them, 0 if it begins with none. s is not empty.
func runesLen(s []byte) int {
	// Two sequences of three bytes at a time, as long as the first byte does
	// not restrict the second: nearly all of Chinese, Japanese and Korean.
	i := 0
	for len(s)-i >= 8 {
		x := le64(s[i:])
		if x&0xC0C0F0C0C0F0 != 0x8080E08080E0 || restricts(byte(x)) || restricts(byte(x>>24)) {
			break
		}
		i += 6
	}
	if i > 0 {
		return i
	}
	return runeLen(s)
}

// restricts reports whether the first byte of a three-byte sequence allows
// only some continuation bytes after it.
func restricts(c byte) bool { return c == 0xE0 || c == 0xED }

// runeLen is the length of the multi-byte UTF-8 sequence that s begins with, 0
// if it is none. s is not empty.
func runeLen(s []byte) int {
	c := s[0]
	switch {
	case c < 0xC2:
		return 0 // continuation byte or an overlong form
	case c < 0xE0:
		if len(s) >= 2 && s[1]&0xC0 == 0x80 {
			return 2
		}
	case c < 0xF0:
		if len(s) >= 3 && s[1]&0xC0 == 0x80 && s[2]&0xC0 == 0x80 &&
			(c != 0xE0 || s[1] >= 0xA0) && (c != 0xED || s[1] < 0xA0) {
			return 3
		}
	case c < 0xF5:
		if len(s) >= 4 && s[1]&0xC0 == 0x80 && s[2]&0xC0 == 0x80 && s[3]&0xC0 == 0x80 &&
			(c != 0xF0 || s[1] >= 0x90) && (c != 0xF4 || s[1] < 0x90) {
			return 4
		}
	}
	return 0
}

// cause is why checkText stopped at this byte.
func cause(c byte) int {
	if c < 0x20 {
		return badControl
	}
	return badUTF8
}
