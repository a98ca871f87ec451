package index

import (
	"fmt"
	"slices"
	"time"
	"unsafe"
)

// twin does everything to an index and to its model and says where they differ.
type twin struct {
	x    *Index
	m    *model
	q    Query
	regs []twinReg
}

type twinReg struct {
	chain *fakeChain
	real  Registration
	model modelReg
}

// epoch is the time at which all tests of the index begin.
var epoch = time.Unix(1_000_000_000, 0)

func newTwin(o Options) *twin {
	t := &twin{x: New(o), m: newModel(o)}
	t.x.tick(epoch)
	return t
}

func (t *twin) register(at time.Duration, pod int, c *fakeChain, q *Query) (blocks int) {
	t.m.register(at, pod, c.hashes)
	return t.x.Register(epoch.Add(at), uint8(pod), c, q)
}

func (t *twin) promise(at time.Duration, pod int, c *fakeChain) *twinReg {
	r := twinReg{chain: c}
	r.real = t.x.Promise(epoch.Add(at), uint8(pod), c, nil)
	r.model = t.m.promise(at, pod, c.hashes)
	return t.note(r)
}

// keep and undo end the registration, of which nothing is left then.
func (t *twin) keep(at time.Duration, r *twinReg) {
	t.x.Keep(epoch.Add(at), r.real, r.chain)
	t.m.keep(at, r.model)
	*r = twinReg{chain: r.chain}
}

func (t *twin) undo(r *twinReg) {
	t.x.Undo(r.real, r.chain)
	t.m.undo(r.model)
	*r = twinReg{chain: r.chain}
}

func (t *twin) note(r twinReg) *twinReg {
	t.regs = append(t.regs, r)
	return &t.regs[len(t.regs)-1]
}

// query asks for the chain and compares the answer with brute force.
func (t *twin) query(c *fakeChain, candidates Bitmap) error {
	c.done = 0
	t.x.Query(&t.q, c, candidates)
	return t.compareAnswer(c, candidates)
}

func (t *twin) compareAnswer(c *fakeChain, candidates Bitmap) error {
	var seen Bitmap
	last := 0
	for _, f := range t.q.Frames {
		if f.Depth <= last || f.Pods.Empty() || f.Pods.Intersects(seen) || !f.Pods.AndNot(candidates).Empty() {
			return fmt.Errorf("frames %v are not ascending, disjoint and of candidates %v", t.q.Frames, candidates)
		}
		last, seen = f.Depth, seen.Or(f.Pods)
	}
	best := 0
	for p := range Pods {
		want := 0
		if candidates.Has(p) {
			want = t.m.depth(p, c.hashes)
		}
		if got := t.q.Depth(p); got != want {
			return fmt.Errorf("pod %d holds %d leading blocks, query says %d", p, want, got)
		}
		best = max(best, want)
	}
	if t.q.Best() != best {
		return fmt.Errorf("best depth is %d, query says %d", best, t.q.Best())
	}
	return nil
}

// compare checks everything that can be seen, and the order of every mirror.
func (t *twin) compare() error {
	if err := audit(t.x); err != nil {
		return err
	}
	if got, want := t.x.Blocks(), len(t.m.blocks()); got != want {
		return fmt.Errorf("%d blocks, want %d", got, want)
	}
	for p := range t.m.pods {
		want := t.m.pods[p].entries
		if got := t.x.PodBlocks(uint8(p)); got != len(want) {
			return fmt.Errorf("pod %d has %d blocks, want %d", p, got, len(want))
		}
		got := listing(t.x, p)
		if !slices.EqualFunc(got, want, func(a, b modelEntry) bool { return spread(b.hash) == a.hash && a.tick == b.tick }) {
			return fmt.Errorf("pod %d: list %v, want %v", p, got, want)
		}
	}
	return nil
}

// listing returns a mirror's entries, oldest first, by spread hash.
func listing(x *Index, pod int) []modelEntry {
	m := &x.pods[pod]
	var l []modelEntry
	tick := uint32(0)
	for e := m.oldest; e != 0; e = m.node(e).newer() {
		w := m.node(e).word()
		if w&markFlag != 0 {
			tick = w & tickMask
			continue
		}
		no, n := w&idMask>>blockBits, w&blockMask
		key := x.views[no].Load().chunks[n/chunkLen].record(n).key.Load()
		l = append(l, modelEntry{hash: uint64(no)<<keyBits | key&keyMask, tick: tick})
	}
	return l
}

