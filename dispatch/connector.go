package dispatch

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/calinix/caddy-calinix/prompt"
)

// MaxReply is how much of a prefill reply is read, in bytes after decoding. A
// reply holds one token and the transfer parameters, whose size grows with the
// prompt: about half a megabyte for a million tokens in blocks of 16. What a
// client asks for beyond that (echo, log probabilities of the prompt) must fit
// too. A longer reply is no reply.
const MaxReply = 16 << 20

// Handover is what a prefill reply gave for the decode leg, as the connector
// that read it spells it; the zero value hands over nothing: the decode pod then
// finds the prompt's KV blocks by itself, or computes them. It borrows the reply.
type Handover struct {
	Params []byte // a JSON object that goes into the decode leg
	Prompt []byte // the prompt's token ids, a JSON array, if the reply has them
}

// Try is one try at a request, at two pods that were picked for it.
type Try struct {
	API prompt.API
	// Body is the client's, a JSON object without reserved members.
	Body []byte
	// Sequences is the number of answers that the body asks for; more than 1
	// only with a connector whose Traits have Batches.
	Sequences int
	// Prefill and Decode are the pods.
	Prefill, Decode *Peer
	// ID was drawn for this try alone.
	ID ID
	// RequestID is the X-Request-Id with which the request goes on, "" for none.
	RequestID string
}

// Traits say how the legs of a connector are to be run.
type Traits struct {
	// Concurrent legs are sent at once: the engines find each other by an id
	// that both legs carry, and the decode leg waits for the prefill leg. They
	// fail together, and a retry of one is a retry of both with a fresh ID.
	// Otherwise the decode leg is made when the prefill leg's reply was read.
	Concurrent bool
	// Batches: a body may ask for several answers.
	Batches bool
	// Bound: the prefill leg names the decode pod, so what it hands over is for
	// that pod alone.
	Bound bool
	// Params: a prefill reply should carry parameters for the decode leg. Without
	// them the decode pod computes the prompt itself.
	Params bool
	// Lasting: what is handed over is there for any number of decode legs.
	// Otherwise the first that fetches it uses it up.
	Lasting bool
	// Waits: the prefill leg ends when the decode pod has fetched the prompt, so
	// that its end does not tell how long computing took, or handing over.
	Waits bool
	// AsksEngine: the prefill pod's EngineID is not configured, its bootstrap
	// server tells it. See ReadEngine.
	AsksEngine bool
}

// Connector is one way to hand a prompt over from a prefill to a decode pod.
// Its methods keep nothing between calls and may be called concurrently.
type Connector interface {
	Traits() Traits
	// RequestID is the X-Request-Id that both legs are to carry, "" where they
	// go on with what they have.
	RequestID(t *Try) string
	// Prefill makes the prefill leg's body: it appends it to dst. It fails if
	// the body is not a JSON object, or if the API has no prefill leg.
	Prefill(dst []byte, t *Try) ([]byte, error)
	// ReadPrefill reads a 2xx prefill reply, of which the caller has undone
	// any Content-Encoding. It fails if the reply cannot come from an engine
	// that ran the leg: the leg has then failed.
	ReadPrefill(reply []byte) (Handover, error)
	// Decode makes the decode leg's body: it appends it to dst, or returns
	// t.Body itself if nothing had to change. It fails if the body is not a JSON
	// object.
	Decode(dst []byte, t *Try, h Handover) ([]byte, error)
}

// connectors by their names in config.yaml.
var connectors = map[string]Connector{
	"nixl":          nixl{},
	"nixlPush":      nixlPush{},
	"mooncake":      mooncake{},
	"sglang":        sglang{},
	"p2pnccl":       p2pnccl{},
	"trtllm":        trtllm{},
	"sharedStorage": sharedStorage{},
	"plain":         plain{},
}

// New returns the connector of that name, as config.yaml spells it.
func New(name string) (Connector, error) {
	if c, ok := connectors[name]; ok {
		return c, nil
	}
	return nil, fmt.Errorf("connector %q: want one of %s", name, strings.Join(slices.Sorted(maps.Keys(connectors)), ", "))
}

// maxEdits is how many edits a leg needs at most, so that they lie on the stack.
const maxEdits = len(limits) + 1 + len(unfit) + len(reserved) + 2

// errNoPrefill is a mistake of the caller's: a request that generates no text
// has nothing to hand over.
var errNoPrefill = errors.New("only chat, completions, responses and messages requests have a prefill leg")
