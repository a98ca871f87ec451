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
	r.spans(func(s span) { gone += x.takeBack(m, r.pod, s, hashes) })
	x.release(gone)
	m.publish(x)
}

// takeBack removes the entries of a span that are promised only and returns how many
// blocks disappeared.
func (x *Index) takeBack(m *mirror, pod uint8, s span, hashes []uint64) (gone int64) {
	for k := min(s.to, len(hashes)) - 1; k >= s.from; k-- {
		e, id := x.entry(m, pod, hashes[k])
		if e != 0 && m.node(e).word()&promisedFlag != 0 {
			m.remove(x, e)
			if x.disown(pod, id) {
				gone++
			}
		}
	}
	return gone
}

// entry returns the pod's entry of the block with the hash, and the block's id; 0 if
// it has none. The caller holds the mirror's lock.
func (x *Index) entry(m *mirror, pod uint8, hash uint64) (e, id uint32) {
	sp := spread(hash)
	no := uint8(sp >> keyBits)
	c, n, _ := x.views[no].Load().find(x.mix.place(sp), sp&keyMask)
	if c == nil || c.owners(n, uint(pod/64)).Load()>>(pod%64)&1 == 0 {
		return 0, 0
	}
	id = uint32(no)<<blockBits | n
	return m.find(x, id), id
}
