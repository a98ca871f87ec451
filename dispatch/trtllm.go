package dispatch

import (
	"fmt"
	"strconv"

	"github.com/calinix/caddy-calinix/internal/jsonscan"
	"github.com/calinix/caddy-calinix/jsonedit"
	"github.com/calinix/caddy-calinix/prompt"
)

// trtllm is TensorRT-LLM's disaggregation. The prefill leg is a request of type
// context_only with a fresh id of 64 bits, 2^42 or above; the reply's
// disaggregated_params, at its top or in its first choice, go to the decode leg
// as they stand but for their type, generation_only. The reply's
// prompt_token_ids spare the decode pod the tokenizer: they become the prompt of
// a completions request and the prompt_token_ids of a chat.
//
// A reply without parameters hands over nothing: the decode pod computes the
// prompt. Context that nobody fetches is freed by the engine's own time limit;
// there is no call to give it back. Not verified: in responses, that the engines
// pass the parameters on.
type trtllm struct{ sequential }

// leastDisaggID is the smallest id that the engines take from outside; those
// below are their own.
const leastDisaggID = 1 << 42

const disaggregatedParams = "disaggregated_params"

var generationOnly = []byte(`"generation_only"`)

// Prefill limits the client's body to one token and asks for the context only.
// TensorRT-LLM refuses max_completion_tokens beside max_tokens.
func (trtllm) Prefill(dst []byte, t *Try) ([]byte, error) {
	var room [maxEdits]jsonedit.Edit
	edits, err := firstToken(room[:0], t.API, t.Body)
	if err != nil {
		return nil, err
	}
	params := append([]byte(nil), `{"request_type":"context_only","disagg_request_id":`...)
	params = append(strconv.AppendInt(params, t.ID.room()|leastDisaggID, 10), '}')
	edits = put(edits, disaggregatedParams, params)
	edits = put(edits, "max_completion_tokens", nil)
	return jsonedit.Apply(dst, t.Body, edits...)
}

// Traits: the reply has the parameters.
func (trtllm) Traits() Traits { return Traits{Params: true} }

// ReadPrefill returns the reply's parameters, with their type changed, and its
// token ids. Not a digit of a number changes.
func (trtllm) ReadPrefill(reply []byte) (Handover, error) {
	params, err := object(reply, disaggregatedParams)
	if err == nil && params == nil {
		params, err = inFirstChoice(reply)
	}
	if err == nil && params != nil {
		params, err = jsonedit.Apply(nil, params, jsonedit.Edit{Name: "request_type", Value: generationOnly})
	}
	if err != nil {
		return Handover{}, fmt.Errorf("prefill reply: %w", err)
	}
	h := Handover{Params: params}
	if ids, ok, _ := jsonedit.Member(reply, "prompt_token_ids"); ok && ids[0] == '[' {
		h.Prompt = ids
	}
	return h, nil
}

// inFirstChoice returns the parameters in the reply's first choice, nil without.
func inFirstChoice(reply []byte) ([]byte, error) {
	choices, ok, err := jsonedit.Member(reply, "choices")
	if err != nil || !ok || choices[0] != '[' {
		return nil, err
	}
	lo := jsonscan.Space(choices, 1)
	if choices[lo] != '{' {
		return nil, nil
	}
	return object(choices[lo:jsonscan.Skip(choices, lo, 1)], disaggregatedParams)
}

// Decode returns the client's body with what the prefill reply handed over.
func (trtllm) Decode(dst []byte, t *Try, h Handover) ([]byte, error) {
	if h.Params == nil {
		return asIs(dst, t.Body)
	}
	var room [maxEdits]jsonedit.Edit
	edits := put(withoutReserved(room[:0]), disaggregatedParams, h.Params)
	switch {
	case h.Prompt == nil:
	case t.API == prompt.Completions:
		edits = put(edits, "prompt", h.Prompt)
	case t.API == prompt.Chat:
		edits = put(edits, "prompt_token_ids", h.Prompt)
	}
	return jsonedit.Apply(dst, t.Body, edits...)
}
