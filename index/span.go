package index

// Registration is what one registration promised, for Keep or Undo. It is a value; the
// zero value promised nothing.
type Registration struct {
	pod   uint8
	entry uint32 // the pod's entry of the last block of fresh when it was promised
	fresh span   // blocks that became entries of the pod, or were promised before
	more  []span // further such blocks, if the pod held some behind a gap
}

// span is a range of blocks, from included, to excluded.
type span struct{ from, to int }

// add notes that block k, in front of all noted so far, is promised, as entry e.
func (r *Registration) add(k int, e uint32) {
	s := &r.fresh
	if n := len(r.more); n > 0 {
		s = &r.more[n-1]
	}
	switch {
	case s.from == s.to:
		*s, r.entry = span{k, k + 1}, e
	case s.from == k+1:
		s.from = k
	default:
		r.more = append(r.more, span{k, k + 1})
	}
}

// spans calls f for each range of the blocks that are promised, from the chain's tail
// to its head, with the entry of the range's last block, if that is known.
func (r *Registration) spans(f func(s span, at uint32)) {
	f(r.fresh, r.entry)
	for _, s := range r.more {
		f(s, 0)
	}
}

// Blocks returns how many blocks are promised.
func (r *Registration) Blocks() int {
	n := r.fresh.to - r.fresh.from
	for _, s := range r.more {
		n += s.to - s.from
	}
	return n
}
