package chain

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// yardstick is what times are compared with, to be free of the machine: one
// plain pass of FNV-1a over the text.
func yardstick(text []byte) uint64 {
	h := uint64(fnvOffset)
	for _, b := range text {
		h ^= uint64(b)
		h *= 1099511628211
	}
	return h
}

var sink uint64

// measure runs f over the texts in turn, in batches of some 25 µs, each beside
// a batch of the yardstick over the same texts. It reports the lower decile and
// the 99th percentile of f's batches in ns an operation, and the ratio of both
// lower deciles as Y.
func measure(b *testing.B, texts [][]byte, f func(text []byte)) {
	b.Helper()
	b.ReportAllocs()
	batch := 1 + 25_000/len(texts[0])
	var fast, slow []float64
	next := 0
	for _, text := range texts {
		f(text) // grow what is kept
	}
	for b.Loop() {
		from := next
		t0 := time.Now()
		for range batch {
			f(texts[next%len(texts)])
			next++
		}
		t1 := time.Now()
		for i := range batch {
			sink += yardstick(texts[(from+i)%len(texts)])
		}
		t2 := time.Now()
		fast = append(fast, float64(t1.Sub(t0).Nanoseconds())/float64(batch))
		slow = append(slow, float64(t2.Sub(t1).Nanoseconds())/float64(batch))
	}
	slices.Sort(fast)
	slices.Sort(slow)
	n := len(fast)
	b.ReportMetric(fast[n/2], "ns/op")
	b.ReportMetric(fast[n/10], "p10-ns")
	b.ReportMetric(fast[n*99/100], "p99-ns")
	b.ReportMetric(fast[n/10]/slow[n/10], "Y")
}

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

func BenchmarkExtend(b *testing.B) {
	for _, size := range []int{8 << 10, 64 << 10} {
		in := texts(kinds[0], 4<<20/size, size)
		for _, n := range []int{1, 8, 16, 32} {
			b.Run(fmt.Sprintf("size=%d/blocks=%d", size, n), func(b *testing.B) {
				var c Chain
				measure(b, in, func(text []byte) {
					c.Reset(Options{BlockSize: 32, MaxTokenBytes: 16}, 0, text)
					sink += uint64(c.Extend(n))
				})
				covered := 0
				for _, text := range in {
					c.Reset(Options{BlockSize: 32, MaxTokenBytes: 16}, 0, text)
					covered += c.End(c.Extend(n) - 1)
				}
				b.ReportMetric(float64(covered)/float64(len(in)*size), "covered")
			})
		}
	}
}
