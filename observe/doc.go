// Package observe reads what an engine says of a request's tokens beside the
// copy of its answer to the client. No byte is changed, held back or asked for:
// a [Meter] keeps the last few KiB of what passes, and looks for the object
// "usage" in them when the answer has ended. If the client did not ask for usage
// there mostly is none, and that costs a copy of these bytes and one search.
//
// All shapes of answers are read: chat and text completions
// (usage.prompt_tokens, prompt_tokens_details.cached_tokens), responses
// (input_tokens, input_tokens_details.cached_tokens) and messages (input_tokens,
// which leaves out cache_read_input_tokens and cache_creation_input_tokens),
// whole and as server-sent events. An answer that is compressed is none of this
// package's business.
package observe
