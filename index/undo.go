package index

// Undo takes back what the registration promised and nobody has kept. It is for a leg
// that failed before its first byte, and may be called once. c is the chain that was
// registered. The popularity of the blocks stays: they were asked for.
//
// An entry bears no owner's name, only that it is promised. One that another leg has
// promised too goes as well, and comes back with that one's Keep.
func (x *Index) Undo(r Registration, c Chain) {
	if c == nil || r.Blocks() == 0 {
		return
	}
	m := &x.pods[r.pod]
	hashes := c.Hashes()
	gone := int64(0)
	m.mu.Lock()
	defer m.mu.Unlock()
	r.spans(func(s span, at uint32) { gone += x.takeBack(m, r.pod, s, hashes, at) })
	x.release(gone)
	m.publish(x)
}

// takeBack removes the entries of a span that are promised only and returns how many
// blocks disappeared. at is probably the entry of the last block.
func (x *Index) takeBack(m *mirror, pod uint8, s span, hashes []uint64, at uint32) (gone int64) {
	for k := min(s.to, len(hashes)) - 1; k >= s.from; k-- {
		e, id := x.entry(m, pod, hashes[k], at)
		if e == 0 {
			continue
		}
		at = m.node(e).newer()
		if m.node(e).word()&promisedFlag == 0 {
			continue
		}
		m.remove(x, e)
		if x.disown(pod, id) {
			gone++
		}
	}
	return gone
}
