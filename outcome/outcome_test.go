package outcome

import (
	"regexp"
	"testing"
)

var legs = map[string]Leg{"single": Single, "prefill": Prefill, "decode": Decode}

// TestEveryOutcomeAnswersEveryQuestion guards against an outcome without a
// row, and against rows that contradict each other.
func TestEveryOutcomeAnswersEveryQuestion(t *testing.T) {
	names := map[string]Outcome{}
	tidy := regexp.MustCompile(`^[a-z0-9_]+$`)
	n := 0
	All(func(o Outcome) {
		n++
		if !tidy.MatchString(o.LogName()) {
			t.Errorf("outcome %d: log name %q", o, o.LogName())
		}
		if other, taken := names[o.LogName()]; taken {
			t.Errorf("outcomes %d and %d are both called %s", other, o, o)
		}
		names[o.LogName()] = o
		if o.String() != o.LogName() {
			t.Errorf("%s prints as %q", o.LogName(), o.String())
		}
		for name, leg := range legs {
			// Only an outcome that decides nothing, or comes after the
			// headers, has no status of its own.
			own := o.Status(leg, 0)
			decidesNothing := o == Unsent || o == Dropped || o == Answered || o == Refused4xx || o == Rejected ||
				o == Refused5xx && leg != Prefill || o == Cut && leg != Prefill
			if (own == 0) != decidesNothing {
				t.Errorf("%s, %s: status %d", o, name, own)
			}
			if o.Retryable(leg, false) && !o.Retryable(leg, true) {
				t.Errorf("%s, %s: a listed status makes it less retryable", o, name)
			}
			if (o.MetricCode(leg, 200) == "") != (o == Unsent || o == Dropped) {
				t.Errorf("%s, %s: metric code %q", o, name, o.MetricCode(leg, 200))
			}
		}
		if o.Retry(Single) != o.Retry(Decode) {
			t.Errorf("%s: single and decode legs differ", o)
		}
		if o.Retry(Prefill) == RetryElsewhere && !o.PrefillFailed() {
			t.Errorf("%s: a prefill leg that may be tried again has failed", o)
		}
		if o.PassiveFailure() && o.Retry(Prefill) != RetryElsewhere {
			t.Errorf("%s: the pod's fault, but no other prefill pod is tried", o)
		}
	})
	if n != int(count)-1 || len(names) != n {
		t.Errorf("All visits %d outcomes, %d names; want %d", n, len(names), count-1)
	}
}

// TestUnended pins that a leg which was not ended, and a value that is no
// outcome, follow nothing up and can be told in a log.
func TestUnended(t *testing.T) {
	for _, o := range []Outcome{Unended, count, 255} {
		if o.LogName() != "unended" || o.Retryable(Prefill, true) || o.Retryable(Single, true) ||
			o.PrefillFailed() || o.PassiveFailure() || o.UndoRegistration() ||
			o.Status(Single, 200) != 0 || o.MetricCode(Single, 200) != "" {
			t.Errorf("%d answers like a leg that ended", o)
		}
	}
}

// TestRules says again, in the contract's words, what the table says by row.
func TestRules(t *testing.T) {
	type ask struct {
		o      Outcome
		leg    Leg
		listed bool
	}
	for a, want := range map[ask]bool{
		{Unreachable, Single, false}:  true,
		{LostSending, Decode, false}:  true,
		{LostWaiting, Single, true}:   false, // the pod may have begun
		{LostWaiting, Prefill, false}: true,  // its output reaches nobody
		{Refused5xx, Single, false}:   false,
		{Refused5xx, Single, true}:    true,
		{Refused4xx, Decode, true}:    true,
		{Refused4xx, Prefill, true}:   false, // a prefill 4xx goes to the client
		{Refused5xx, Prefill, false}:  true,
		{TimedOut, Single, true}:      false,
		{TimedOut, Prefill, false}:    true,
		{Cut, Single, true}:           false,
		{Cut, Prefill, false}:         true,
		{ClientGone, Prefill, true}:   false,
	} {
		if got := a.o.Retryable(a.leg, a.listed); got != want {
			t.Errorf("%s, leg %d, listed %v: retryable is %v", a.o, a.leg, a.listed, got)
		}
	}
	for _, c := range []struct {
		o     Outcome
		leg   Leg
		given int
		want  int
	}{
		{Refused5xx, Prefill, 503, 503},
		{Refused5xx, Prefill, 500, 502},
		{Refused5xx, Prefill, 504, 502},
		{Refused4xx, Prefill, 422, 422},
		{Refused5xx, Single, 500, 500},
		{TimedOut, Prefill, 0, 504},
		{Unreachable, Decode, 0, 502},
		{Rejected, Single, 413, 413},
	} {
		if got := c.o.Status(c.leg, c.given); got != c.want {
			t.Errorf("%s, leg %d, given %d: client gets %d, want %d", c.o, c.leg, c.given, got, c.want)
		}
	}
}

func TestMetricCode(t *testing.T) {
	for _, c := range []struct {
		o     Outcome
		given int
		want  string
	}{
		{Answered, 200, "200"},
		{Refused5xx, 529, "529"},
		{Refused5xx, 700, "700"},
		{Unreachable, 0, "502"},
		{TimedOut, 0, "504"},
		{TimedOut, 200, "504"},
		{ClientGone, 200, "499"},
		{Cut, 200, "cut"},
		{Unusable, 200, "502"},
		{NoPod, 0, "503"},
		{Rejected, 413, "413"},
		{Unsent, 0, ""},
	} {
		if got := c.o.MetricCode(Prefill, c.given); got != c.want {
			t.Errorf("%s with %d: code %q, want %q", c.o, c.given, got, c.want)
		}
	}
	if n := testing.AllocsPerRun(100, func() { Answered.MetricCode(Single, 200) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestOfStatus(t *testing.T) {
	for _, c := range []struct {
		leg    Leg
		status int
		want   Outcome
	}{
		{Single, 101, Answered},
		{Single, 200, Answered},
		{Decode, 304, Answered},
		{Prefill, 200, Answered},
		{Prefill, 307, Unusable},
		{Prefill, 400, Refused4xx},
		{Decode, 499, Refused4xx},
		{Single, 500, Refused5xx},
		{Prefill, 999, Refused5xx},
	} {
		if got := OfStatus(c.leg, c.status); got != c.want {
			t.Errorf("leg %d, status %d: %s, want %s", c.leg, c.status, got, c.want)
		}
	}
}

// TestOfBreak goes through all 32 combinations of facts.
func TestOfBreak(t *testing.T) {
	for i := range 32 {
		b := Break{
			Connected: i&1 != 0, BodyWritten: i&2 != 0, Began: i&4 != 0,
			TimedOut: i&8 != 0, ClientGone: i&16 != 0,
		}
		want := LostWaiting
		if !b.BodyWritten {
			want = LostSending
		}
		if !b.Connected {
			want = Unreachable
		}
		if b.Began {
			want = Cut
		}
		if b.TimedOut {
			want = TimedOut
		}
		if b.ClientGone {
			want = ClientGone
		}
		if got := OfBreak(b); got != want {
			t.Errorf("%+v: %s, want %s", b, got, want)
		}
	}
}
