// Package outcome says how a leg of a request ended, in one value.
//
// It stands at the end of a request's way: whoever drove a leg (single,
// prefill or decode) names the Outcome once, and everything that follows from
// it is looked up in one table: whether the leg may be tried at another pod,
// whether it counts against the pod's health, whether the chain registered for
// it is taken back from the index, what the metric and the log call it, and
// which status the client gets.
//
// docs/failures.md holds the same table for people; a test compares the two.
// The package does no I/O, knows no clock and imports nothing of ours.
package outcome
