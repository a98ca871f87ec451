package calinix

import (
	"fmt"
	"testing"

	"github.com/calinix/caddy-calinix/internal/bench/yard"
	"github.com/calinix/caddy-calinix/selection"
)

// BenchmarkGrowth is BenchmarkDecision's decision over the length of the prompt in
// bytes, over the number of pods, and over the number of blocks of other prompts in
// the index. What does not vary is 8 KiB, 256 pods, 100,000 blocks, and 32 tokens a
// block.
func BenchmarkGrowth(b *testing.B) {
	const size, pods = 8 << 10, 256
	for kib := 1; kib <= 1024; kib *= 4 {
		c := decisionCase{name: fmt.Sprint("bytes=", kib<<10), size: kib << 10, pods: pods}
		c.bodies = min(512, max(16, 16<<20/c.size))
		b.Run(c.name, func(b *testing.B) { grow(b, c) })
	}
	for _, n := range []int{1, 4, 16, 64, 128, 256} {
		b.Run(fmt.Sprint("pods=", n), func(b *testing.B) { grow(b, decisionCase{size: size, bodies: 512, pods: n}) })
	}
	for blocks := 1000; blocks <= 10_000_000; blocks *= 10 {
		b.Run(fmt.Sprint("blocks=", blocks), func(b *testing.B) {
			grow(b, decisionCase{size: size, bodies: 512, pods: pods, others: blocks})
		})
	}
}

func grow(b *testing.B, c decisionCase) {
	c.block = 32
	d := newDecisions(b, c)
	for _, s := range []selection.Strategy{selection.CacheAware, selection.ExpectedTTFT} {
		b.Run(s.String(), func(b *testing.B) {
			d.h.rules.strategy = s
			yard.Measure(b, yard.Work{Texts: d.texts, Before: d.arrive, Run: d.decide, After: d.giveUp, Most: len(d.room)})
		})
	}
}
