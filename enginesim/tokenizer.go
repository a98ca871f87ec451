package enginesim

import (
	"unicode"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"
)

// tokenizer cuts text into tokens: runs between Unicode white space, each run of
// more than maxBytes bytes cut into pieces of maxBytes (0 = never cut).
type tokenizer struct{ maxBytes int }

// each calls f with every token of text, in order.
func (t tokenizer) each(text string, f func(token string)) {
	for start, i := 0, 0; i <= len(text); {
		for i < len(text) && ' ' < text[i] && text[i] < utf8.RuneSelf {
			i++ // no need to look closer
		}
		width, space := 1, true
		if i < len(text) {
			width, space = spaceAt(text, i)
		}
		if !space {
			i += width
			continue
		}
		for t.maxBytes > 0 && i-start > t.maxBytes {
			f(text[start : start+t.maxBytes])
			start += t.maxBytes
		}
		if i > start {
			f(text[start:i])
		}
		i += width
		start = i
	}
}

// spaceAt reports the width of the rune at text[i], and whether it is white space.
func spaceAt(text string, i int) (width int, space bool) {
	c := text[i]
	if c < utf8.RuneSelf {
		return 1, c == ' ' || ('\t' <= c && c <= '\r')
	}
	r, width := utf8.DecodeRuneInString(text[i:])
	return width, unicode.IsSpace(r)
}

// append adds the ids of text's tokens to dst.
func (t tokenizer) append(dst []uint32, text string) []uint32 {
	t.each(text, func(token string) { dst = append(dst, tokenID(token)) })
	return dst
}

// tokenID is the id of a token: 31 bits, so that it fits every client's integer.
func tokenID(token string) uint32 {
	return uint32(xxhash.Sum64String(token) & 0x7fffffff)
}
