package index

// Registration is what one registration did, for Undo. It is a value; the zero
// value did nothing.
type Registration struct {
	pod   uint8
	done  int    // leading blocks registered
	fresh span   // blocks that became entries of the pod
	more  []span // further such blocks, if the pod held some behind a gap
	tick  uint32
}

// span is a range of blocks, from included, to excluded.
type span struct{ from, to int }

func (s span) has(k int) bool { return s.from <= k && k < s.to }

// inserted reports whether the registration made block k an entry.
func (r *Registration) inserted(k int) bool {
	if r.fresh.has(k) {
		return true
	}
	for _, s := range r.more {
		if s.has(k) {
			return true
		}
	}
	return false
}

// add notes that block k, in front of all noted so far, was made an entry.
func (r *Registration) add(k int) {
	s := &r.fresh
	if n := len(r.more); n > 0 {
		s = &r.more[n-1]
	}
	switch {
	case s.from == s.to:
		*s = span{k, k + 1}
	case s.from == k+1:
		s.from = k
	default:
		r.more = append(r.more, span{k, k + 1})
	}
}

// Blocks returns how many blocks were newly made entries of the pod.
func (r *Registration) Blocks() int {
	n := r.fresh.to - r.fresh.from
	for _, s := range r.more {
		n += s.to - s.from
	}
	return n
}
