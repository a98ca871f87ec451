// Package dispatch makes the bodies of the two legs of a disaggregated
// request: one pod computes the prompt (prefill), another generates from what
// it computed (decode).
//
// It stands where a dispatched request is served: the prefill leg's body is
// made from the client's, the prefill pod's reply is read, and the decode
// leg's body is made from the client's and what that reply handed over. How
// engines want this differs; each way is a Connector in a file of its own.
// Bodies are spliced at byte level: outside the members that a connector
// documents not a byte of the client's JSON changes.
//
// The package knows no HTTP: sending the legs, and what follows from their
// ends, is the caller's. A connector says by its Traits whether the decode leg
// is made when the prefill reply was read, or both legs are sent at once and
// meet by an id that they share. No engine has a call that gives back blocks
// which no decode leg fetches: the engine's own lease or time limit does, and
// the cancelled connection of a leg that still runs.
package dispatch
