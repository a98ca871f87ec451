package index

import "testing"

// TestOverdraft: however much is promised, a pod has no more entries than that allows;
// the oldest go, and when all promises are taken back nothing of them is left.
func TestOverdraft(t *testing.T) {
	const room, promises = 1000, overdraft/1000 + 20
	x := New(Options{})
	x.SetCapacity(1, room)
	kept := newChain(1, room)
	x.Register(epoch, 1, kept, nil)
	depth := func() int {
		var q Query
		x.Query(&q, kept, Of(1))
		return q.Depth(1)
	}
	chains, regs := make([]*fakeChain, promises), make([]Registration, promises)
	for i := range regs {
		chains[i] = newChain(uint64(i)+2, room)
		regs[i] = x.Promise(epoch, 1, chains[i], nil)
		if n := x.PodBlocks(1); n > room+overdraft {
			t.Fatalf("%d entries after %d promises", n, i+1)
		}
		if i < overdraft/room && depth() != room {
			t.Fatalf("%d of %d blocks are left after %d promises", depth(), room, i+1)
		}
	}
	if depth() == room {
		t.Error("nothing has gone for more promises than are allowed")
	}
	for i, r := range regs {
		x.Undo(r, chains[i])
	}
	if n := x.PodBlocks(1); n > room || n != depth() {
		t.Errorf("%d entries are left, %d of them of what was kept", n, depth())
	}
	if err := audit(x); err != nil {
		t.Error(err)
	}
}
