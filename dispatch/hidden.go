package dispatch

import (
	"bytes"
)

// namesReserved says whether a body that is not a JSON object by the letter may be
// read as one with a reserved member by a reader that takes more than JSON.
// It errs on the side of yes: the name may stand in any place of the text. A
// body that does not begin like an object, or like a comment before one
// (multipart, plain text), has none.
//
// What it sees through: UTF-16 and UTF-32 (NUL bytes are skipped), a byte
// order mark, \u escapes, and case.
func namesReserved(body []byte) bool {
	start := bytes.TrimLeft(body, "\x00\xef\xbb\xbf\xfe\xff \t\r\n\v\f")
	if len(start) == 0 || start[0] != '{' && start[0] != '/' && start[0] != '#' {
		return false
	}
	return spellsReserved(start)
}

// spellsReserved says whether a text holds the name of a reserved member,
// anywhere and in any spelling that namesReserved sees through.
func spellsReserved(start []byte) bool {
	// The text is looked at in pieces, each with the end of the one before,
	// lest a body of the largest size be copied.
	var buf [4096]byte
	n := 0
	for i := 0; i < len(start); {
		for n < len(buf) && i < len(start) {
			c, size := plainByte(start[i:])
			i += size
			if c != 0 {
				buf[n] = c
				n++
			}
		}
		for _, r := range reserved {
			if bytes.Contains(buf[:n], []byte(r)) {
				return true
			}
		}
		n = copy(buf[:], buf[max(0, n-maxReserved):n])
	}
	return false
}

// maxReserved is at least as long as the longest reserved name.
const maxReserved = 32

// plainByte returns the first byte of b in lower case, its \u escape decoded
// if that is ASCII, 0 if it is nothing that a name could hold; and how many
// bytes of b it took. NUL bytes within an escape are skipped too.
func plainByte(b []byte) (c byte, size int) {
	c = b[0]
	if c == '\\' {
		if e, n := asciiEscape(b); n > 0 {
			return lower(e), n
		}
	}
	return lower(c), 1
}

// asciiEscape decodes \u00XX at the start of b; n is 0 if there is none.
func asciiEscape(b []byte) (c byte, n int) {
	var digits [6]byte
	k := 0
	for ; n < len(b) && k < len(digits); n++ {
		if b[n] != 0 {
			digits[k] = b[n]
			k++
		}
	}
	if k < len(digits) || digits[1] != 'u' || digits[2] != '0' || digits[3] != '0' {
		return 0, 0
	}
	high, low := hexValue(digits[4]), hexValue(digits[5])
	if high > 7 || low > 15 {
		return 0, 0
	}
	return high<<4 | low, n
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// hexValue returns 255 for what is no hexadecimal digit.
func hexValue(c byte) byte {
	switch c = lower(c); {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	default:
		return 255
	}
}
