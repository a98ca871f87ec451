package dispatch

import (
	"encoding/json"

	"github.com/calinix/caddy-calinix/jsonedit"
)

// prefillWith makes a prefill leg that carries this member.
func prefillWith(dst []byte, t *Try, name string, value []byte) ([]byte, error) {
	var room [maxEdits]jsonedit.Edit
	edits, err := firstToken(room[:0], t.API, t.Body)
	if err != nil {
		return nil, err
	}
	return jsonedit.Apply(dst, t.Body, put(edits, name, value)...)
}

// decodeWith makes a decode leg that carries this member and no other reserved
// one.
func decodeWith(dst []byte, t *Try, name string, value []byte) ([]byte, error) {
	var room [maxEdits]jsonedit.Edit
	return jsonedit.Apply(dst, t.Body, put(withoutReserved(room[:0]), name, value)...)
}

// put makes edits set a member, in place of what they said of it before.
func put(edits []jsonedit.Edit, name string, value []byte) []jsonedit.Edit {
	for i := range edits {
		if edits[i].Name == name {
			edits[i].Value = value
			return edits
		}
	}
	return append(edits, jsonedit.Edit{Name: name, Value: value})
}

// quoted appends s as a JSON string.
func quoted(dst []byte, s string) []byte {
	text, err := json.Marshal(s)
	if err != nil {
		panic("dispatch: a string is JSON: " + err.Error())
	}
	return append(dst, text...)
}
