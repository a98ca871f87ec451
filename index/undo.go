package index

// Undo takes back what the registration made entries of its pod and no other
// registration has touched since; what it merely touched stays. It is for a leg
// that failed before its first byte, and may be called once. c is the chain that
// was registered. The popularity of the blocks stays: they were asked for.
//
// Once the pod was wiped, or ageing has begun to take entries as young as the
// registration's, nothing is taken back: an entry bears no owner's name, only
// that it is fresh, and a later registration may have inserted the lost ones
// again. What is left of this one is the next to go anyway.
func (x *Index) Undo(r Registration, c Chain) {
	if c == nil || r.Blocks() == 0 {
		return
	}
	m := &x.pods[r.pod]
	hashes := c.Hashes()
	m.mu.Lock()
	defer m.mu.Unlock()
	if !r.stands(m) {
		return
	}
	gone := x.takeBack(m, r.pod, r.fresh, hashes)
	for _, s := range r.more {
		gone += x.takeBack(m, r.pod, s, hashes)
	}
	x.release(gone)
	m.publish(x)
}

// stands reports whether whatever the registration inserted is still there,
// fresh or touched.
func (r *Registration) stands(m *mirror) bool {
	return m.lost == 0 || age(r.tick, m.lost) > 0
}

// takeBack removes the fresh entries of a span and returns how many blocks
// disappeared.
func (x *Index) takeBack(m *mirror, pod uint8, s span, hashes []uint64) (gone int64) {
	for k := min(s.to, len(hashes)) - 1; k >= s.from; k-- {
		sp := spread(hashes[k])
		no := uint8(sp >> keyBits)
		c, n, _ := x.views[no].Load().find(x.mix.place(sp), sp&keyMask)
		if c == nil || c.owners(n, uint(pod/64)).Load()>>(pod%64)&1 == 0 {
			continue
		}
		id := uint32(no)<<blockBits | n
		if e := m.find(x, id); m.node(e).word()&freshFlag != 0 {
			m.remove(x, e)
			if x.disown(pod, id) {
				gone++
			}
		}
	}
	return gone
}
