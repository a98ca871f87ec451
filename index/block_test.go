package index

import (
	"testing"
	"time"
)

// TestReusedRecord: what a query found is not taken for anything else after the
// block disappeared and its record became another's, or even its own again.
func TestReusedRecord(t *testing.T) {
	x := New(Options{})
	a := &fakeChain{hashes: []uint64{11}}
	b := &fakeChain{hashes: []uint64{otherInShard(11)}}
	x.Register(epoch, 1, a, nil)
	var q Query
	x.Query(&q, a, All(Pods))
	spot := q.found[0]
	if !spot.holds() || q.Depth(1) != 1 {
		t.Fatal("the block was not found")
	}

	x.Wipe(1)
	if spot.holds() {
		t.Error("the record is still the block's after it disappeared")
	}
	x.Register(epoch, 2, b, nil)
	if c, n := x.where(t, b.hashes[0]); c != spot.chunk || n != spot.id {
		t.Fatal("the record was not used again; the test is void")
	}
	if spot.holds() {
		t.Error("another block's record passes for the block's")
	}
	x.Wipe(2)
	x.Register(epoch, 3, a, nil)
	if c, n := x.where(t, 11); c != spot.chunk || n != spot.id {
		t.Fatal("the record was not used again; the test is void")
	}
	if spot.holds() {
		t.Error("the same block's new life passes for the old one")
	}

	// A registration with that query registers the right blocks all the same.
	x.Register(epoch, 4, a, &q)
	if err := audit(x); err != nil {
		t.Fatal(err)
	}
	x.Query(&q, a, All(Pods))
	if q.Depth(3) != 1 || q.Depth(4) != 1 || len(q.Frames) != 1 {
		t.Errorf("frames %v, want pods 3 and 4 at depth 1", q.Frames)
	}
}

// otherInShard returns another hash in the shard of h.
func otherInShard(h uint64) uint64 {
	for o := h + 1; ; o++ {
		if Shard(o, shardCount) == Shard(h, shardCount) {
			return o
		}
	}
}

func (x *Index) where(t *testing.T, hash uint64) (*chunk, uint32) {
	t.Helper()
	s := spread(hash)
	c, n, _ := x.views[s>>keyBits].Load().find(x.mix.place(s), s&keyMask)
	return c, uint32(s>>keyBits)<<blockBits | n
}

// TestReusedRecords: the same for a chain, of which another one has taken all the
// records, and the entries in the pod's list as well.
func TestReusedRecords(t *testing.T) {
	x := New(Options{})
	a, b := newChain(1, 30), &fakeChain{}
	for _, h := range a.hashes {
		b.hashes = append(b.hashes, otherInShard(h))
	}
	x.Register(epoch, 1, a, nil)
	var q Query
	x.Query(&q, a, All(Pods))
	x.Wipe(1)
	x.Register(epoch, 1, b, nil)
	x.Register(epoch.Add(time.Minute), 1, a, &q)
	if err := audit(x); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*fakeChain{a, b} {
		if x.Query(&q, c, All(Pods)); q.Depth(1) != 30 {
			t.Errorf("depth %d, want 30", q.Depth(1))
		}
	}
	l := listing(x, 1)
	if len(l) != 60 || l[0].hash != spread(b.hashes[29]) || l[59].hash != spread(a.hashes[0]) {
		t.Errorf("%d entries, want those of the one chain and then those of the other", len(l))
	}
}

// TestReusedRecordInRun: a run of neighbours ends where the next entry in the list
// is that of another block in the same record.
func TestReusedRecordInRun(t *testing.T) {
	x := New(Options{})
	const tail = 99
	a := &fakeChain{hashes: []uint64{11, tail}}
	b := &fakeChain{hashes: []uint64{otherInShard(11), tail}}
	x.Register(epoch, 1, a, nil)
	var q Query
	x.Query(&q, a, All(Pods))
	x.Register(epoch, 1, &fakeChain{hashes: []uint64{tail}}, nil)
	x.SetCapacity(1, 1) // block 11 goes
	x.SetCapacity(1, 0)
	x.Register(epoch, 1, b, nil)
	x.Register(epoch, 1, b, nil)
	if _, id := x.where(t, b.hashes[0]); id != q.found[0].id {
		t.Fatal("the record was not used again; the test is void")
	}
	x.Register(epoch, 1, a, &q)
	if got := x.PodBlocks(1); got != 3 {
		t.Errorf("%d blocks, want 3", got)
	}
	if err := audit(x); err != nil {
		t.Fatal(err)
	}
}

