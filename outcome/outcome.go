package outcome

// Outcome is how one leg ended. The zero value says that it has not ended.
// Every leg that was begun ends in exactly one Outcome other than Unended.
type Outcome uint8

const (
	// Unended is the zero value: the leg still runs. Finding it in a log or a
	// metric is a bug of whoever drove the leg.
	Unended Outcome = iota
	// Answered: the pod's answer (a status below 400) reached its reader whole.
	Answered
	// Refused4xx: the pod answered whole, with a 4xx.
	Refused4xx
	// Refused5xx: the pod answered whole, with a 5xx.
	Refused5xx
	// Unreachable: no connection came about (refused, no route, dial timeout,
	// name not found, TLS handshake failed). Nothing of the request was sent.
	Unreachable
	// LostSending: the connection broke before the last byte of the body was
	// written. The pod cannot have begun to compute.
	LostSending
	// LostWaiting: the connection broke after the body was written whole and
	// before any byte of an answer. The pod may have begun to compute.
	LostWaiting
	// TimedOut: responseHeaderTimeoutMs or prefillTimeoutMs passed.
	TimedOut
	// ClientGone: the client left, before the answer or during it.
	ClientGone
	// Cut: the pod broke off after its answer had begun.
	Cut
	// Unusable: a prefill pod answered 2xx or 3xx, but not with a reply from
	// which the decode leg can be made (not a JSON object, too large, a
	// redirect).
	Unusable
	// Unsent: a pod was picked and its load reserved, but the leg was given up
	// before anything was sent, as a decode leg is whose prefill leg failed.
	Unsent
	// Dropped: Calinix gave the leg up because the other leg of its pair, sent at
	// once with it, has failed or has ended; nobody had a byte of its answer.
	Dropped
	// NoPod: no pod of the role is up, or all of them are at their maxConns.
	NoPod
	// Overloaded: the pods were too busy for the request to be sent, and it was held
	// for as long as it may be, or could not be held: too many are (overload).
	Overloaded
	// Rejected: Calinix itself refused the request before any pod was picked
	// (bad mode header, body too large, no memory for it, unknown model).
	Rejected

	count // number of outcomes; not one of them
)

// Leg is the part that a pod plays in a request.
type Leg uint8

const (
	// Single is the only leg of a request in single mode.
	Single Leg = iota
	// Prefill is the first leg in dispatch mode. Its answer reaches nobody, so
	// it may be repeated even if a pod has begun to compute.
	Prefill
	// Decode is the second leg in dispatch mode, whose answer the client gets.
	Decode
)

// Retry is the answer to whether another pod may be tried.
type Retry uint8

const (
	// RetryNever: what happened is final.
	RetryNever Retry = iota
	// RetryListed: only if the pod's status is in the configured retryStatus.
	RetryListed
	// RetryElsewhere: yes, at a pod that this leg has not tried.
	RetryElsewhere
)

// All calls f for every outcome that a leg can end in, Unended left out.
func All(f func(Outcome)) {
	for o := Unended + 1; o < count; o++ {
		f(o)
	}
}

// OfStatus returns the outcome of a leg whose pod answered whole with status.
// A prefill pod has no business redirecting: its 3xx is Unusable.
func OfStatus(leg Leg, status int) Outcome {
	switch {
	case status >= 500:
		return Refused5xx
	case status >= 400:
		return Refused4xx
	case leg == Prefill && status >= 300:
		return Unusable
	default:
		return Answered
	}
}
