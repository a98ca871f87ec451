package dispatch

import "github.com/calinix/caddy-calinix/jsonedit"

// plain hands nothing over: the prefill leg runs for its side effect, and the
// decode pod gets the client's body. It serves engines that share their KV
// blocks by other means, and engines that share none, where it only costs time.
type plain struct{ sequential }

// Traits says that whatever engines share by themselves stays shared.
func (plain) Traits() Traits { return Traits{Lasting: true} }

// Prefill limits the client's body to one token.
func (plain) Prefill(dst []byte, t *Try) ([]byte, error) {
	var room [maxEdits]jsonedit.Edit
	edits, err := firstToken(room[:0], t.API, t.Body)
	if err != nil {
		return nil, err
	}
	return jsonedit.Apply(dst, t.Body, edits...)
}

// ReadPrefill takes any reply: its status has said all.
func (plain) ReadPrefill([]byte) (Handover, error) { return Handover{}, nil }

// Decode returns the client's body without the reserved members.
func (plain) Decode(dst []byte, t *Try, _ Handover) ([]byte, error) { return asIs(dst, t.Body) }

// asIs returns the body without the reserved members, the body itself if it has
// none.
func asIs(dst, body []byte) ([]byte, error) {
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
