package dispatch

import (
	"bytes"
	"strings"
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
func spellsReserved(text []byte) bool {
	// The text is looked at in pieces, each with the end of the one before,
	// lest a body of the largest size be copied.
	var buf [4096]byte
	n := 0
	for i := 0; i < len(text); {
		for n < len(buf) && i < len(text) {
			c, size := text[i], 1
			if c == '\\' {
				c, size = plainByte(text[i:])
			}
			i += size
			if c != 0 {
				buf[n] = lowered[c]
				n++
			}
		}
		if holdsReserved(buf[:n]) {
			return true
		}
		n = copy(buf[:], buf[max(0, n-maxReserved):n])
	}
	return false
}

// holdsReserved says whether a reserved name stands in text, which is in lower
// case. All have an underscore, and most texts few: a search for each name would
// begin anew at every beginning of one.
func holdsReserved(text []byte) bool {
	for at := 0; ; at++ {
		next := bytes.IndexByte(text[at:], '_')
		if next < 0 {
			return false
		}
		at += next
		if at == 0 || !before[text[at-1]] {
			continue
		}
		for k, name := range reserved {
			if from := at - underscore[k]; from >= 0 && len(text)-from >= len(name) && string(text[from:from+len(name)]) == name {
				return true
			}
		}
	}
}

// underscore is where the first underscore of each reserved name is, before which
// bytes stand before one.
var underscore, before = func() (at [len(reserved)]int, before [256]bool) {
	for k, name := range reserved {
		at[k] = strings.IndexByte(name, '_')
		before[name[at[k]-1]] = true
	}
	return at, before
}()

// lowered maps each byte to its lower case, if it is an ASCII letter.
var lowered = func() (to [256]byte) {
	for c := range to {
		to[c] = lower(byte(c))
	}
	return to
}()

// maxReserved is at least as long as the longest reserved name.
const maxReserved = 32

// plainByte decodes the \u escape at the start of b, if it is one and of ASCII;
// else it returns the backslash. size is how many bytes of b it took. NUL bytes
// within an escape are skipped.
func plainByte(b []byte) (c byte, size int) {
	if e, n := asciiEscape(b); n > 0 {
		return e, n
	}
	return b[0], 1
}

// asciiEscape decodes \u00XX at the start of b; n is 0 if there is none.
func asciiEscape(b []byte) (c byte, n int) {
	const form = `\u00`
	for k := 0; n < len(b); n++ {
		digit := b[n]
		switch {
		case digit == 0:
			continue
		case k < len(form):
			if digit != form[k] {
				return 0, 0
			}
		default:
			v := hexValue(digit)
			if c = c<<4 | v&15; v > 15 || c > 0x7f {
				return 0, 0
			}
			if k == len(form)+1 {
				return c, n + 1
			}
		}
		k++
	}
	return 0, 0
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
