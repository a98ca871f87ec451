package index

import (
	"math"
	"math/bits"
	"time"
)

// A record's word "use" holds the tick of the block's last use above its
// popularity at that tick, a float32: the number of registrations of chains
// that contain the block, each forgotten exponentially with the time constant
// Options.PopularityTau. Registrations that meet at one block in the same
// instant may count once.

func packUse(tick uint32, popularity float32) uint64 {
	return uint64(tick)<<32 | uint64(math.Float32bits(popularity))
}

func unpackUse(u uint64) (tick uint32, popularity float32) {
	return uint32(u >> 32), math.Float32frombits(uint32(u))
}

// decay computes what is left at one tick of popularities of earlier ticks. It
// remembers its last answer: the blocks of a chain mostly share their ticks.
type decay struct {
	now    uint32
	rate   float64
	tick   uint32
	factor float32
}

func (x *Index) decayAt(now uint32) decay {
	return decay{now: now, rate: math.Float64frombits(x.decay.Load()), tick: now, factor: 1}
}

// use returns the word after one more registration.
func (d *decay) use(u uint64) uint64 {
	return packUse(d.now, d.left(u)+1)
}

// left returns the popularity that is left of u.
func (d *decay) left(u uint64) float32 {
	tick, pop := unpackUse(u)
	if tick != d.tick {
		d.since(tick)
	}
	return pop * d.factor
}

func (d *decay) since(tick uint32) {
	d.tick = tick
	d.factor = float32(math.Exp(d.rate * float64(age(d.now, tick))))
}

// Hot returns the largest h ≥ from such that each block k of the chain that was
// queried, from ≤ k < h, is worth one more owner: its popularity at now is at
// least ratio times (number of its owners + 1). Blocks that the query did not
// look at, some way behind the first one that no candidate holds, are not hot.
// No allocations, about 5 ns a block.
func (x *Index) Hot(now time.Time, q *Query, from int, ratio float64) int {
	d := x.decayAt(x.tick(now))
	h := max(from, 0)
	for ; h < len(q.found); h++ {
		f := &q.found[h]
		if !f.holds() {
			break
		}
		owners := 0
		for w := range uint(ownerWords) {
			owners += bits.OnesCount64(f.chunk.owners(f.id, w).Load())
		}
		pop := d.left(loadRelaxed(&f.record().use))
		if !f.holds() || float64(pop) < ratio*float64(owners+1) {
			break
		}
	}
	return h
}
