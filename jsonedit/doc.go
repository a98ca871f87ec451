// Package jsonedit changes top-level members of a JSON object by splicing
// bytes: what is not a named member stays byte for byte as it was, numbers and
// nested key order included.
//
// Its part of a request's way: in dispatch mode a connector says which members
// a leg sets and which it loses; Apply writes that leg's body from the client's
// in one pass, and Member takes the hand-over parameters out of the prefill
// pod's reply as they stand. Decoding and encoding instead would round
// integers above 2^53, reorder tool schemas, and so change the prompt.
//
// Names are compared decoded ("k" and "\u006b" are one name). Of a member
// that occurs more than once the last one counts, as in Python's json module
// and in encoding/json. The loop over the JSON is internal/jsonscan's, which
// prompt uses too, so both agree on what a body says.
package jsonedit
