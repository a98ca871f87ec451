package index

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestReadersBesideWriters: while other pods come and go on the very same blocks,
// a query always sees the whole chain at the pod that keeps it, and never anything
// at the pod that holds nothing.
func TestReadersBesideWriters(t *testing.T) {
	const keeper, nobody = 3, 130
	x := New(Options{})
	kept := newChain(1, 300)
	x.Register(epoch, keeper, kept, nil)

	var stop atomic.Bool
	var wg sync.WaitGroup
	run := func(seed uint64, f func(r *rand.Rand)) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, 7))
			for !stop.Load() {
				f(r)
			}
		})
	}
	for i := range uint64(3) {
		run(i, func(r *rand.Rand) { // registers a part of the kept chain and something of its own, and forgets it
			pod := uint8(64*i + 5)
			c := &fakeChain{hashes: append([]uint64(nil), kept.hashes[:r.IntN(300)]...)}
			for range r.IntN(200) {
				c.hashes = append(c.hashes, r.Uint64N(5000)<<32) // often the same again
			}
			var q Query
			x.Query(&q, c, All(256))
			reg := x.Promise(epoch, pod, c, &q)
			if r.IntN(3) == 0 {
				x.Undo(reg, c)
				return
			}
			switch x.Keep(epoch, reg, c); r.IntN(2) {
			case 1:
				x.Wipe(pod)
			default:
				x.SetCapacity(pod, 100)
				x.SetCapacity(pod, 0)
			}
		})
	}
	var queries atomic.Int64
	for i := range uint64(2) {
		run(10+i, func(r *rand.Rand) {
			var q Query
			c := &fakeChain{hashes: kept.hashes}
			x.Query(&q, c, All(256))
			if got := q.Depth(keeper); got != 300 {
				t.Errorf("the keeper holds 300 blocks, a query saw %d", got)
				stop.Store(true)
			}
			if got := q.Depth(nobody); got != 0 {
				t.Errorf("the pod that holds nothing was credited with %d blocks", got)
				stop.Store(true)
			}
			// Blocks that come and go are never a later pod's by mistake.
			c = &fakeChain{hashes: []uint64{r.Uint64N(5000) << 32}}
			x.Query(&q, c, Of(keeper, nobody))
			if len(q.Frames) != 0 {
				t.Errorf("block %#x was credited to %v", c.hashes[0], q.Frames)
				stop.Store(true)
			}
			queries.Add(1)
		})
	}
	deadline := time.After(2 * time.Second)
	for queries.Load() < 20_000 && !stop.Load() {
		select {
		case <-deadline:
			stop.Store(true)
		default:
			time.Sleep(time.Millisecond)
		}
	}
	stop.Store(true)
	wg.Wait()
	if queries.Load() < 100 {
		t.Errorf("only %d queries beside the writers", queries.Load())
	}
	if err := audit(x); err != nil {
		t.Error(err)
	}
}

// TestReuseBesideReaders: two blocks take turns in one record, each with another
// owner, as fast as can be; a reader never credits a block with the other's owner.
func TestReuseBesideReaders(t *testing.T) {
	x := New(Options{})
	a := &fakeChain{hashes: []uint64{77}}
	b := &fakeChain{hashes: []uint64{otherInShard(77)}}
	var stop atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		var q Query
		for !stop.Load() {
			for p, c := range []*fakeChain{a, b} {
				q.reset()
				x.Undo(x.Promise(epoch, uint8(p), c, &q), c)
			}
		}
	})
	var q Query
	hits := 0
	deadline := time.Now().Add(5 * time.Second)
	for i := 0; hits < 20_000 && (i%1000 != 0 || time.Now().Before(deadline)); i++ {
		c := &fakeChain{hashes: a.hashes}
		x.Query(&q, c, Of(0, 1))
		hits += q.Depth(0)
		if q.Depth(1) != 0 {
			t.Errorf("after %d hits a block was credited to another block's owner", hits)
			break
		}
	}
	stop.Store(true)
	wg.Wait()
	if hits == 0 {
		t.Error("the reader never met the block; the test is void")
	}
	if err := audit(x); err != nil {
		t.Error(err)
	}
}

// TestStress does everything at once, within a low ceiling, and audits what is left.
// The ceiling holds at every moment.
func TestStress(t *testing.T) {
	const ceiling = 3000
	x := New(Options{MaxBlocks: ceiling, StaleTTL: time.Second})
	var clock atomic.Int64
	now := func() time.Time { return epoch.Add(time.Duration(clock.Load())) }
	var wg sync.WaitGroup
	for i := range uint64(6) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(i, 3))
			var q Query
			for range 400 {
				clock.Add(int64(2 * time.Millisecond))
				pod := uint8(r.IntN(8) * 32)
				choices := make([]byte, r.IntN(200))
				for range len(choices) / 8 {
					choices[r.IntN(len(choices))] = byte(r.IntN(3))
				}
				c := treeChain(choices)
				x.Query(&q, c, All(256))
				switch k := r.IntN(40); k {
				case 0:
					x.Wipe(pod)
				case 1:
					x.Expire(now())
				case 2:
					x.SetCapacity(pod, r.IntN(3)*500)
				case 3:
					x.Configure(Options{MaxBlocks: ceiling, StaleTTL: time.Duration(r.IntN(3)) * time.Second})
				case 4, 5, 6, 7, 8, 9:
					x.Undo(x.Promise(now(), pod, c, &q), c)
				default:
					x.Register(now(), pod, c, &q)
				}
				if b := x.Blocks(); b > ceiling {
					t.Errorf("%d blocks above the ceiling of %d", b, ceiling)
					return
				}
				x.Hot(now(), &q, 0, 1)
			}
		})
	}
	wg.Wait()
	if err := audit(x); err != nil {
		t.Fatal(err)
	}
	for pod := range Pods {
		x.Wipe(uint8(pod))
	}
	if err := audit(x); err != nil {
		t.Fatal(err)
	}
	if x.Blocks() != 0 {
		t.Errorf("%d blocks left after all pods were wiped", x.Blocks())
	}
}
