package jsonscan

import (
	"slices"
	"unicode/utf8"
)

// wideStep is the least length that the wide functions take.
const wideStep = 32

// longWide is long for processors that compare 32 bytes at once: one pass finds
// what is special, the end among it.
func longWide(b []byte, i int, dst []byte, keep bool) (out []byte, end int, escaped bool) {
	for from := i; ; {
		i += index(b[i:])
		if i == len(b) {
			return dst, fault(i, unfinished), escaped
		}
		var n int
		switch c := b[i]; {
		case c == '"':
			return dst, i, escaped
		case c != '\\':
			if n = otherLen(b[i:]); n == 0 {
				return dst, fault(i, cause(c)), escaped
			}
		case keep:
			dst, end = decodeWide(append(dst, b[from:i]...), b, i)
			return dst, end, true
		default:
			escaped = true
			if _, n = escape(b[i:]); n == 0 {
				return dst, fault(i, badEscape), true
			}
		}
		i += n
	}
}

// decodeWide appends a string from b[i] on, which is special, to dst. Between
// two escapes bytes are searched and copied in one loop, whose end is the only
// branch that cannot be foreseen.
func decodeWide(dst, b []byte, i int) ([]byte, int) {
	for {
		switch c := b[i]; {
		case c == '"':
			return dst, i
		case c != '\\':
			n := otherLen(b[i:])
			if n == 0 {
				return dst, fault(i, cause(c))
			}
			dst = append(dst, b[i:i+n]...)
			i += n
		default:
			if c := simpleAt(b, i); c != 0 {
				dst = append(dst, c)
				i += 2
				break
			}
			r, n := escape(b[i:])
			if n == 0 {
				return dst, fault(i, badEscape)
			}
			dst = utf8.AppendRune(dst, r)
			i += n
		}
		if dst, i = copyText(dst, b, i); i == len(b) {
			return dst, fault(i, unfinished)
		}
	}
}

// otherLen is the length of the multi-byte sequences that s begins with; 0 if
// it begins with none, as with a control character.
func otherLen(s []byte) int {
	if s[0] < 0x80 {
		return 0
	}
	return runesLen(s)
}

// index is the position of the first special byte of s, its length if it has
// none.
func index(s []byte) int {
	if len(s) >= wideStep {
		return indexWide(s)
	}
	for i, c := range s {
		if c < 0x20 || c >= 0x80 || c == '"' || c == '\\' {
			return i
		}
	}
	return len(s)
}

// copyText appends b from i on to dst, up to the next special byte, and returns
// its position.
func copyText(dst, b []byte, i int) ([]byte, int) {
	for {
		n := len(dst)
		if cap(dst)-n < 8*wideStep {
			dst = slices.Grow(dst, 8*wideStep+n/2)
		}
		s := b[i:min(len(b), i+cap(dst)-n)]
		var k int
		if len(s) >= wideStep {
			k = copyWide(&dst[:n+1][n], s)
		} else {
			k = index(s)
			copy(dst[n:n+k], s)
		}
		dst = dst[:n+k]
		if i += k; k < len(s) || i == len(b) {
			return dst, i
		}
	}
}