// audit checks the invariants of an index that nobody uses at the moment.
func audit(x *Index) error {
	bytes, live, owned, entries := int64(unsafe.Sizeof(*x)), 0, 0, 0
	for no := range x.shards {
		s, v := &x.shards[no], x.views[no].Load()
		if v != emptyView {
			bytes += v.bytes()
		}
		alive := 0
		for i, c := range v.chunks {
			if c == nil {
				continue
			}
			bytes += chunkBytes
			for j := range chunkLen {
				n := uint32(i*chunkLen + j)
				if n >= s.used {
					break
				}
				k, owners := c.record(n).key.Load(), 0
				for w := range uint(ownerWords) {
					owners += Bitmap{c.owners(n, w).Load()}.Count()
				}
				if (k&aliveBit != 0) != (owners > 0) {
					return fmt.Errorf("shard %d record %d: key %#x, %d owners", no, n, k, owners)
				}
				if owners == 0 {
					continue
				}
				alive++
				owned += owners
				place := x.mix.place(uint64(no)<<keyBits | k&keyMask)
				if fc, fn, fk := v.find(place, k&keyMask); fc != c || fn != n || fk != k {
					return fmt.Errorf("shard %d record %d is not found", no, n)
				}
			}
		}
		free := 0
		for f := uint32(s.free); f != 0; f = uint32(loadRelaxed(&v.chunks[(f-1)/chunkLen].record(f - 1).use)) {
			free++
		}
		if alive != int(s.live) || alive+free != int(s.used) || alive > v.table.room() {
			return fmt.Errorf("shard %d: %d alive, %d free, counted %d of %d", no, alive, free, s.live, s.used)
		}
		live += alive
	}
	for pod := range x.pods {
		m := &x.pods[pod]
		n, err := auditMirror(x, m, uint8(pod))
		if err != nil {
			return fmt.Errorf("pod %d: %w", pod, err)
		}
		entries += n
		bytes += int64(len(m.nodes))*(nodesBytes+8) + m.lookup.bytes()
	}
	if entries != owned {
		return fmt.Errorf("%d entries, but %d owner bits", entries, owned)
	}
	if live != x.Blocks() {
		return fmt.Errorf("%d blocks, but %d are counted", live, x.Blocks())
	}
	if bytes != x.Bytes() {
		return fmt.Errorf("%d bytes, but %d are counted", bytes, x.Bytes())
	}
	return nil
}

func auditMirror(x *Index, m *mirror, pod uint8) (entries int, err error) {
	marks, promised, prev, tick := 0, 0, uint32(0), uint32(0)
	for e := m.oldest; e != 0; prev, e = e, m.node(e).newer() {
		w := m.node(e).word()
		switch {
		case m.node(e).older() != prev:
			return 0, fmt.Errorf("node %d: older is %d, want %d", e, m.node(e).older(), prev)
		case prev == 0 && w&markFlag == 0:
			return 0, fmt.Errorf("the list begins without a mark")
		case w&markFlag != 0:
			marks++
			if prev != 0 && (m.node(prev).word()&markFlag != 0 || w&tickMask <= tick) {
				return 0, fmt.Errorf("mark %d after %d, or neighbours", w&tickMask, tick)
			}
			tick = w & tickMask
			if m.node(e).newer() == 0 && e != m.mark {
				return 0, fmt.Errorf("mark %d is not known as the newest", e)
			}
			continue
		}
		entries++
		if w&promisedFlag != 0 {
			promised++
		}
		if m.find(x, w&idMask) != e {
			return 0, fmt.Errorf("entry %d is not found", e)
		}
		no, n := w&idMask>>blockBits, w&blockMask
		c := x.views[no].Load().chunk(n)
		if c == nil || c.owners(n, uint(pod/64)).Load()>>(pod%64)&1 == 0 {
			return 0, fmt.Errorf("entry %d without owner bit", e)
		}
	}
	free := 0
	for e := m.freeAt; e != 0; e = m.node(e).newer() {
		if free++; m.node(e).word()&markFlag == 0 {
			return 0, fmt.Errorf("free node %d could be taken for an entry", e)
		}
	}
	tail := uint32(0)
	if entries > 0 {
		tail = m.node(m.oldest).word()
	}
	switch {
	case prev != m.newest:
		return 0, fmt.Errorf("newest is %d, want %d", m.newest, prev)
	case entries != int(m.n) || marks != int(m.marks) || entries+marks+free != int(m.used):
		return 0, fmt.Errorf("%d entries, %d marks, %d free nodes; counted %d, %d of %d", entries, marks, free, m.n, m.marks, m.used)
	case entries != int(m.count.Load()) || tail != m.tail.Load():
		return 0, fmt.Errorf("published %d entries, tail %#x; want %d, %#x", m.count.Load(), m.tail.Load(), entries, tail)
	case m.over(0):
		return 0, fmt.Errorf("%d entries, %d of them promised, capacity %d", entries, m.promised, m.capacity.Load())
	case promised != int(m.promised):
		return 0, fmt.Errorf("%d entries are promised, %d are counted", promised, m.promised)
	}
	return entries, nil
}
