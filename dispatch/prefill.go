package dispatch

import (
	"slices"

	"github.com/calinix/caddy-calinix/jsonedit"
	"github.com/calinix/caddy-calinix/prompt"
)

var (
	one = []byte("1")
	no  = []byte("false")
)

// limits are the members by which a client bounds the length of an answer.
// vLLM reads max_tokens and max_completion_tokens in chat, max_tokens in
// completions and messages, max_output_tokens in responses.
var limits = [...]string{"max_tokens", "max_completion_tokens", "max_output_tokens"}

// proper says which limits a prefill leg of the API carries whatever the
// client sent; nil if the API has none. In chat it is both, because engines
// differ in which of the two they prefer.
func proper(api prompt.API) []string {
	switch api {
	case prompt.Chat:
		return limits[0:2]
	case prompt.Completions, prompt.Messages:
		return limits[0:1]
	case prompt.Responses:
		return limits[2:3]
	default:
		return nil
	}
}

// unfit are the members that cannot stay in a prefill leg: the first two are
// refused if they exceed a limit of 1, stream_options if stream is false; and
// an engine that runs a response in the background answers before it has
// computed anything.
var unfit = [...]string{"min_tokens", "min_completion_tokens", "stream_options", "background"}

// firstToken appends to edits what lets body end after one token, in one
// piece: each output limit that is present becomes 1, the one proper to the
// API is added, stream becomes false, the unfit go. Reserved members go too.
func firstToken(edits []jsonedit.Edit, api prompt.API, body []byte) ([]jsonedit.Edit, error) {
	needed := proper(api)
	if needed == nil {
		return nil, errNoPrefill
	}
	found, err := look(body)
	if err != nil {
		return nil, err
	}
	for i, limit := range limits {
		if found.limits[i] || slices.Contains(needed, limit) {
			edits = append(edits, jsonedit.Edit{Name: limit, Value: one})
		}
	}
	edits = append(edits, jsonedit.Edit{Name: "stream", Value: no})
	for _, name := range unfit {
		edits = append(edits, jsonedit.Edit{Name: name})
	}
	return withoutReserved(edits), nil
}
