package dispatch

import (
	"errors"
	"fmt"

	"github.com/calinix/caddy-calinix/prompt"
)

// MaxReply is how much of a prefill reply is read, in bytes after decoding. A
// reply holds one token and the transfer parameters, whose size grows with the
// prompt: about half a megabyte for a million tokens in blocks of 16. What a
// client asks for beyond that (echo, log probabilities of the prompt) must fit
// too. A longer reply is no reply.
const MaxReply = 16 << 20

// Handover is what a prefill reply gave for the decode leg, as the connector
// that read it spells it; nil hands over nothing: the decode pod then finds
// the prompt's KV blocks by itself, or computes them. It borrows the reply.
type Handover []byte

// Connector is one way to hand a prompt over from a prefill to a decode pod.
// Its methods keep nothing between calls and may be called concurrently.
type Connector interface {
	// Prefill makes the prefill leg's body from the client's: it appends it
	// to dst. It fails if body is not a JSON object, or if api has no prefill
	// leg.
	Prefill(dst []byte, api prompt.API, body []byte) ([]byte, error)
	// ReadPrefill reads a 2xx prefill reply, of which the caller has undone
	// any Content-Encoding. It fails if the reply cannot come from an engine
	// that ran the leg: the leg has then failed.
	ReadPrefill(reply []byte) (Handover, error)
	// Decode makes the decode leg's body from the client's: it appends it to
	// dst, or returns body itself if nothing had to change. It fails if body
	// is not a JSON object.
	Decode(dst, body []byte, h Handover) ([]byte, error)
}

// New returns the connector of that name: nixl or plain.
func New(name string) (Connector, error) {
	switch name {
	case "nixl":
		return nixl{}, nil
	case "plain":
		return plain{}, nil
	default:
		return nil, fmt.Errorf("connector %q: want nixl or plain", name)
	}
}

// maxEdits is how many edits a leg needs at most, so that they lie on the stack.
const maxEdits = len(limits) + 1 + len(unfit) + len(reserved)

// errNoPrefill is a mistake of the caller's: a request that generates no text
// has nothing to hand over.
var errNoPrefill = errors.New("only chat, completions, responses and messages requests have a prefill leg")
