package outcome

// Break is what is known when a leg ended without a whole answer. Its fields
// are facts in the order in which they come to pass, so that the driver of a
// leg only notes what it saw and OfBreak alone decides.
type Break struct {
	// Connected: a connection, TLS included, was had for this leg.
	Connected bool
	// BodyWritten: the last byte of the body was handed to the connection.
	BodyWritten bool
	// Began: the status line of an answer was read (of a final one, not 1xx).
	Began bool
	// TimedOut: a limit of ours passed: responseHeaderTimeoutMs or
	// prefillTimeoutMs. A dial that took too long is none of these.
	TimedOut bool
	// ClientGone: the client's context had ended by then. It outweighs the
	// rest, for what broke after the client left broke because of it.
	ClientGone bool
}

// OfBreak returns the outcome of a leg that ended without a whole answer.
func OfBreak(b Break) Outcome {
	switch {
	case b.ClientGone:
		return ClientGone
	case b.TimedOut:
		return TimedOut
	case b.Began:
		return Cut
	case !b.Connected:
		return Unreachable
	case !b.BodyWritten:
		return LostSending
	default:
		return LostWaiting
	}
}
