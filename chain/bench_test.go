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

// sink keeps results alive.
var sink uint64

// measure runs f over the texts in turn, in batches of some 25 µs, each beside a
// batch of the yardstick over the same texts. It reports the median, the lower
// decile and the 99th percentile of f's batches in ns an operation, and as Y the
// ratio of the lower deciles of both.
func measure(b *testing.B, texts [][]byte, f func(text []byte)) {
	b.Helper()
	const most = 1 << 14
	batch := 1 + 25_000/len(texts[0])
	fast, slow := make([]float64, 0, most), make([]float64, 0, most)
	for _, text := range texts {
		f(text) // grow what is kept
	}
	b.ReportAllocs()
	next := 0
	for b.Loop() {
		from := next
		t0 := time.Now()
		for i := range batch {
			sink += yardstick(texts[(from+i)%len(texts)])
		}
		t1 := time.Now()
		for range batch {
			f(texts[next%len(texts)])
			next++
		}
		t2 := time.Now()
		if len(fast) < most {
			slow = append(slow, float64(t1.Sub(t0).Nanoseconds())/float64(batch))
			fast = append(fast, float64(t2.Sub(t1).Nanoseconds())/float64(batch))
		}
	}
	slices.Sort(fast)
	slices.Sort(slow)
	n := len(fast)
	b.ReportMetric(fast[n/2], "ns/op")
	b.ReportMetric(fast[n/10], "p10-ns")
	b.ReportMetric(fast[n*99/100], "p99-ns")
	b.ReportMetric(fast[n/10]/slow[n/10], "Y")
}

// BenchmarkYardstick compares the yardstick with a chain of dependent xors and
// multiplications over registers. Outside 0.95 to 1.15 the run is void.
func BenchmarkYardstick(b *testing.B) {
	text := texts(kinds[0], 1, 64<<10)[0]
	var pass, chain []float64
	for b.Loop() {
		t0 := time.Now()
		sink += yardstick(text)
		t1 := time.Now()
		h := uint64(fnvOffset)
		for i := range len(text) {
			h = (h ^ uint64(i)) * fnvPrime
		}
		sink += h
		t2 := time.Now()
		pass = append(pass, float64(t1.Sub(t0).Nanoseconds())/float64(len(text)))
		chain = append(chain, float64(t2.Sub(t1).Nanoseconds())/float64(len(text)))
	}
	slices.Sort(pass)
	slices.Sort(chain)
	n := len(pass)
	b.ReportMetric(pass[n/10], "ns/byte")
	b.ReportMetric(pass[n/10]/chain[n/10], "ratio")
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
