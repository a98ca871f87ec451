package dispatch

import (
	"bytes"
	"fmt"

	"github.com/calinix/caddy-calinix/jsonedit"
	"github.com/calinix/caddy-calinix/prompt"
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
type nixl struct{}

var (
	// keepBlocks is what vLLM's own proxies send in a prefill leg.
	keepBlocks = []byte(`{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}`)
	null       = []byte("null")
)

// Prefill limits the client's body to one token and asks to keep the blocks.
func (nixl) Prefill(dst []byte, api prompt.API, body []byte) ([]byte, error) {
	var room [maxEdits]jsonedit.Edit
	edits, err := firstToken(room[:0], api, body)
	if err != nil {
		return nil, err
	}
	return jsonedit.Apply(dst, body, carry(edits, keepBlocks)...)
}

// ReadPrefill returns the reply's kv_transfer_params byte for byte, for their
// numbers exceed what a float64 holds. They are missing or null if the prompt
// ended with its first token. Of several the last counts, as everywhere.
func (nixl) ReadPrefill(reply []byte) (Handover, error) {
	params, ok, err := jsonedit.Member(reply, kvTransferParams)
	switch {
	case err != nil:
		return nil, fmt.Errorf("prefill reply: %w", err)
	case !ok || bytes.Equal(params, null):
		return nil, nil
	case params[0] != '{':
		return nil, fmt.Errorf("prefill reply: %s is neither an object nor null", kvTransferParams)
	default:
		return params, nil
	}
}

// Decode returns the client's body with the prefill reply's parameters in
// place of any reserved members.
func (nixl) Decode(dst, body []byte, h Handover) ([]byte, error) {
	if h == nil {
		return plain{}.Decode(dst, body, nil)
	}
	var room [maxEdits]jsonedit.Edit
	return jsonedit.Apply(dst, body, carry(withoutReserved(room[:0]), h)...)
}

// carry makes edits, which remove the client's parameters, set these.
func carry(edits []jsonedit.Edit, params []byte) []jsonedit.Edit {
	for i := range edits {
		if edits[i].Name == kvTransferParams {
			edits[i].Value = params
		}
	}
	return edits
}
