package prompt

import (
	"bytes"
	"unicode/utf8"

	"github.com/calinix/caddy-calinix/internal/jsonscan"
)

// appendShort appends a JSON value, which has been read before, in short form:
// without whitespace, and with no escapes but \" \\ \b \f \n \r \t and \u00XX
// for other control characters. Numbers, the order of members and duplicates
// stay. It is never longer than v.
func appendShort(dst, v []byte, form jsonscan.Form) []byte {
	switch {
	case form == 0:
		return append(dst, v...)
	case form&jsonscan.Spaced == 0:
		return appendEscapes(dst, v)
	}
	for i := 0; i < len(v); {
		switch c := v[i]; c {
		case ' ', '\t', '\n', '\r':
			i++
		case '"':
			end, escaped := jsonscan.String(v, i+1)
			if text := v[i : end+1]; escaped {
				dst = appendEscapes(dst, text)
			} else {
				dst = append(dst, text...)
			}
			i = end + 1
		default:
			dst = append(dst, c)
			i++
		}
	}
	return dst
}

// appendEscapes appends text of JSON with its escapes in short form.
func appendEscapes(dst, v []byte) []byte {
	for {
		e := bytes.IndexByte(v, '\\')
		if e < 0 {
			return append(dst, v...)
		}
		dst = append(dst, v[:e]...)
		r, n := jsonscan.Escape(v[e:])
		dst = appendQuotedRune(dst, r)
		v = v[e+n:]
	}
}

// appendQuoted appends a decoded string as a JSON string in short form.
func appendQuoted(dst, s []byte) []byte {
	dst = append(dst, '"')
	for _, c := range s {
		if c < 0x20 || c == '"' || c == '\\' {
			dst = appendQuotedRune(dst, rune(c))
		} else {
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}

// appendQuotedRune appends a character as it stands in a JSON string.
func appendQuotedRune(dst []byte, r rune) []byte {
	const hex = "0123456789abcdef"
	switch r {
	case '"', '\\':
		return append(dst, '\\', byte(r))
	case '\b':
		return append(dst, `\b`...)
	case '\f':
		return append(dst, `\f`...)
	case '\n':
		return append(dst, `\n`...)
	case '\r':
		return append(dst, `\r`...)
	case '\t':
		return append(dst, `\t`...)
	}
	if r < 0x20 {
		return append(dst, '\\', 'u', '0', '0', hex[r>>4], hex[r&15])
	}
	return utf8.AppendRune(dst, r)
}

// appendArguments appends the arguments of a tool call: JSON that came in a
// string. An empty string stands for none, and what is not JSON for itself.
func appendArguments(dst, s []byte) []byte {
	s = bytes.Trim(s, " \t\r\n")
	if len(s) == 0 {
		return append(dst, noArguments...)
	}
	end, form := jsonscan.Value(s, 0, 0)
	if end != len(s) {
		return appendQuoted(dst, s)
	}
	return appendShort(dst, s, form)
}

const noArguments = "{}"
