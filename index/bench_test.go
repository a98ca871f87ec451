package index

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"
)

func newChain(seed uint64, n int) *fakeChain {
	r := rand.New(rand.NewPCG(seed, 1))
	c := &fakeChain{hashes: make([]uint64, n)}
	for i := range c.hashes {
		c.hashes[i] = r.Uint64()
	}
	return c
}

// sampled runs f as the benchmark's loop, in stretches of about 50 µs, and reports
// the 10th percentile over the stretches beside the mean: on a busy machine the
// mean tells more of the neighbours. per is how many things one call of f does.
func sampled(b *testing.B, per int, unit string, f func(i int)) {
	b.Helper()
	b.ReportAllocs()
	t := time.Now()
	f(0)
	n := max(1, int(50*time.Microsecond/max(time.Since(t), 1)))
	var ns []float64
	i := 1
	for b.Loop() {
		t := time.Now()
		for range n {
			f(i)
			i++
		}
		ns = append(ns, float64(time.Since(t).Nanoseconds())/float64(n*per))
	}
	slices.Sort(ns)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(ns[len(ns)/10], "p10-ns/"+unit)
	b.ReportMetric(ns[len(ns)/2], "p50-ns/"+unit)
}

var benchTime = time.Unix(1e9, 0)

func fill(x *Index, pod func(i int) uint8, blocks, chainLen int) []*fakeChain {
	chains := make([]*fakeChain, (blocks+chainLen-1)/chainLen)
	var q Query
	for i := range chains {
		chains[i] = newChain(uint64(i), min(chainLen, blocks-i*chainLen))
		q.reset()
		x.Register(benchTime, pod(i), chains[i], &q)
		chains[i].done = 0
	}
	return chains
}

func BenchmarkTouch256(b *testing.B) {
	for _, pods := range []int{1, 16} {
		b.Run(fmt.Sprintf("pods=%d", pods), func(b *testing.B) {
			x := New(Options{})
			chains := fill(x, func(i int) uint8 { return uint8(i % pods) }, 100_000, 256)
			chains = chains[:len(chains)-1]
			qs := make([]Query, len(chains))
			for i := range chains {
				x.Query(&qs[i], chains[i], All(256))
			}
			now := benchTime
			sampled(b, 1, "chain", func(i int) {
				i %= len(chains)
				now = now.Add(time.Millisecond)
				x.Register(now, uint8(i%pods), chains[i], &qs[i])
			})
		})
	}
}

func BenchmarkQueryTouch256(b *testing.B) {
	x := New(Options{})
	chains := fill(x, func(i int) uint8 { return uint8(i % 16) }, 100_000, 256)
	chains = chains[:len(chains)-1]
	var q Query
	now := benchTime
	var query, touch []float64
	i := 0
	for b.Loop() {
		now = now.Add(time.Millisecond)
		t0 := time.Now()
		x.Query(&q, chains[i], All(16))
		t1 := time.Now()
		x.Register(now, uint8(i%16), chains[i], &q)
		t2 := time.Now()
		query = append(query, float64(t1.Sub(t0).Nanoseconds()))
		touch = append(touch, float64(t2.Sub(t1).Nanoseconds()))
		if i++; i == len(chains) {
			i = 0
		}
	}
	b.ReportMetric(0, "ns/op")
	slices.Sort(query)
	slices.Sort(touch)
	b.ReportMetric(query[len(query)/10], "p10-ns/query")
	b.ReportMetric(touch[len(touch)/10], "p10-ns/touch")
	b.ReportMetric(touch[len(touch)/2], "p50-ns/touch")
}

func BenchmarkLookup(b *testing.B) {
	for _, n := range []int{1000, 100_000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			x := New(Options{})
			chains := fill(x, func(i int) uint8 { return uint8(i % 16) }, n, 250)
			var all []uint64
			for _, c := range chains {
				all = append(all, c.hashes...)
			}
			rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			runtime.GC()
			var q Query
			sampled(b, batch, "block", func(i int) {
				i = i * batch % (len(all) - batch)
				q.reset()
				x.lookup(&q, all[i:])
			})
		})
	}
}

func BenchmarkRegisterNew256(b *testing.B) {
	x := New(Options{MaxBlocks: 200_000})
	c := newChain(1, 256)
	r := rand.New(rand.NewPCG(5, 1))
	var q Query
	now := benchTime
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		for i := range c.hashes {
			c.hashes[i] = r.Uint64()
		}
		b.StartTimer()
		now = now.Add(time.Millisecond)
		x.Query(&q, c, All(16))
		x.Register(now, uint8(b.N%16), c, &q)
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func BenchmarkMemory(b *testing.B) {
	for _, n := range []int{100_000, 1_000_000, 1_200_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			chains := fill(New(Options{}), func(i int) uint8 { return 0 }, n, 256)
			for b.Loop() {
				var h [3]int64
				h[0] = heap()
				x := New(Options{})
				var q Query
				for pod := range 2 {
					for _, c := range chains {
						q.reset()
						x.Register(benchTime, uint8(pod), c, &q)
					}
					h[pod+1] = heap()
				}
				entry := float64(h[2]-h[1]) / float64(n)
				b.ReportMetric(entry, "B/entry")
				b.ReportMetric(float64(h[1]-h[0])/float64(n)-entry, "B/block")
				b.ReportMetric(float64(x.Bytes())/float64(h[2]-h[0]), "Bytes()/heap")
				runtime.KeepAlive(x)
			}
			runtime.KeepAlive(chains)
		})
	}
}
