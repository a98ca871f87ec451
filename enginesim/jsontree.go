package enginesim

import (
	"errors"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// maxNesting bounds nested arrays and objects, near the depth at which Python's
// reader gives up.
const maxNesting = 900

// node is one JSON value of a request body. It borrows the body. Members keep their
// order; of equal names the last one counts, as in Python's reader.
type node struct {
	raw  []byte // the value as sent
	key  string // its name, if it is a member of an object
	kids []node // elements or members
}

// parseJSON reads one JSON text, as strict as encoding/json and in addition
// refusing invalid UTF-8. Cost: one pass, one node a value.
func parseJSON(b []byte) (node, error) {
	if !utf8.Valid(b) {
		return node{}, errors.New("body is not valid UTF-8")
	}
	r := jsonReader{b: b}
	r.space()
	n, err := r.value(0)
	if err != nil {
		return node{}, err
	}
	r.space()
	if r.i != len(b) {
		return node{}, r.fail("extra data")
	}
	return n, nil
}

type jsonReader struct {
	b []byte
	i int
}

func (r *jsonReader) fail(what string) error {
	return fmt.Errorf("%s at byte %d", what, r.i)
}

// peek returns the next byte, or 0 at the end; a real 0 byte is valid nowhere.
func (r *jsonReader) peek() byte {
	if r.i < len(r.b) {
		return r.b[r.i]
	}
	return 0
}

func (r *jsonReader) space() {
	for r.i < len(r.b) {
		switch r.b[r.i] {
		case ' ', '\t', '\n', '\r':
			r.i++
		default:
			return
		}
	}
}

func (r *jsonReader) value(depth int) (node, error) {
	start := r.i
	var kids []node
	var err error
	switch c := r.peek(); {
	case c == '{' || c == '[':
		if depth >= maxNesting {
			return node{}, r.fail("nested too deeply")
		}
		kids, err = r.list(c, depth+1)
	case c == '"':
		err = r.str()
	case c == '-' || ('0' <= c && c <= '9'):
		err = r.number()
	case c == 't':
		err = r.word("true")
	case c == 'f':
		err = r.word("false")
	case c == 'n':
		err = r.word("null")
	default:
		err = r.fail("expecting a value")
	}
	return node{raw: r.b[start:r.i], kids: kids}, err
}

// list reads an array or an object.
func (r *jsonReader) list(open byte, depth int) (kids []node, err error) {
	end := byte(']')
	if open == '{' {
		end = '}'
	}
	r.i++
	r.space()
	if r.peek() == end {
		r.i++
		return nil, nil
	}
	for {
		var key string
		if open == '{' {
			if key, err = r.name(); err != nil {
				return nil, err
			}
		}
		kid, err := r.value(depth)
		if err != nil {
			return nil, err
		}
		kid.key = key
		kids = append(kids, kid)
		r.space()
		switch c := r.peek(); c {
		case ',':
			r.i++
			r.space()
		case end:
			r.i++
			return kids, nil
		default:
			return nil, r.fail("expecting a comma or the end of a list")
		}
	}
}

// name reads a member's name and the colon.
func (r *jsonReader) name() (string, error) {
	start := r.i
	if r.peek() != '"' {
		return "", r.fail("expecting a name in quotes")
	}
	if err := r.str(); err != nil {
		return "", err
	}
	key := unquote(r.b[start:r.i])
	r.space()
	if r.peek() != ':' {
		return "", r.fail("expecting a colon")
	}
	r.i++
	r.space()
	return key, nil
}

func (r *jsonReader) word(w string) error {
	if len(r.b)-r.i < len(w) || string(r.b[r.i:r.i+len(w)]) != w {
		return r.fail("expecting a value")
	}
	r.i += len(w)
	return nil
}

func (r *jsonReader) str() error {
	b, i := r.b, r.i+1
	for {
		for i < len(b) && b[i] >= ' ' && b[i] != '"' && b[i] != '\\' {
			i++
		}
		r.i = i
		switch c := r.peek(); {
		case i == len(b):
			return r.fail("unterminated string")
		case c == '"':
			r.i++
			return nil
		case c < ' ':
			return r.fail("control character in a string")
		}
		r.i++
		switch r.peek() {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			i += 2
		case 'u':
			if _, ok := hex4(b[r.i+1:]); !ok {
				return r.fail("bad \\u escape")
			}
			i += 6
		default:
			return r.fail("bad escape")
		}
	}
}

func (r *jsonReader) number() error {
	if r.peek() == '-' {
		r.i++
	}
	switch {
	case r.peek() == '0':
		r.i++
	case !r.digits():
		return r.fail("bad number")
	}
	if r.peek() == '.' {
		r.i++
		if !r.digits() {
			return r.fail("bad number")
		}
	}
	if c := r.peek(); c == 'e' || c == 'E' {
		r.i++
		if c := r.peek(); c == '+' || c == '-' {
			r.i++
		}
		if !r.digits() {
			return r.fail("bad number")
		}
	}
	return nil
}

func (r *jsonReader) digits() bool {
	start := r.i
	for c := r.peek(); '0' <= c && c <= '9'; c = r.peek() {
		r.i++
	}
	return r.i > start
}

func hex4(b []byte) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	v, err := strconv.ParseUint(string(b[:4]), 16, 32)
	return rune(v), err == nil
}

// unquote decodes a string that str has accepted. Half a surrogate pair becomes
// U+FFFD.
func unquote(raw []byte) string {
	in := raw[1 : len(raw)-1]
	i := 0
	for i < len(in) && in[i] != '\\' {
		i++
	}
	if i == len(in) {
		return string(in)
	}
	out := append(make([]byte, 0, len(in)), in[:i]...)
	for i < len(in) {
		if in[i] != '\\' {
			out = append(out, in[i])
			i++
			continue
		}
		c := in[i+1]
		i += 2
		switch c {
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			u, _ := hex4(in[i:])
			i += 4
			if utf16.IsSurrogate(u) {
				low := rune(0)
				if i+1 < len(in) && in[i] == '\\' && in[i+1] == 'u' {
					low, _ = hex4(in[i+2:])
				}
				if u = utf16.DecodeRune(u, low); u != utf8.RuneError {
					i += 6
				}
			}
			out = utf8.AppendRune(out, u)
		default:
			out = append(out, c)
		}
	}
	return string(out)
}
