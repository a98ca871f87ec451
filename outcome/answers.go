package outcome

import "strconv"

// String returns LogName, so that an Outcome prints as it is logged.
func (o Outcome) String() string { return o.row().name }

// LogName is the value of the log field calinix_outcome and of the label
// reason of calinix_retries_total and calinix_prefill_failures_total.
func (o Outcome) LogName() string { return o.row().name }

// Retry says whether a leg that ended so may be tried at another pod, as far
// as the outcome is concerned. Caps are the caller's: the configured retries
// and the budget for single and decode legs, one further try for prefill legs.
func (o Outcome) Retry(leg Leg) Retry {
	if leg == Prefill {
		return o.row().prefill
	}
	return o.row().retry
}

// Retryable is Retry as yes or no; listed says whether the status that the
// pod sent is in the configured retryStatus (false if it sent none).
func (o Outcome) Retryable(leg Leg, listed bool) bool {
	r := o.Retry(leg)
	return r == RetryElsewhere || r == RetryListed && listed
}

// PrefillFailed says whether a prefill leg that ended so has failed in a way
// to which onPrefillFailure applies: it is counted in
// calinix_prefill_failures_total, and with decodeOnly the request goes on
// without it once no further try is left. A 4xx is the client's to see, and a
// client that left needs no answer.
func (o Outcome) PrefillFailed() bool { return o.row().without }

// PassiveFailure says whether the outcome counts towards health.passive. All
// others leave the count as it is; none resets it.
func (o Outcome) PassiveFailure() bool { return o.row().sick }

// UndoRegistration says whether the chain that was registered at the pod when
// the leg began is to be taken back: the pod has not computed the prompt.
func (o Outcome) UndoRegistration() bool { return o.row().undo }

// Status returns the status with which the client is answered if this leg's
// end is the end of the request, 0 if there is none to send: the status is
// out already, or the leg's end decides nothing. given is the status that the
// pod sent, or that Calinix chose in a rejection; 0 if there was none.
func (o Outcome) Status(leg Leg, given int) int {
	s := o.row().status
	if leg == Prefill {
		s = o.row().pstatus
	}
	switch s {
	case statusPassed:
		return given
	case statusLast:
		if given == 503 {
			return 503
		}
		return 502
	default:
		return int(s)
	}
}

// MetricCode returns the label code of calinix_requests_total: the status
// that the pod sent, else the one that the client gets in its place (also for
// a 200 that was Unusable, or whose body came too late), "499" if the client
// left, "cut" if the pod broke off, and "" for a leg that is not counted because
// it was never sent. given is as in Status. It allocates only for a status
// outside 100 to 599.
func (o Outcome) MetricCode(leg Leg, given int) string {
	switch o.row().code {
	case codeGone:
		return "499"
	case codeCut:
		return "cut"
	case codeStatus:
		if given == 0 {
			given = o.Status(leg, 0)
		}
		return statusText(given)
	case codeClient:
		return statusText(o.Status(leg, given))
	default:
		return ""
	}
}

// statusTexts holds "100" to "599" so that counting a leg allocates nothing.
var statusTexts = func() (t [500]string) {
	for i := range t {
		t[i] = strconv.Itoa(100 + i)
	}
	return t
}()

func statusText(status int) string {
	if i := status - 100; i >= 0 && i < len(statusTexts) {
		return statusTexts[i]
	}
	return strconv.Itoa(status)
}
