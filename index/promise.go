package index

import (
	"math"
	"time"
)

// A pod is credited with a prompt when it gets it, but whether the prompt displaces
// anything in the pod's cache shows later: one that the engine refuses, for being too
// long, say, displaces nothing. So what Promise notes is a
// promise. Its entries are found by queries like any others, and come on top of the
// pod's capacity until Keep makes them what the pod holds, or Undo takes them back.
// (The ceiling of the index holds for promises too: what goes for it is the oldest of
// all pods, and would have been the next to go.)

// overdraft is how many entries promises may add to a pod's capacity. Beyond it the
// oldest go at once, so that many promises at a time cost no more memory.
const overdraft = 4 * MaxChain

// over says whether the pod has more entries than it may: the oldest are to go. It has
// the form that evict takes. The caller holds the mirror's lock.
func (m *mirror) over(int64) bool {
	most := m.capacity.Load()
	return int64(m.n-m.promised) > most || int64(m.n) > most+overdraft
}

// Keep says that the pod has kept what r promised: it has computed the prompt. What
// has gone of it with the Undo of another leg comes back, and the oldest entries that
// are now beyond the pod's capacity go. c is the chain that was registered. Keep may be
// called once, and not after Undo. It takes a look at each promised
// block's record, and 0.1 µs for each entry that goes.
func (x *Index) Keep(now time.Time, r Registration, c Chain) {
	if c == nil || r.Blocks() == 0 {
		return
	}
	m := &x.pods[r.pod]
	hashes, tick := c.Hashes(), x.tick(now)
	m.mu.Lock()
	defer m.mu.Unlock()
	r.spans(func(s span, at uint32) { x.keep(m, r.pod, s, hashes, at, tick) })
	x.evict(r.pod, math.MaxInt, m.over)
	m.publish(x)
}

// keep makes the blocks of a span entries of the pod that are no promise. at is
// probably the entry of the last of them. A block for which there is no room is left
// out.
func (x *Index) keep(m *mirror, pod uint8, s span, hashes []uint64, at, tick uint32) {
	for i, k := 0, min(s.to, len(hashes))-1; k >= s.from; i, k = i+1, k-1 {
		if i%warmAhead == 0 {
			x.warmRecords(m, at)
		}
		if e, _ := x.entry(m, pod, hashes[k], at); e != 0 {
			n := m.node(e)
			m.promised -= n.word() & promisedFlag / promisedFlag
			n.setWord(n.word() &^ promisedFlag)
			at = n.newer()
			continue
		}
		var f spot
		room := int64(0)
		if x.own(pod, &f, hashes[k], packUse(x.decayAt(tick).now, 0), &room) == nowOwned {
			m.begin(x, tick)
			m.insert(x, f.id, 0)
		}
		x.release(room)
	}
}

// entry returns the pod's entry of the block with the hash, and the block's id; 0 if
// it has none. It is probably at, which costs a look at the record; else it is looked
// up. The caller holds the mirror's lock.
//
// The blocks of a registration that were promised together are neighbours in the list,
// from the tail of the chain to its head, unless something has happened to one of them:
// so the entry after that of a block is probably that of the block before.
func (x *Index) entry(m *mirror, pod uint8, hash uint64, at uint32) (e, id uint32) {
	sp := spread(hash)
	no, key := uint8(sp>>keyBits), sp&keyMask
	v := x.views[no].Load()
	if at != 0 && at <= m.used {
		id := m.node(at).word() &^ promisedFlag
		if id>>blockBits == uint32(no) && v.chunk(id&blockMask).record(id).key.Load()&identMask == key|aliveBit {
			return at, id
		}
	}
	c, n, _ := v.find(x.mix.place(sp), key)
	if c == nil || c.owners(n, uint(pod/64)).Load()>>(pod%64)&1 == 0 {
		return 0, 0
	}
	id = uint32(no)<<blockBits | n
	return m.find(x, id), id
}
