package jsonedit

import (
	"bytes"
	"fmt"

	"github.com/calinix/caddy-calinix/internal/jsonscan"
)

// member is a top-level member by its positions in the body.
type member struct {
	key   jsonscan.Key
	index int // 0 for the first member
	comma int // position of the comma before it; of no meaning for the first
	value int // first byte of the value
	end   int // the byte after the value
}

// start is the position of the member's first quote.
func (m *member) start() int { return m.key.Lo - 1 }

// is reports whether the member has that name.
func (m *member) is(body []byte, name string) bool {
	raw := body[m.key.Lo:m.key.Hi]
	if !m.key.Escaped {
		return string(raw) == name
	}
	// An escape is at most six times as long as what it stands for.
	if len(raw) < len(name) || len(raw) > 6*len(name) {
		return false
	}
	var room [128]byte
	return string(jsonscan.Unescape(room[:0], raw)) == name
}

// folds reports whether the member has that name but for the case.
func (m *member) folds(body []byte, name string) bool {
	raw := body[m.key.Lo:m.key.Hi]
	// A letter in another case is at most three times as long, see is.
	if 3*len(raw) < len(name) || len(raw) > 18*len(name) {
		return false
	}
	var room [256]byte
	if m.key.Escaped {
		raw = jsonscan.Unescape(room[:0], raw)
	}
	return bytes.EqualFold(raw, []byte(name))
}

// walk goes through the top-level members of a body.
type walk struct {
	member // the one that next has found
	body   []byte
	at     int   // the byte after it; without any member, the one after the brace
	count  int   // members found
	err    error // why next returned false, nil at the object's end
}

// next finds the next member.
func (w *walk) next() bool {
	if w.count == 0 && !w.open() {
		return false
	}
	key, value := jsonscan.Member(w.body, w.at, w.count == 0)
	if value < 0 {
		return w.fail(value)
	}
	if key == (jsonscan.Key{}) {
		if i := jsonscan.Space(w.body, value); i < len(w.body) {
			return w.fail(jsonscan.Trailing(i))
		}
		return false
	}
	end := jsonscan.Skip(w.body, value, 1)
	if end < 0 {
		return w.fail(end)
	}
	w.member = member{key: key, index: w.count, comma: jsonscan.Space(w.body, w.at), value: value, end: end}
	w.count++
	w.at = end
	return true
}

// open goes to the byte after the opening brace.
func (w *walk) open() bool {
	w.at = jsonscan.Space(w.body, 0)
	if w.at < len(w.body) && w.body[w.at] == '{' {
		w.at++
		return true
	}
	if fault := jsonscan.Whole(w.body); fault < 0 {
		return w.fail(fault)
	}
	w.err = fmt.Errorf("jsonedit: the value is no object: it begins with %q", w.body[w.at])
	return false
}

func (w *walk) fail(fault int) bool {
	w.err = fmt.Errorf("jsonedit: %w", jsonscan.Error(w.body, fault))
	return false
}
