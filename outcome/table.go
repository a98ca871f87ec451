package outcome

// row answers every question about one outcome. A new question is a new
// column; it must then be answered here for each outcome, and the test of
// docs/failures.md asks for its words.
type row struct {
	name    string // log field calinix_outcome, and reason label of the retry and prefill failure counters
	retry   Retry  // single and decode legs: retries, retryBudget, retryStatus apply
	prefill Retry  // prefill legs: one further try of their own
	without bool   // prefill legs: onPrefillFailure applies
	sick    bool   // counts towards health.passive
	undo    bool   // the leg's registration is taken back from the index
	code    code   // metric label code
	status  status // single and decode legs: status for the client
	pstatus status // prefill legs: status for the client
}

// code is the rule for the metric label code.
type code uint8

const (
	codeNone   code = iota // the leg is not counted
	codeStatus             // the status that the pod sent, else the one that the client gets
	codeClient             // the status that the client gets, whatever the pod sent
	codeGone               // 499
	codeCut                // cut
)

// status is the rule for the status that the client gets: a fixed one, or
// one of these.
type status uint16

const (
	statusNone   status = 0 // none can be sent, or none is due
	statusPassed status = 1 // the status that is given: the pod's own, or Calinix's own of a rejection
	statusLast   status = 2 // 503 if the pod said 503, else 502
)

// The reasons for the less obvious cells:
//   - LostWaiting is final for a single or decode leg: the pod may be
//     computing, and one request must not cost two generations.
//   - TimedOut is no mark against the pod: a long queue is not a fault. For a
//     prefill leg the other try gets what is left of prefillTimeoutMs.
//   - A pod that said 4xx or 5xx has not computed the prompt, so its chain is
//     taken back. One that began to answer has; and engines keep the blocks
//     that they had filled when a client left, so these legs stay registered.
var table = [count]row{
	Unended:     {name: "unended"},
	Answered:    {name: "answered", code: codeStatus, status: statusPassed},
	Refused4xx:  {name: "refused_4xx", retry: RetryListed, undo: true, code: codeStatus, status: statusPassed, pstatus: statusPassed},
	Refused5xx:  {name: "refused_5xx", retry: RetryListed, prefill: RetryElsewhere, without: true, sick: true, undo: true, code: codeStatus, status: statusPassed, pstatus: statusLast},
	Unreachable: {name: "unreachable", retry: RetryElsewhere, prefill: RetryElsewhere, without: true, sick: true, undo: true, code: codeStatus, status: 502, pstatus: 502},
	LostSending: {name: "lost_sending", retry: RetryElsewhere, prefill: RetryElsewhere, without: true, sick: true, undo: true, code: codeStatus, status: 502, pstatus: 502},
	LostWaiting: {name: "lost_waiting", prefill: RetryElsewhere, without: true, sick: true, undo: true, code: codeStatus, status: 502, pstatus: 502},
	TimedOut:    {name: "timed_out", prefill: RetryElsewhere, without: true, undo: true, code: codeClient, status: 504, pstatus: 504},
	ClientGone:  {name: "client_gone", code: codeGone, status: 499, pstatus: 499},
	Cut:         {name: "cut", prefill: RetryElsewhere, without: true, sick: true, code: codeCut, pstatus: 502},
	Unusable:    {name: "unusable", prefill: RetryElsewhere, without: true, sick: true, undo: true, code: codeClient, status: 502, pstatus: 502},
	Unsent:      {name: "unsent", undo: true},
	Dropped:     {name: "dropped", undo: true},
	NoPod:       {name: "no_pod", without: true, code: codeStatus, status: 503, pstatus: 503},
	Overloaded:  {name: "overloaded", code: codeStatus, status: 503, pstatus: 503},
	Rejected:    {name: "rejected", code: codeStatus, status: statusPassed, pstatus: statusPassed},
}

// row returns the answers for o; a value that is no outcome has those of
// Unended.
func (o Outcome) row() *row {
	if o >= count {
		o = Unended
	}
	return &table[o]
}
