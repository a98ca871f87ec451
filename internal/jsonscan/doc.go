// Package jsonscan reads JSON where it lies: it validates, finds the ends of
// values and decodes strings, and builds nothing.
//
// It is the loop that two rooms need. prompt walks a request body once and
// keeps spans of it; jsonedit walks the same kind of body and splices members.
// Both must agree with each other, and with every strict JSON reader, on what
// is well formed, so the loop exists once, below both, and imports neither.
//
// What counts as JSON is RFC 8259 as encoding/json reads it, made stricter in
// one point: bytes that are not UTF-8 are a fault (encoding/json replaces
// them; engines, which decode the body before they parse it, refuse them). An
// escape of half a surrogate pair is accepted and decodes to U+FFFD. Containers
// may nest MaxDepth deep; deeper input is a fault, found without recursion a
// level.
//
// Positions are byte offsets. A function that returns a position returns a
// negative one for a fault, which [Error] turns into place and cause. Time is
// linear in the input, memory constant.
package jsonscan
