package jsonscan

import (
	"bytes"
	"math/bits"
	"unicode/utf8"
)

// shortWords is how many words of a string are looked at for its end before
// the searches for long strings start: names and most values end here.
const shortWords = 2

// String finds the end of the string whose first byte after the opening quote
// is b[i]: the position of the closing quote. escaped says whether the string
// holds escapes, that is whether b[i:end] must be decoded to be read.
func String(b []byte, i int) (end int, escaped bool) {
	for j, n := i, 0; n < shortWords && len(b)-j >= 8; n++ {
		if m := special(le64(b[j:])); m != 0 {
			if j += bits.TrailingZeros64(m) >> 3; b[j] == '"' {
				return j, false
			}
			break
		}
		j += 8
	}
	_, end, escaped = rest(b, i, nil, false)
	return end, escaped
}

// AppendString is String that also decodes: a string with escapes is appended
// to dst, decoded; one without is not (it can be read in place).
func AppendString(dst, b []byte, i int) (out []byte, end int, escaped bool) {
	for j, n := i, 0; n < shortWords && len(b)-j >= 8; n++ {
		if m := special(le64(b[j:])); m != 0 {
			if j += bits.TrailingZeros64(m) >> 3; b[j] == '"' {
				return dst, j, false
			}
			break
		}
		j += 8
	}
	return rest(b, i, dst, true)
}

// Unescape appends the decoded form of s, the inside of a string that String
// has accepted.
func Unescape(dst, s []byte) []byte {
	for {
		e := bytes.IndexByte(s, '\\')
		if e < 0 {
			return append(dst, s...)
		}
		dst = append(dst, s[:e]...)
		r, n := escape(s[e:])
		dst = utf8.AppendRune(dst, r)
		s = s[e+n:]
	}
}

// rest is String and AppendString where the first look has not sufficed.
func rest(b []byte, i int, dst []byte, keep bool) (out []byte, end int, escaped bool) {
	if useWide {
		return longWide(b, i, dst, keep)
	}
	return long(b, i, dst, keep)
}

// long is String and AppendString for strings that may be long: the end is
// searched, then a backslash before it, both at the speed of memory. What
// stands between, escapes included, is checked in one go: no escape begins or
// ends inside a character.
func long(b []byte, i int, dst []byte, keep bool) (out []byte, end int, escaped bool) {
	end = indexFrom(b, i, '"')
	if e := bytes.IndexByte(b[i:end], '\\'); e >= 0 {
		escaped = true
		if keep {
			dst = append(dst, b[i:i+e]...)
		}
		dst, end = tail(dst, b, i+e, end, keep)
	} else if end == len(b) {
		end = fault(end, unfinished)
	}
	stop := end
	if end < 0 {
		stop = ^end >> causeBits
	}
	if bad := checkText(b[i:stop]); bad >= 0 {
		end = fault(i+bad, cause(b[i+bad])) // stands before the other fault, if any
	}
	return dst, end, escaped
}

// tail goes through a string from the backslash b[i] on and decodes it to dst
// (keep); q is the position of the next quote. A loop over words that searches
// and copies at once was slower: searches with the widest registers win even
// over the 30 bytes between escapes.
func tail(dst, b []byte, i, q int, keep bool) ([]byte, int) {
	for {
		if c := simpleAt(b, i); c != 0 {
			i += 2
			if keep {
				dst = append(dst, c)
			}
		} else {
			r, n := escape(b[i:])
			if n == 0 {
				return dst, fault(i, badEscape)
			}
			i += n
			if keep {
				dst = utf8.AppendRune(dst, r)
			}
		}
		if i > q { // it was an escaped quote
			q = indexFrom(b, i, '"')
		}
		e := bytes.IndexByte(b[i:q], '\\')
		if e < 0 {
			if keep {
				dst = append(dst, b[i:q]...)
			}
			if q == len(b) {
				return dst, fault(q, unfinished)
			}
			return dst, q
		}
		if keep {
			dst = append(dst, b[i:i+e]...)
		}
		i += e
	}
}

// indexFrom is the position of the first c in b at or after i, len(b) if none.
func indexFrom(b []byte, i int, c byte) int {
	if n := bytes.IndexByte(b[i:], c); n >= 0 {
		return i + n
	}
	return len(b)
}
