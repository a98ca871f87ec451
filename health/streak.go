package health

// Kind is what a probe has shown about a pod.
type Kind uint8

const (
	// OK: the pod answered in time with a 2xx.
	OK Kind = iota
	// BadStatus: it answered in time with another status.
	BadStatus
	// Late: no answer within the timeout. The pod may be busy.
	Late
	// Dropped: its port refused the connection or dropped it, or its address
	// has no route. The process that held the cache is gone.
	Dropped
	// Failed: the probe did not come to an answer for another reason (TLS,
	// name resolution, no HTTP, a local shortage), which says nothing about
	// the pod's cache.
	Failed
)

// String returns the kind as logs spell it.
func (k Kind) String() string {
	names := [...]string{"ok", "bad_status", "late", "dropped", "failed"}
	if int(k) >= len(names) {
		return "unknown"
	}
	return names[k]
}

// streak is the verdict on one pod and the results that led to it. It knows
// no time and no lock; the Checker's mutex guards it.
type streak struct {
	up      bool
	decided bool // false until the first probe result or passive mark
	pass    int  // consecutive good results up to now
	fail    int  // consecutive bad results up to now
	dropped bool // one of those bad results was Dropped
	forgot  bool // and the pod's index entries were given up for it
}

// newStreak returns the verdict before any result: up, or down until
// healthyThreshold good results in a row if the configuration says so.
func newStreak(down bool) streak {
	return streak{up: !down, decided: down}
}

// observe takes in one probe result. changed says that the verdict turned,
// forget that the pod has lost its cache: it is down, and its present run of
// bad results holds a Dropped. forget comes once a run, and also for a pod
// that was down already, as when a hung engine is killed at last.
func (s *streak) observe(k Kind, healthy, unhealthy int) (changed, forget bool) {
	first := !s.decided
	s.decided = true
	if k == OK {
		s.fail, s.dropped, s.forgot = 0, false, false
		s.pass++
		if !s.up && s.pass >= healthy {
			s.up = true
			return true, false
		}
		return false, false
	}
	s.pass = 0
	s.fail++
	s.dropped = s.dropped || k == Dropped
	if s.up && (first || s.fail >= unhealthy) {
		s.up = false
		changed = true
	}
	return changed, s.forget()
}

// markDown takes the pod down whatever its probes say; only good results in a
// row bring it back.
func (s *streak) markDown() (forget bool) {
	s.up, s.decided, s.pass = false, true, 0
	return s.forget()
}

// forget is true once for a run of bad results that cost the pod its cache.
func (s *streak) forget() bool {
	if s.up || !s.dropped || s.forgot {
		return false
	}
	s.forgot = true
	return true
}
