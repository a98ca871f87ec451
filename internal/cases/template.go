package cases

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// template is a text with placeholders, cut into pieces once so that filling it
// thirty thousand times costs only the copying.
type template struct {
	pieces   []piece
	fixed    int  // bytes of the literal pieces
	pads     int  // how often {{pad}} occurs
	numbered bool // whether any piece depends on the running number
}

// piece is a literal, a number, a run of words or the padding.
type piece struct {
	kind  byte // 'l', 'n', 'w' or 'p'
	text  string
	num   number
	words []piece // literal and number pieces of the words' name
	count int
}

// number prints the running number i, whole or modulo mod, in a format of the
// few that the case files know: plain, or zero-padded decimal (04d).
type number struct {
	mod   int // 0: none
	width int // 0: as long as it is
}

func (n number) append(dst []byte, i int) []byte {
	if n.mod > 0 {
		i %= n.mod
	}
	var room [20]byte
	s := strconv.AppendInt(room[:0], int64(i), 10)
	if short := n.width - len(s); short > 0 {
		dst = append(dst, "00000000000000000000"[:short]...)
	}
	return append(dst, s...)
}

// compile cuts a text at its placeholders.
func compile(text string) (template, error) {
	var t template
	for text != "" {
		at := strings.Index(text, "{{")
		if at < 0 {
			t.literal(text)
			break
		}
		t.literal(text[:at])
		text = text[at+2:]
		end := strings.Index(text, "}}")
		if end < 0 {
			return t, fmt.Errorf("{{%.20s: no closing }}", text)
		}
		// "{{words:x{i}}}" cannot occur: the count stands last
		what := text[:end]
		text = text[end+2:]
		switch name, rest, _ := strings.Cut(what, ":"); {
		case what == "pad":
			t.pads++
			t.pieces = append(t.pieces, piece{kind: 'p'})
		case name == "words":
			p, err := compileWords(rest)
			if err != nil {
				return t, fmt.Errorf("{{%s}}: %w", what, err)
			}
			t.numbered = true
			t.pieces = append(t.pieces, p)
		default:
			n, err := parseNumber(what)
			if err != nil {
				return t, fmt.Errorf("{{%s}}: %w", what, err)
			}
			t.numbered = true
			t.pieces = append(t.pieces, piece{kind: 'n', num: n})
		}
	}
	return t, nil
}

func (t *template) literal(s string) {
	if s != "" {
		t.fixed += len(s)
		t.pieces = append(t.pieces, piece{kind: 'l', text: s})
	}
}

// compileWords reads NAME,N where NAME may hold {i} or {i%M}.
func compileWords(s string) (piece, error) {
	p := piece{kind: 'w'}
	name, count, ok := strings.Cut(s, ",")
	if !ok {
		return p, fmt.Errorf("want words:NAME,N")
	}
	var err error
	if p.count, err = strconv.Atoi(count); err != nil || p.count < 0 {
		return p, fmt.Errorf("%q is not a number of words", count)
	}
	for name != "" {
		at := strings.IndexByte(name, '{')
		if at < 0 {
			p.words = append(p.words, piece{kind: 'l', text: name})
			break
		}
		end := strings.IndexByte(name, '}')
		if end < at || strings.ContainsRune(name[at:end], ':') {
			return p, fmt.Errorf("%q: want {i} or {i%%M} in the name", name)
		}
		n, err := parseNumber(name[at+1 : end])
		if err != nil {
			return p, err
		}
		if at > 0 {
			p.words = append(p.words, piece{kind: 'l', text: name[:at]})
		}
		p.words = append(p.words, piece{kind: 'n', num: n})
		name = name[end+1:]
	}
	return p, nil
}

// parseNumber reads i, i%M or i:0Nd.
func parseNumber(s string) (number, error) {
	var n number
	switch {
	case s == "i":
		return n, nil
	case strings.HasPrefix(s, "i%"):
		m, err := strconv.Atoi(s[2:])
		if err != nil || m < 1 {
			return n, fmt.Errorf("%q is not a modulus", s[2:])
		}
		n.mod = m
		return n, nil
	case strings.HasPrefix(s, "i:0") && strings.HasSuffix(s, "d"):
		w, err := strconv.Atoi(s[len("i:0") : len(s)-1])
		if err != nil || w < 1 || w > 20 {
			return n, fmt.Errorf("%q is not a format, want 0Nd", s[2:])
		}
		n.width = w
		return n, nil
	}
	return n, fmt.Errorf("unknown placeholder")
}

// fill returns the text for the running number i. There must be no padding.
func (t *template) fill(i int) []byte {
	dst := make([]byte, 0, t.fixed+64)
	for k := range t.pieces {
		switch p := &t.pieces[k]; p.kind {
		case 'l':
			dst = append(dst, p.text...)
		case 'n':
			dst = p.num.append(dst, i)
		case 'w':
			dst = appendWords(dst, p, i)
		}
	}
	return dst
}

func appendWords(dst []byte, p *piece, i int) []byte {
	var name []byte
	for k := range p.words {
		if w := &p.words[k]; w.kind == 'l' {
			name = append(name, w.text...)
		} else {
			name = w.num.append(name, i)
		}
	}
	dst = slices.Grow(dst, p.count*(len(name)+5))
	for k := 1; k <= p.count; k++ {
		dst = number{width: 4}.append(append(dst, name...), k)
		if k < p.count {
			dst = append(dst, ' ')
		}
	}
	return dst
}

// pad returns the text with every {{pad}} filled so that, with one of them, the
// whole has the given number of bytes.
func (t *template) pad(size int) []byte {
	need := size - t.fixed
	words := make([]byte, 0, need+10)
	for k := 1; len(words) < need; k++ {
		if k > 1 {
			words = append(words, ' ')
		}
		words = append(words, "pad"...)
		words = number{width: 6}.append(words, k)
	}
	words = words[:need]
	dst := make([]byte, 0, size)
	for k := range t.pieces {
		if p := &t.pieces[k]; p.kind == 'l' {
			dst = append(dst, p.text...)
		} else {
			dst = append(dst, words...)
		}
	}
	return dst
}
