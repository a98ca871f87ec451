package index

import "testing"

// TestMaxChain: of a longer prompt the first MaxChain blocks are registered, and
// what was known before stays.
func TestMaxChain(t *testing.T) {
	x := New(Options{})
	before := &fakeChain{hashes: []uint64{3, 5}}
	x.Register(epoch, 1, before, nil)
	long := &fakeChain{hashes: make([]uint64, MaxChain+1000)}
	for i := range long.hashes {
		long.hashes[i] = uint64(i+7) * 0x9e3779b97f4a7c15
	}
	for range 2 { // the second time all of it is known
		x.Register(epoch, 1, long, nil)
		if got := x.PodBlocks(1); got != MaxChain+2 {
			t.Errorf("%d blocks of the pod, want %d", got, MaxChain+2)
		}
	}
	var q Query
	for _, c := range []struct {
		chain *fakeChain
		depth int
	}{{before, 2}, {long, MaxChain}} {
		x.Query(&q, c.chain, All(Pods))
		if got := q.Depth(1); got != c.depth {
			t.Errorf("depth %d, want %d", got, c.depth)
		}
	}
	if err := audit(x); err != nil {
		t.Fatal(err)
	}
}
