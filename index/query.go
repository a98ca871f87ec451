package index

import "slices"

// Frame is a set of candidates that hold the same number of leading blocks.
type Frame struct {
	Depth int
	Pods  Bitmap
}

// Query is the answer of Index.Query. It is reusable and keeps its memory; the
// zero value is ready. Not safe for concurrent use.
type Query struct {
	// Frames are disjoint and in ascending order of depth, which is at least
	// 1. Candidates in none of them hold not even the first block.
	Frames []Frame

	found  []spot // of the leading blocks, as far as they were looked up
	last   uint64 // the hash of the last of them
	misses int    // how many of them were not there then
	warm   uint64 // keeps loads alive whose only use is to fetch memory
}

// spot is where a block's record was when it was looked up. Whoever uses it
// compares the key, by holds: a record may die, but its memory is never given to
// anything else but another record with another key or version.
type spot struct {
	chunk *chunk // nil if the block was not there
	key   uint64
	id    uint32 // noBlock if the block was not there
}

func (f *spot) record() *record { return f.chunk.record(f.id) }

// holds reports whether the record is still that of the block.
func (f *spot) holds() bool { return f.chunk != nil && f.record().key.Load() == f.key }

// ownedBy reports whether the record is still that of the block and the pod, whose
// mirror lock is held, owns it.
func (f *spot) ownedBy(pod uint8) bool {
	return f.holds() && f.chunk.owners(f.id, uint(pod/64)).Load()>>(pod%64)&1 != 0
}

// Depth returns the number of leading blocks that the pod holds.
func (q *Query) Depth(pod int) int {
	for i := range q.Frames {
		if f := &q.Frames[i]; f.Pods.Has(pod) {
			return f.Depth
		}
	}
	return 0
}

// Best returns the greatest depth.
func (q *Query) Best() int {
	if n := len(q.Frames); n > 0 {
		return q.Frames[n-1].Depth
	}
	return 0
}

// reset forgets the last answer.
func (q *Query) reset() {
	q.Frames = q.Frames[:0]
	q.found = q.found[:0]
	q.misses = 0
}

const (
	// firstStep is how many blocks are hashed before the first look-up. Then the
	// chain grows by an eighth, so that not much is hashed for nothing, but by at
	// least minStep, so that look-ups overlap, and by at most maxStep.
	firstStep = 4
	minStep   = 8
	maxStep   = 256

	// batch is how many look-ups are under way at a time. In a large index
	// each is a cache miss or two; a core can wait for some dozen of them at once.
	batch = 32
)

// Query finds out how many leading blocks of the chain each candidate holds,
// without a gap: entries behind a missing block do not count. The chain is
// hashed only as far as needed, in growing steps, up to the first block that no
// candidate holds. q also remembers where the blocks are, so that Register need
// not look them up again.
//
// Entries whose time to live has ended count until the next Expire, or
// the next registration at the same pod.
//
// No locks, no allocations once q has grown. What other goroutines change
// meanwhile is seen or not seen block by block.
func (x *Index) Query(q *Query, c Chain, candidates Bitmap) {
	q.reset()
	if c == nil || candidates.Empty() {
		return
	}
	alive := candidates
	done := 0
	for want := firstStep; ; want = done + min(done, max(minStep, done/8), maxStep) {
		n := c.Extend(want)
		for hashes := c.Hashes()[:n]; done < n; done = len(q.found) {
			x.lookup(q, hashes)
			if q.narrow(done, &alive); alive.Empty() {
				return
			}
		}
		if n < want {
			if n > 0 {
				q.Frames = append(q.Frames, Frame{n, alive})
			}
			return
		}
	}
}

// narrow leaves in alive the pods that own all blocks found from the given one
// on, and notes at which depth the others stopped.
func (q *Query) narrow(from int, alive *Bitmap) {
	a0, a1, a2, a3 := alive[0], alive[1], alive[2], alive[3]
	for k := from; k < len(q.found); k++ {
		var n0, n1, n2, n3 uint64
		if f := &q.found[k]; f.chunk != nil {
			r := f.record()
			n0, n1 = a0&r.owners[0].Load(), a1&r.owners[1].Load()
			if a2|a3 != 0 {
				far := &f.chunk.far[f.id%chunkLen]
				n2, n3 = a2&far[0].Load(), a3&far[1].Load()
			}
			if r.key.Load() != f.key { // not what lookup found; these may be another block's owners
				n0, n1, n2, n3 = 0, 0, 0, 0
			}
		}
		if n0 == a0 && n1 == a1 && n2 == a2 && n3 == a3 {
			continue
		}
		if k > 0 {
			q.Frames = append(q.Frames, Frame{k, Bitmap{a0 &^ n0, a1 &^ n1, a2 &^ n2, a3 &^ n3}})
		}
		if a0, a1, a2, a3 = n0, n1, n2, n3; a0|a1|a2|a3 == 0 {
			break
		}
	}
	*alive = Bitmap{a0, a1, a2, a3}
}

// lookup adds to q.found where the next blocks are, at most a batch of them. In a
// large index a look-up is two cache misses, so they are made to overlap: first
// all buckets are fetched, then all records to which they seem to point, and only
// then is one waited for.
func (x *Index) lookup(q *Query, hashes []uint64) {
	from := len(q.found)
	hashes = hashes[from:min(from+batch, len(hashes))]
	q.found = slices.Grow(q.found, len(hashes))[:from+len(hashes)]
	found := q.found[from:]
	warm := uint64(0)
	for _, h := range hashes {
		s := spread(h)
		warm ^= x.views[s>>keyBits].Load().table.near(x.mix.place(s))
	}
	for i, h := range hashes {
		s := spread(h)
		c, n := x.views[s>>keyBits].Load().guess(x.mix.place(s))
		if c != nil {
			warm ^= c.record(n).key.Load()
		}
		found[i] = spot{chunk: c, id: n}
	}
	q.warm = warm
	for i, h := range hashes {
		f, s := &found[i], spread(h)
		if f.chunk != nil {
			f.key = f.record().key.Load()
		}
		if f.key&identMask != s&keyMask|aliveBit && f.id != noBlock { // a wrong guess, or none
			f.chunk, f.id, f.key = x.views[s>>keyBits].Load().find(x.mix.place(s), s&keyMask)
		}
		if f.chunk == nil {
			f.id = noBlock
			q.misses++
			continue
		}
		f.id |= uint32(s>>keyBits) << blockBits
	}
	q.last = hashes[len(hashes)-1]
}
