package dispatch

import (
	"github.com/calinix/caddy-calinix/jsonedit"
	"github.com/calinix/caddy-calinix/prompt"
)

// plain hands nothing over: the prefill leg runs for its side effect, and the
// decode pod gets the client's body. It serves engines that share their KV
// blocks by other means, such as one store below both pods, and engines that
// share none, where it only costs time.
type plain struct{}

// Prefill limits the client's body to one token.
func (plain) Prefill(dst []byte, api prompt.API, body []byte) ([]byte, error) {
	var room [maxEdits]jsonedit.Edit
	edits, err := firstToken(room[:0], api, body)
	if err != nil {
		return nil, err
	}
	return jsonedit.Apply(dst, body, edits...)
}

// ReadPrefill takes any reply: its status has said all.
func (plain) ReadPrefill([]byte) (Handover, error) { return nil, nil }

// Decode returns the client's body without the reserved members.
func (plain) Decode(dst, body []byte, _ Handover) ([]byte, error) {
	found, err := look(body)
	if err != nil {
		return nil, err
	}
	if !found.reserved {
		return body, nil
	}
	var room [maxEdits]jsonedit.Edit
	return jsonedit.Apply(dst, body, withoutReserved(room[:0])...)
}
