package jsonscan

import (
	"unicode/utf16"
	"unicode/utf8"
)

// simple holds what the one-letter escapes stand for, 0 for letters that are
// none.
var simple = [256]byte{
	'"': '"', '\\': '\\', '/': '/',
	'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t',
}

// Escape decodes the escape at the start of s, a part of a string that String
// has accepted, and returns its length.
func Escape(s []byte) (r rune, n int) { return escape(s) }

// escape decodes the escape at the start of s, whose first byte is the
// backslash, and returns its length, 0 if it is malformed. Half a surrogate
// pair is U+FFFD.
func escape(s []byte) (r rune, n int) {
	if len(s) < 2 {
		return 0, 0
	}
	if c := simple[s[1]]; c != 0 {
		return rune(c), 2
	}
	if r = unicodeEscape(s); r < 0 {
		return 0, 0
	}
	if !utf16.IsSurrogate(r) {
		return r, 6
	}
	if pair := utf16.DecodeRune(r, unicodeEscape(s[6:])); pair != utf8.RuneError {
		return pair, 12
	}
	return utf8.RuneError, 6
}

// unicodeEscape is the value of the \uXXXX that s begins with, -1 if it begins
// with none.
func unicodeEscape(s []byte) rune {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return -1
	}
	var r rune
	for _, c := range s[2:6] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

// simpleAt is what the escape at b[i] stands for if it is one of a single
// letter, else 0.
func simpleAt(b []byte, i int) byte {
	if i+1 < len(b) {
		return simple[b[i+1]]
	}
	return 0
}
