package index

import (
	"testing"
	"time"
)

// TestSteadyStateAllocatesNothing: at its bounds the index needs no memory for a
// query, for a registration of known or of new blocks, or for taking it back.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	skipUnderRace(t)
	x := New(Options{MaxBlocks: 20_000, StaleTTL: time.Minute})
	chains := fill(x, 40_000, 100, sixteen)
	var q Query
	now := epoch
	i := 0
	step := func() {
		now = now.Add(10 * time.Millisecond)
		c := chains[i%len(chains)]
		c.done = 0
		x.Query(&q, c, All(Pods))
		r := x.Promise(now, sixteen(i), c, &q)
		if x.Register(now, sixteen(i), c, &q); i%3 == 0 {
			x.Undo(r, c)
		} else {
			x.Keep(now, r, c)
		}
		x.Hot(now, &q, 0, 2)
		x.Expire(now)
		i++
	}
	for range 3 * len(chains) { // tables of all shards and mirrors reach their size
		step()
	}
	if n := testing.AllocsPerRun(500, step); n != 0 {
		t.Errorf("%.1f allocations a round, want 0", n)
	}
}
