package index

// What an index of millions of blocks touches is in no cache. A core can wait for some
// dozen fetches at once, but not for those that it has not come upon yet: so where many
// blocks are worked off, what the next ones need is fetched first, a batch at a time.
// Query does the same for its look-ups. The sums keep the loads alive.

// warmAhead is how many entries or blocks are prepared at a time.
const warmAhead = 16

// warmOldest fetches what the next evictions will need: the records of the oldest
// entries, and the buckets that lead to these and to the entries. Nobody has used them
// for long, so they are far away, and one after the other would be waited for.
func (x *Index) warmOldest(m *mirror) {
	var due [warmAhead]uint64 // spread hashes
	n, sum := 0, uint64(0)
	for e := m.oldest; e != 0 && n < warmAhead; e = m.node(e).newer() {
		w := m.node(e).word()
		if w&markFlag != 0 {
			continue
		}
		id := w & idMask
		c, r := x.record(id)
		sum ^= m.lookup.table.near(x.mix.place(uint64(id)))
		sum ^= c.owners(id, uint(ownerWords-1)).Load()
		due[n] = uint64(id>>blockBits)<<keyBits | r.key.Load()&keyMask
		n++
	}
	for _, s := range due[:n] {
		sum ^= x.views[s>>keyBits].Load().table.near(x.mix.place(s))
	}
	m.warmed = sum
}

// warmRecords fetches the records of the entries from e on: the next ones to be kept.
func (x *Index) warmRecords(m *mirror, e uint32) {
	sum := uint64(0)
	for n := 0; n < warmAhead && e != 0 && e <= m.used; n++ {
		if w := m.node(e).word(); w&markFlag == 0 {
			_, r := x.record(w & idMask)
			sum ^= r.key.Load()
		}
		e = m.node(e).newer()
	}
	m.warmed = sum
}

// warm fetches what block k and the blocks before it will need if they are new to the
// pod: where their entries will be, and if they do not exist yet, the dead records that
// they will most likely become. One after the other, these would be waited for.
func (p *pass) warm(hashes []uint64, k int) {
	x, t := p.x, p.m.lookup.table
	p.warmed = max(0, k+1-warmAhead)
	if len(t) == 0 {
		return
	}
	sum := uint64(0)
	for i := k; i >= p.warmed; i-- {
		f := &p.q.found[i]
		id := f.id
		if f.chunk == nil {
			no := uint32(spread(hashes[i]) >> keyBits)
			v := x.views[no].Load() // before the number: it has seen the number's chunk
			n := uint32(loadRelaxed(&x.shards[no].free)) - 1
			c := v.chunk(n)
			if c == nil {
				continue
			}
			id = no<<blockBits | n
			sum ^= c.record(n).key.Load()
		}
		sum ^= t.near(x.mix.place(uint64(id)))
	}
	p.m.warmed = sum
}
