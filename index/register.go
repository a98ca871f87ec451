package index

import (
	"math"
	"time"
)

// Register notes that the pod holds the whole chain: c is completed, and its
// blocks become the pod's most recently used ones, the last block first and the
// first one last, so that heads outlive tails. Then the oldest entries beyond the
// pod's capacity, the index's ceiling and the time to live go. Of a chain longer
// than capacity, ceiling or MaxChain only the head is taken.
//
// q is the Query made for the same chain, which saves looking everything up once
// more; nil costs an allocation. It serves several registrations.
//
// About 6 ns for a block that the pod holds already, 0.2 µs for another, 0.1 µs
// for each entry that has to go. No allocations but for growth, and for a pod
// that held blocks behind a gap. It returns how many blocks are new to the pod, or were
// only promised.
func (x *Index) Register(now time.Time, pod uint8, c Chain, q *Query) int {
	r := x.Promise(now, pod, c, q)
	x.Keep(now, r, c)
	return r.Blocks()
}

// MaxChain is how many blocks of a prompt are registered at most, the first ones:
// in blocks of 16 tokens a million tokens, more than engines take. So one request
// cannot push everything else out.
const MaxChain = 1 << 16

// Promise is Register for a prompt that the pod has got, but not computed yet: nothing
// goes for it but for the index's ceiling (promise.go). Keep or Undo is to follow.
func (x *Index) Promise(now time.Time, pod uint8, c Chain, q *Query) Registration {
	if c == nil {
		return Registration{pod: pod}
	}
	c.Complete()
	return x.register(x.tick(now), pod, c.Hashes(), q)
}

func (x *Index) register(tick uint32, pod uint8, hashes []uint64, q *Query) Registration {
	m := &x.pods[pod]
	n := min(int64(len(hashes)), m.capacity.Load(), x.max.Load(), MaxChain)
	if n == 0 {
		return Registration{pod: pod}
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

	p := pass{x: x, m: m, q: q, decay: x.decayAt(tick)}
	for try := 0; ; try++ {
		need := x.locate(q, hashes)
		p.insert = x.reserve(need)
		if !p.insert && try == 0 { // before others make room, make sure
			q.reset()
			need = x.locate(q, hashes)
			p.insert = x.reserve(need)
		}
		if p.insert {
			p.room = need
		}
		m.mu.Lock()
		m.begin(x, tick)
		p.Registration = Registration{pod: pod}
		p.run(hashes)
		x.evict(pod, math.MaxInt, m.over)
		m.publish(x)
		m.mu.Unlock()
		if p.insert {
			x.release(p.room)
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
// do not exist, as far as q knows.
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

// release gives back n blocks, promised or gone. Mostly there are none, and then
// the word that all registrations share is left alone.
func (x *Index) release(n int64) {
	if n != 0 {
		x.blocks.Add(-n)
	}
}

// pass is one walk over a chain from tail to head, under the mirror's lock.
type pass struct {
	Registration
	x      *Index
	m      *mirror
	q      *Query
	decay  decay
	room   int64 // what is left of the reserved room for new blocks
	insert bool  // else only touch what is there, and nothing becomes more popular
	warmed int   // the first block for which warm has been called
}

func (p *pass) run(hashes []uint64) {
	if p.room >= warmAhead/2 { // a few are not worth it
		p.warmed = len(hashes)
	}
	m, found := p.m, p.q.found[:len(hashes)]
	var first, last uint32 // a run of neighbours in the list, to be renewed as one
	for k := len(hashes) - 1; k >= 0; k-- {
		if last != 0 {
			if k, last = p.follow(found, k, last); k < 0 {
				break
			}
		}
		f := &found[k]
		o := wasOwned
		if !f.ownedBy(p.pod) {
			if o = notOwned; p.insert {
				if k < p.warmed {
					p.warm(hashes, k)
				}
				o = p.x.own(p.pod, f, hashes[k], packUse(p.decay.now, 0), &p.room)
			}
		}
		switch o {
		case notOwned:
			continue
		case wasOwned:
			first, last = p.seek(first, last, f.id)
			if m.node(last).word()&promisedFlag != 0 {
				p.add(k, last)
			}
		case nowOwned:
			m.renew(first, last)
			first, last = 0, 0
			p.add(k, m.insert(p.x, f.id, promisedFlag))
		}
		if p.insert {
			use := &f.record().use
			storeRelaxed(use, p.decay.use(loadRelaxed(use)))
		}
	}
	m.renew(first, last)
}

// follow goes on with the run that ends with the entry last as long as the
// blocks from k on backwards, in the list as in the chain, also lie one after the
// other in memory, which they mostly do. It returns the first k and the
// last entry for which this does not hold.
//
// An entry in the mirror is proof that the pod owns the record; what remains
// to be seen is that the record is the block's.
func (p *pass) follow(found []spot, k int, last uint32) (int, uint32) {
	at := p.m.nodes[last/nodesLen]
	counts, d := p.insert, p.decay
	for i := last % nodesLen; k >= 0 && k < len(found) && i < nodesLen-1; i++ {
		f, next := &found[k], last+1
		// Branches, not a choice of values: the next round does not wait for
		// these loads.
		if at[i].newer() != next || at[i+1].word() != f.id {
			break
		}
		r := f.record()
		if r.key.Load() != f.key {
			break
		}
		if counts {
			storeRelaxed(&r.use, d.use(loadRelaxed(&r.use)))
		}
		last = next
		k--
	}
	return k, last
}

// seek goes on to a block's entry: along the run if it continues there, else by
// the look-up, and a new run begins.
func (p *pass) seek(first, last, id uint32) (uint32, uint32) {
	m := p.m
	if last != 0 {
		if next := m.node(last).newer(); next != 0 && m.node(next).word()&^promisedFlag == id {
			return first, next
		}
		m.renew(first, last)
	}
	e := m.find(p.x, id)
	return e, e
}