// TestStaleQuery: what happened between query and registration is not forgotten in
// making room.
func TestStaleQuery(t *testing.T) {
	t.Run("blocks came", func(t *testing.T) {
		x := New(Options{MaxBlocks: 4})
		a, b := newChain(1, 2), newChain(2, 2)
		var q Query
		x.Query(&q, a, All(Pods))
		x.Register(epoch, 2, a, nil)
		x.Register(epoch, 3, b, nil)
		x.Register(epoch, 1, a, &q)
		for p := range 3 {
			if got := x.PodBlocks(uint8(p + 1)); got != 2 {
				t.Errorf("pod %d has %d blocks, want 2: no room had to be made", p+1, got)
			}
		}
	})
	t.Run("blocks went", func(t *testing.T) {
		x := New(Options{MaxBlocks: 10, StaleTTL: time.Minute})
		a, b := newChain(1, 8), newChain(2, 5)
		x.Register(epoch, 1, &fakeChain{hashes: a.hashes[:5]}, nil)
		x.Register(epoch.Add(time.Minute), 2, b, nil)
		var q Query
		x.Query(&q, a, All(Pods))
		if q.Depth(1) != 5 {
			t.Fatalf("depth %d, want 5", q.Depth(1))
		}
		x.Register(epoch.Add(2*time.Minute), 1, a, &q)
		if x.PodBlocks(1) != 8 || x.PodBlocks(2) != 2 || x.Blocks() != 10 {
			t.Errorf("pod 1 has %d blocks, pod 2 %d, want 8, 2", x.PodBlocks(1), x.PodBlocks(2))
		}
	})
}

// TestQueryOfAnotherChain: a registration does not trust a query that was made for
// something else.
func TestQueryOfAnotherChain(t *testing.T) {
	x := New(Options{})
	a, b, c := newChain(1, 20), newChain(2, 30), newChain(3, 5)
	x.Register(epoch, 1, a, nil)
	var q Query
	x.Query(&q, a, All(Pods))
	x.Register(epoch, 2, b, &q)
	x.Register(epoch, 2, c, &q)
	for _, ch := range []*fakeChain{b, c} {
		x.Query(&q, ch, All(Pods))
		if q.Depth(2) != len(ch.hashes) || q.Depth(1) != 0 {
			t.Errorf("frames %v, want pod 2 at %d", q.Frames, len(ch.hashes))
		}
	}
	if got := x.PodBlocks(2); got != 35 {
		t.Errorf("pod 2 has %d blocks, want 35", got)
	}
}

// skipUnderRace leaves out a test of one goroutine and very many blocks: each look-up
// is a dozen atomic loads, which the race detector makes a thousand times slower.
func skipUnderRace(t *testing.T) {
	t.Helper()
	if raceEnabled {
		t.Skip("one goroutine, many blocks: minutes under the race detector")
	}
}

// TestMemoryComesBack: an index that was large and is empty is small.
func TestMemoryComesBack(t *testing.T) {
	skipUnderRace(t)
	x := New(Options{})
	fill(x, 150_000, 250, sixteen)
	full := x.Bytes()
	for p := range 16 {
		x.Wipe(uint8(p))
	}
	if err := audit(x); err != nil {
		t.Fatal(err)
	}
	if left := x.Bytes(); left > full/20 || x.Blocks() != 0 {
		t.Errorf("%d blocks and %d bytes left of %d", x.Blocks(), left, full)
	}
	fill(x, 1000, 250, sixteen)
	if err := audit(x); err != nil {
		t.Fatal(err)
	}
}

// TestBytes: what the index says of its size is what a block and an entry cost.
func TestBytes(t *testing.T) {
	skipUnderRace(t)
	x := New(Options{})
	before := x.Bytes()
	const n = 200_000
	chains := fill(x, n, 250, func(int) uint8 { return 0 })
	one := x.Bytes() - before
	for _, c := range chains {
		x.Register(epoch, 1, c, nil)
	}
	entry := float64(x.Bytes()-before-one) / n
	block := float64(one)/n - entry
	if entry < 14 || entry > 16.5 || block < 52 || block > 60 {
		t.Errorf("%.1f bytes an entry, %.1f a block; want about 15.5 and 56", entry, block)
	}
}

// TestFullShard: prompts that all fall into one shard fill it up; further blocks are
// left out, and all stays sound.
func TestFullShard(t *testing.T) {
	skipUnderRace(t)
	const golden64 uint64 = golden
	inverse := golden64 // of golden modulo 2^64, by Newton's method
	for range 6 {
		inverse *= 2 - golden64*inverse
	}
	x := New(Options{})
	key := uint64(0)
	register := func(n int) {
		c := &fakeChain{}
		for range n {
			key++
			c.hashes = append(c.hashes, key*inverse) // the spread hash is key: shard 0
		}
		x.Register(epoch, 9, c, nil)
	}
	for range 1 << blockBits / MaxChain {
		register(MaxChain)
	}
	if got := x.Blocks(); got != 1<<blockBits {
		t.Fatalf("%d blocks in one shard, want %d", got, 1<<blockBits)
	}
	register(100)
	if got := x.Blocks(); got != 1<<blockBits {
		t.Errorf("%d blocks after the shard was full, want %d", got, 1<<blockBits)
	}
	x.SetCapacity(9, 1000)
	register(100)
	if got := x.PodBlocks(9); got != 1000 {
		t.Errorf("%d entries, want 1000", got)
	}
	if err := audit(x); err != nil {
		t.Error(err)
	}
}
