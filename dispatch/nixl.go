package dispatch

import (
	"bytes"
	"fmt"

	"github.com/calinix/caddy-calinix/jsonedit"
)

// nixl is the pull form of vLLM's NixlConnector, its default. The prefill leg
// asks to keep the KV blocks; the reply says in a top-level object
// kv_transfer_params where they lie; the decode leg carries that object back
// unread, and the decode pod fetches the blocks. vLLM takes and gives the
// object in chat and completions, since March 2026 also in responses and
// messages; where it gives none, the decode pod computes the prompt itself.
//
// The prefill pod keeps the blocks for a lease (30 s, renewed by the decode
// pod; older versions 480 s). If no decode leg follows they are freed when it
// runs out: there is no call to give them back.
//
// Not verified: that one object could describe several sequences; requests with
// several are not disaggregated.
type nixl struct{ sequential }

// sequential is what most connectors with sequential legs have in common.
type sequential struct{}

// Traits has none: the legs follow each other.
func (sequential) Traits() Traits { return Traits{} }

// RequestID is none: bodies say all.
func (sequential) RequestID(*Try) string { return "" }

var (
	// keepBlocks is what vLLM's own proxies send in a prefill leg.
	keepBlocks = []byte(`{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}`)
	null       = []byte("null")
)

// Prefill limits the client's body to one token and asks to keep the blocks.
func (nixl) Prefill(dst []byte, t *Try) ([]byte, error) {
	return prefillWith(dst, t, kvTransferParams, keepBlocks)
}

// Traits: the reply has the parameters.
func (nixl) Traits() Traits { return Traits{Params: true} }

// ReadPrefill returns the reply's kv_transfer_params byte for byte, for their
// numbers exceed what a float64 holds. They are missing or null if the prompt
// ended with its first token. Of several the last counts, as everywhere.
func (nixl) ReadPrefill(reply []byte) (Handover, error) {
	params, err := object(reply, kvTransferParams)
	if err != nil {
		return Handover{}, fmt.Errorf("prefill reply: %w", err)
	}
	return Handover{Params: params}, nil
}

// Decode returns the client's body with the prefill reply's parameters in
// place of any reserved members.
func (nixl) Decode(dst []byte, t *Try, h Handover) ([]byte, error) {
	if h.Params == nil {
		return asIs(dst, t.Body)
	}
	return decodeWith(dst, t, kvTransferParams, h.Params)
}

// object returns the top-level member of that name, which must be an object; nil
// if it is missing or null.
func object(body []byte, name string) ([]byte, error) {
	value, ok, err := jsonedit.Member(body, name)
	switch {
	case err != nil:
		return nil, err
	case !ok || bytes.Equal(value, null):
		return nil, nil
	case value[0] != '{':
		return nil, fmt.Errorf("%s is neither an object nor null", name)
	default:
		return value, nil
	}
}
