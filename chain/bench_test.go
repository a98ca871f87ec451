package chain

import (
	"fmt"
	"testing"

	"github.com/calinix/caddy-calinix/internal/bench/yard"
)

// sink keeps results alive.
var sink uint64

func measure(b *testing.B, texts [][]byte, f func(text []byte)) {
	b.Helper()
	yard.Measure(b, yard.Work{Texts: texts, Run: func(i int) { f(texts[i%len(texts)]) }})
}

// BenchmarkComplete is the whole chain of ordinary text.
func BenchmarkComplete(b *testing.B) {
	for _, size := range []int{1 << 10, 8 << 10, 64 << 10, 170 << 10, 1 << 20} {
		in := texts(kinds[0], max(4, min(512, 4<<20/size)), size)
		for _, block := range []int{4, 16, 32, 64} {
			b.Run(fmt.Sprintf("size=%d/block=%d", size, block), func(b *testing.B) {
				var c Chain
				measure(b, in, func(text []byte) {
					c.Reset(Options{BlockSize: block, MaxTokenBytes: 16}, 0, text)
					sink += uint64(c.Complete())
				})
			})
		}
	}
}

// BenchmarkKinds is the whole chain of other kinds of text.
func BenchmarkKinds(b *testing.B) {
	for _, k := range kinds {
		in := texts(k, 512, 8<<10)
		for _, limit := range []int{16, 0} {
			b.Run(fmt.Sprintf("%s/max=%d", k.name, limit), func(b *testing.B) {
				var c Chain
				measure(b, in, func(text []byte) {
					c.Reset(Options{BlockSize: 32, MaxTokenBytes: limit}, 0, text)
					sink += uint64(c.Complete())
				})
			})
		}
	}
}

// BenchmarkExtend is the head of a chain. covered is what part of the text it
// covers: Y should not be above it.
func BenchmarkExtend(b *testing.B) {
	for _, size := range []int{8 << 10, 64 << 10} {
		in := texts(kinds[0], 4<<20/size, size)
		for _, n := range []int{1, 8, 16, 32} {
			b.Run(fmt.Sprintf("size=%d/blocks=%d", size, n), func(b *testing.B) {
				var c Chain
				head := func(text []byte) {
					c.Reset(Options{BlockSize: 32, MaxTokenBytes: 16}, 0, text)
					sink += uint64(c.Extend(n))
				}
				covered := 0
				for _, text := range in {
					head(text)
					covered += c.End(len(c.Hashes()) - 1)
				}
				measure(b, in, head)
				b.ReportMetric(float64(covered)/float64(len(in)*size), "covered")
			})
		}
	}
}
