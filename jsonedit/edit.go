package jsonedit

import (
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/calinix/caddy-calinix/internal/jsonscan"
)

// Edit is what shall become of one top-level member.
type Edit struct {
	Name string // decoded
	// Value is the member's new value, as JSON text. It replaces the value of
	// the last member of that name, whose earlier duplicates go; if there is
	// none, the member is added where the object's last member ends. nil
	// removes all members of that name.
	Value []byte
	// Fold also removes the members whose names differ from Name in case only,
	// by Unicode's simple folding, as encoding/json reads names: some readers
	// behind an engine's front door take them for Name.
	Fold bool
}

// Apply appends to dst the object body as edits change it, every other byte as
// it stands in body. The result is valid JSON, and edits of which none finds
// anything to do leave all of body. A removed member takes a comma along and
// what whitespace lies between that and itself. Of two edits with one Name the
// last counts.
//
// body must be one JSON object: otherwise the error says where it is malformed
// (a *jsonscan.SyntaxError) or that it is no object; a Value that is not JSON
// is an error too. Then dst is returned as it was given.
//
// Time is linear in body, times the number of edits for each member. At most
// dst is allocated, once, as long as edits are about no more than 16 of the
// members and are no more than 32. dst must not overlap body.
func Apply(dst, body []byte, edits ...Edit) ([]byte, error) {
	size := len(body)
	for i := range edits {
		e := &edits[i]
		if e.Value == nil {
			continue
		}
		if at := jsonscan.Whole(e.Value); at < 0 {
			return dst, fmt.Errorf("jsonedit: value for %q: %w", e.Name, jsonscan.Error(e.Value, at))
		}
		if !utf8.ValidString(e.Name) {
			return dst, fmt.Errorf("jsonedit: name %q is not UTF-8", e.Name)
		}
		size += len(e.Name) + len(e.Value) + len(`,"":`)
	}
	var (
		hitRoom  [16]hit
		lastRoom [32]int
		hits     = hitRoom[:0]
		last     = lastRoom[:] // of each edit: 1 + its last hit
	)
	if len(edits) > len(last) {
		last = make([]int, len(edits))
	}
	w := walk{body: body}
	for w.next() {
		if n := len(hits); n > 0 && hits[n-1].index == w.index-1 {
			hits[n-1].next = w.start()
		}
		edit := find(edits, &w.member, body)
		if edit == stays {
			continue
		}
		if edit != goes {
			if k := last[edit]; k > 0 {
				hits[k-1].edit = goes // it had an earlier duplicate
			}
			last[edit] = len(hits) + 1
		}
		hits = append(hits, hit{member: w.member, edit: edit, next: w.end})
	}
	if w.err != nil {
		return dst, w.err
	}
	dst = slices.Grow(dst, size)
	dst, gone := splice(dst, body[:w.at], edits, hits)
	dst = add(dst, edits, last, w.count == gone)
	return append(dst, body[w.at:]...), nil
}

// Member returns the raw value of the last top-level member of that name, a
// part of body; ok is false if there is none. body must be one JSON object, as
// for Apply. Nothing is allocated.
func Member(body []byte, name string) (value []byte, ok bool, err error) {
	w := walk{body: body}
	for w.next() {
		if w.is(body, name) {
			value, ok = body[w.value:w.end], true
		}
	}
	if w.err != nil {
		return nil, false, w.err
	}
	return value, ok, nil
}
