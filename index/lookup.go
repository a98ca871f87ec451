package index

// lookup leads from a block's id to its entry in a mirror.
//
// It grows bit by bit: each insertion moves one bucket of the old table to the
// new one. That takes as many insertions as the old table has buckets, and the
// new one is full only after three times as many. Moved at once, a million entries
// would hold up the registration that comes upon it, and all behind it, for
// tens of milliseconds.
type lookup struct {
	table table
	old   table // what has not been moved yet
	moved int   // so many buckets of old are empty
}

// enter makes entry e that of the block.
func (m *mirror) enter(x *Index, id, e uint32) {
	l := &m.lookup
	if int(m.n) >= l.table.room() {
		l.old, l.table = l.table, l.table.larger(l.table.room()+1)
		x.bytes.Add(int64(len(l.table)) * bucketBytes)
	}
	if len(l.old) > 0 {
		m.move(x)
	}
	l.table.insert(x.mix.place(uint64(id)), e)
}

// move moves one bucket of the old table. Its count of items that passed
// remains: too high, it makes a search longer, but not wrong.
func (m *mirror) move(x *Index) {
	l := &m.lookup
	b := &l.old[l.moved]
	for i := range b {
		w := b[i].Load()
		keep := uint64(0)
		if i == len(b)-1 {
			keep = w &^ 0xffffffff
		}
		b[i].Store(keep)
		for w &^= keep; w != 0; w >>= 32 {
			if e := uint32(w) & refMask; e != 0 {
				l.table.insert(x.mix.place(uint64(m.node(e).word()&idMask)), e)
			}
		}
	}
	if l.moved++; l.moved == len(l.old) {
		x.bytes.Add(-int64(len(l.old)) * bucketBytes)
		l.old, l.moved = nil, 0
	}
}

// find returns the entry of a block, or 0.
func (m *mirror) find(x *Index, id uint32) uint32 {
	place := x.mix.place(uint64(id))
	e := m.findIn(m.lookup.table, place, id)
	if e == 0 && len(m.lookup.old) > 0 {
		e = m.findIn(m.lookup.old, place, id)
	}
	return e
}

func (m *mirror) findIn(t table, place uint64, id uint32) uint32 {
	tag := tagOf(place)
	b := t.home(place)
	for range t {
		bk := &t[b]
		for c := bk.match(tag); c != 0; c &= c - 1 {
			if e := bk.ref(c); m.node(e).word()&(markFlag|idMask) == id {
				return e
			}
		}
		if !bk.passed() {
			break
		}
		b = t.after(b)
	}
	return 0
}

// leave takes the entry of a block out.
func (m *mirror) leave(x *Index, id, e uint32) {
	place := x.mix.place(uint64(id))
	if !m.lookup.table.remove(place, e) {
		m.lookup.old.remove(place, e)
	}
}

func (l *lookup) bytes() int64 { return int64(len(l.table)+len(l.old)) * bucketBytes }
