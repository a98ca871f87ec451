package index

import "time"

// Register notes that the pod is about to hold the whole chain: c is completed,
// and its blocks become the pod's most recently used ones, the last block first
// and the first one last, so that heads outlive tails. Then the oldest
// entries beyond the pod's capacity, the index's ceiling and the time to live go.
// Of a chain longer than capacity or ceiling only the head is taken.
//
// q is the Query made for the same chain, which saves looking everything up once
// more; nil costs an allocation. It serves several registrations.
//
// About 3 ns for a block that the pod already holds, 0.2 µs for another. No
// allocations but for growth, and for a pod that held blocks behind a gap.
func (x *Index) Register(now time.Time, pod uint8, c Chain, q *Query) Registration {
	return x.RegisterTail(now, Registration{pod: pod}, c, q)
}

// RegisterHead is Register for the blocks that are hashed already; c is not
// extended. RegisterTail is to follow.
func (x *Index) RegisterHead(now time.Time, pod uint8, c Chain, q *Query) Registration {
	head := Registration{pod: pod}
	if c == nil {
		return head
	}
	return x.register(x.tick(now), c.Hashes(), q, head)
}

// RegisterTail completes c and what RegisterHead began for the same request;
// the result stands for both.
func (x *Index) RegisterTail(now time.Time, head Registration, c Chain, q *Query) Registration {
	if c == nil {
		return head
	}
	c.Complete()
	return x.register(x.tick(now), c.Hashes(), q, head)
}

func (x *Index) register(tick uint32, hashes []uint64, q *Query, head Registration) Registration {
	pod := head.pod
	m := &x.pods[pod]
	n := min(int64(len(hashes)), m.capacity.Load(), x.max.Load(), maxChain)
	if n == 0 {
		return head
	}
	if q == nil {
		q = new(Query)
	}
	if f := len(q.found); f > len(hashes) || f > 0 && hashes[f-1] != q.last {
		q.reset() // made for another chain
	}
	hashes = hashes[:n]
	if x.expire(pod, tick, 1) > 0 {
		q.reset() // some of the blocks found may have gone
	}

	p := pass{x: x, m: m, q: q, head: head, decay: x.decayAt(tick)}
	for try := 0; ; try++ {
		need := x.locate(q, hashes)
		if p.insert = x.reserve(need); p.insert {
			p.room = need
		}
		m.mu.Lock()
		p.Registration = Registration{pod: pod, done: len(hashes), tick: m.begin(x, tick), wipes: m.wipes}
		p.run(hashes)
		x.evict(pod, len(hashes), func(int64) bool { return int64(m.n) > m.capacity.Load() })
		m.publish(x)
		m.mu.Unlock()
		if p.insert {
			x.blocks.Add(-p.room)
			return p.Registration
		}
		if try == maxTries || !x.makeRoom(need) {
			return p.Registration
		}
		q.reset() // some of the blocks found may have had to make room
	}
}

// maxTries bounds how often a registration at the ceiling makes room that
// others then take.
const maxTries = 16

// locate looks up what q does not know yet and returns how many of the blocks
// do not exist.
func (x *Index) locate(q *Query, hashes []uint64) int64 {
	for len(q.found) < len(hashes) {
		x.lookup(q, hashes)
	}
	if len(q.found) == len(hashes) || q.misses == 0 {
		return int64(q.misses)
	}
	missing := int64(0)
	for i := range hashes {
		if q.found[i].chunk == nil {
			missing++
		}
	}
	return missing
}

// reserve promises room for n more blocks, if there is so much.
func (x *Index) reserve(n int64) bool {
	for n > 0 {
		b := x.blocks.Load()
		if b+n > x.max.Load() {
			return false
		}
		if x.blocks.CompareAndSwap(b, b+n) {
			break
		}
	}
	return true
}

// pass is one walk over a chain from tail to head, under the mirror's lock.
type pass struct {
	Registration
	x      *Index
	m      *mirror
	q      *Query
	head   Registration // of the same request, or zero
	decay  decay
	room   int64 // what is left of the reserved room for new blocks
	insert bool  // else only touch what is there
}

func (p *pass) run(hashes []uint64) {
	if !p.head.stands(p.m) {
		p.head = Registration{done: p.head.done}
	}
	count := p.head.done // the first block whose popularity grows
	if !p.insert {
		count = len(hashes)
	}
	m, found := p.m, p.q.found[:len(hashes)]
	word, bit := uint(p.pod/64), uint64(1)<<(p.pod%64)
	var first, last uint32 // a run of neighbours in the list, to be renewed as one
	var at *nodes          // where last lies
	for k := len(hashes) - 1; k >= 0; k-- {
		f := &found[k]
		if f.holds() && f.chunk.owners(f.id, word).Load()&bit != 0 {
			// Mostly the next entry is the next node. This is a branch, not a
			// choice of values: the loads of the next round do not wait for it.
			i := last % nodesLen
			if at != nil && i+1 < nodesLen && at.word[i+1] == f.id &&
				at.newer[i] == uint16(last+1) && at.newerHi[i] == uint8((last+1)>>16) {
				last++
			} else {
				first, last = p.seek(first, last, f.id)
				at = m.nodes[last/nodesLen]
				p.refresh(k, last)
			}
		} else if !p.insert {
			continue
		} else {
			switch p.own(f, hashes[k]) {
			case notOwned:
				continue
			case wasOwned:
				first, last = p.seek(first, last, f.id)
				at = m.nodes[last/nodesLen]
				p.refresh(k, last)
			case nowOwned:
				m.renew(first, last)
				first, last, at = 0, 0, nil
				m.insert(p.x, f.id)
				p.add(k)
			}
		}
		if k >= count {
			use := &f.record().use
			storeUse(use, p.decay.use(loadUse(use)))
		}
	}
	m.renew(first, last)
}

// seek goes on to a block's entry: along the run if it continues there, else by
// the look-up, and a new run begins.
func (p *pass) seek(first, last, id uint32) (uint32, uint32) {
	m := p.m
	if last != 0 {
		if next := m.newer(last); next != 0 && m.word(next)&^freshFlag == id {
			return first, next
		}
		m.renew(first, last)
	}
	e := m.find(p.x, id)
	return e, e
}

// refresh marks an entry that was fresh as touched, unless it is this request's own.
func (p *pass) refresh(k int, e uint32) {
	w := p.m.word(e)
	if w&freshFlag == 0 {
		return
	}
	if p.head.inserted(k) {
		p.add(k)
		return
	}
	p.m.setWord(e, w&^freshFlag)
}

// own makes the pod an owner of a block that the query did not see it own.
func (p *pass) own(f *spot, hash uint64) ownership {
	unknown := f.chunk == nil
	o := p.x.own(p.pod, f, spread(hash), packUse(p.decay.now, 0), &p.room)
	if unknown && o != notOwned {
		p.q.misses--
	}
	return o
}
