package index

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/bench/yard"
)

// sampled runs f as the benchmark's loop, in stretches of about 50 µs, and
// reports the 10th and the 50th percentile over the stretches instead of a mean,
// which on a busy machine tells more of the neighbours. per is how many things of
// the unit one call of f does.
func sampled(b *testing.B, per int, unit string, f func(i int)) {
	b.Helper()
	b.ReportAllocs()
	t := time.Now()
	f(0)
	n := max(1, int(50*time.Microsecond/max(time.Since(t), 1)))
	ns := make([]float64, 0, 1<<16)
	i := 1
	for b.Loop() {
		t := time.Now()
		for range n {
			f(i)
			i++
		}
		if d := float64(time.Since(t).Nanoseconds()) / float64(n*per); len(ns) < cap(ns) {
			ns = append(ns, d)
		} else {
			ns[i%len(ns)] = d
		}
	}
	report(b, ns, unit)
}

func report(b *testing.B, ns []float64, unit string) {
	b.Helper()
	slices.Sort(ns)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(ns[len(ns)/10], "p10-ns/"+unit)
	b.ReportMetric(ns[len(ns)/2], "p50-ns/"+unit)
	b.ReportMetric(ns[len(ns)*99/100], "p99-ns/"+unit)
}

// newChain is a chain of n random blocks, the same for the same seed.
func newChain(seed uint64, n int) *fakeChain {
	r := rand.New(rand.NewPCG(seed, 1))
	c := &fakeChain{hashes: make([]uint64, n)}
	for i := range c.hashes {
		c.hashes[i] = r.Uint64()
	}
	return c
}

// fill registers new chains until there are so many blocks, chain i at pod(i).
func fill(x *Index, blocks, chainLen int, pod func(i int) uint8) []*fakeChain {
	chains := make([]*fakeChain, (blocks+chainLen-1)/chainLen)
	var q Query
	for i := range chains {
		chains[i] = newChain(uint64(i), min(chainLen, blocks-i*chainLen))
		q.reset()
		x.Register(epoch, pod(i), chains[i], &q)
	}
	return chains
}

func sixteen(i int) uint8 { return uint8(i % 16) }

// BenchmarkLookup: a look-up that hits, in batches, as queries do them.
func BenchmarkLookup(b *testing.B) {
	for _, n := range []int{1000, 100_000, 1_000_000, 10_000_000} {
		b.Run(fmt.Sprint("blocks=", n), func(b *testing.B) {
			if n > 1_000_000 && testing.Short() {
				b.Skip("takes a GB")
			}
			x := New(Options{})
			var all []uint64
			for _, c := range fill(x, n, 250, sixteen) {
				all = append(all, c.hashes...)
			}
			r := rand.New(rand.NewPCG(1, 2))
			r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
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

// BenchmarkQuery asks for one of 100 different prompts (of 45 blocks: 8 KiB at 32
// tokens a block) among 100,000 other blocks. half: all pods hold the first half;
// stagger: pod i of n holds (i+1)/n; none: nobody holds anything.
func BenchmarkQuery(b *testing.B) {
	for _, pods := range []int{16, 256} {
		for _, own := range []string{"half", "stagger", "none"} {
			b.Run(fmt.Sprintf("pods=%d/%s", pods, own), func(b *testing.B) {
				x := New(Options{})
				fill(x, 100_000, 250, sixteen)
				prompts := make([]*fakeChain, 100)
				for i := range prompts {
					prompts[i] = newChain(uint64(1e6+i), 45)
					part := &fakeChain{}
					for p := range pods {
						switch own {
						case "half":
							part.hashes = prompts[i].hashes[:22]
						case "stagger":
							part.hashes = prompts[i].hashes[:45*(p+1)/pods]
						}
						x.Register(epoch, uint8(p), part, nil)
					}
				}
				candidates := All(pods)
				var q Query
				sampled(b, 1, "query", func(i int) {
					c := prompts[i%len(prompts)]
					c.done = 0
					x.Query(&q, c, candidates)
				})
			})
		}
	}
}

// BenchmarkTouch256 registers chains of 256 blocks that the pod holds already,
// among 100,000, with the slots that a query found. after=query: the query was the
// thing done before, as in a request's life; after=others: all else was touched
// since the query, so that nothing of the chain is in the nearer caches.
func BenchmarkTouch256(b *testing.B) {
	x := New(Options{})
	chains := fill(x, 390*256, 256, sixteen)
	now := epoch
	b.Run("after=query", func(b *testing.B) {
		b.ReportAllocs()
		var q Query
		var ns []float64
		for i := 0; b.Loop(); i++ {
			c := chains[i%len(chains)]
			now = now.Add(time.Millisecond)
			x.Query(&q, c, All(16))
			t := time.Now()
			x.Register(now, sixteen(i%len(chains)), c, &q)
			ns = append(ns, float64(time.Since(t).Nanoseconds()))
		}
		report(b, ns, "chain")
	})
	b.Run("after=others", func(b *testing.B) {
		qs := make([]Query, len(chains))
		for i, c := range chains {
			x.Query(&qs[i], c, All(16))
		}
		sampled(b, 1, "chain", func(i int) {
			i %= len(chains)
			now = now.Add(time.Millisecond)
			x.Register(now, sixteen(i), chains[i], &qs[i])
		})
	})
}

// BenchmarkRegister256 registers chains of 256 new blocks, with the query before.
// bounds=none: the index grows from nothing to 100 × 256 blocks. capacity, ceiling,
// ttl: as many entries leave as come.
func BenchmarkRegister256(b *testing.B) {
	for _, bounds := range []string{"none", "capacity", "ceiling", "ttl"} {
		b.Run("bounds="+bounds, func(b *testing.B) {
			const kept = 100_000
			var o Options
			switch bounds {
			case "ceiling":
				o.MaxBlocks = kept
			case "ttl":
				o.StaleTTL = kept / 256 * time.Millisecond
			}
			var x *Index
			now := epoch
			setUp := func() {
				x = New(o)
				if bounds == "none" {
					return
				}
				for p := range 16 {
					if bounds == "capacity" {
						x.SetCapacity(uint8(p), kept/16)
					}
				}
				fill(x, kept, 250, sixteen)
			}
			setUp()
			c := newChain(7, 256)
			r := rand.New(rand.NewPCG(5, 1))
			var q Query
			var ns []float64
			for i := 0; b.Loop(); i++ {
				if bounds == "none" && i%100 == 99 {
					setUp()
				}
				for k := range c.hashes {
					c.hashes[k] = r.Uint64()
				}
				c.done = 0
				now = now.Add(time.Millisecond)
				t := time.Now()
				x.Query(&q, c, All(16))
				x.Register(now, sixteen(i), c, &q)
				if bounds == "ttl" && i%100 == 0 {
					x.Expire(now)
				}
				ns = append(ns, float64(time.Since(t).Nanoseconds())/256)
			}
			report(b, ns, "block")
		})
	}
}

// BenchmarkWipe wipes a pod that holds n blocks which nobody else holds.
func BenchmarkWipe(b *testing.B) {
	for _, n := range []int{10_000, 1_000_000} {
		b.Run(fmt.Sprint("blocks=", n), func(b *testing.B) {
			var ns []float64
			for b.Loop() {
				x := New(Options{})
				fill(x, n, 250, func(int) uint8 { return 7 })
				runtime.GC()
				t := time.Now()
				x.Wipe(7)
				ns = append(ns, float64(time.Since(t).Nanoseconds())/float64(n))
			}
			report(b, ns, "block")
		})
	}
}

// BenchmarkExpire is the owner's call every second when nothing is too old.
func BenchmarkExpire(b *testing.B) {
	x := New(Options{StaleTTL: time.Hour})
	fill(x, 100_000, 250, func(i int) uint8 { return uint8(i) })
	sampled(b, 1, "call", func(int) { x.Expire(epoch) })
}

// BenchmarkMemory reports what a block and what an entry costs of the heap, all
// in: the difference that a second pod makes that holds the same blocks is the
// cost of entries, the rest is the blocks'.
func BenchmarkMemory(b *testing.B) {
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	for _, n := range []int{100_000, 1_000_000, 1_200_000} {
		b.Run(fmt.Sprint("blocks=", n), func(b *testing.B) {
			chains := fill(New(Options{}), n, 250, sixteen)
			for b.Loop() {
				var h [3]int64
				h[0] = heap()
				x := New(Options{})
				var q Query
				for pod := range 2 {
					for _, c := range chains {
						q.reset()
						x.Register(epoch, uint8(pod), c, &q)
					}
					h[pod+1] = heap()
				}
				entry := float64(h[2]-h[1]) / float64(n)
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(entry, "B/entry")
				b.ReportMetric(float64(h[1]-h[0])/float64(n)-entry, "B/block")
				b.ReportMetric(float64(x.Bytes())/float64(h[2]-h[0]), "Bytes()/heap")
				runtime.KeepAlive(x)
			}
			runtime.KeepAlive(chains)
		})
	}
}

// BenchmarkReaders times batches of look-ups by eight goroutines, alone and beside
// two that register, and one that wipes: the time for which the batch was on a
// core.
func BenchmarkReaders(b *testing.B) {
	for _, beside := range []string{"nobody", "writers", "wipes"} {
		b.Run("beside="+beside, func(b *testing.B) {
			x := New(Options{MaxBlocks: 150_000})
			var all []uint64
			for _, c := range fill(x, 100_000, 250, sixteen) {
				all = append(all, c.hashes...)
			}
			var stop atomic.Bool
			var wg sync.WaitGroup
			writers := map[string]int{"writers": 2, "wipes": 1}[beside]
			for w := range writers {
				wg.Go(func() {
					r := rand.New(rand.NewPCG(uint64(w), 1))
					var q Query
					for !stop.Load() {
						c := newChain(r.Uint64(), 64)
						x.Query(&q, c, All(256))
						x.Register(epoch, uint8(100+w), c, &q)
						if beside == "wipes" && x.PodBlocks(100) > 20_000 {
							x.Wipe(100)
						}
					}
				})
			}
			var mu sync.Mutex
			var ns []float64
			per := b.N/8 + 1
			var readers sync.WaitGroup
			for i := range 8 {
				readers.Go(func() {
					runtime.LockOSThread()
					defer runtime.UnlockOSThread()
					r := rand.New(rand.NewPCG(uint64(i), 9))
					var q Query
					times := make([]float64, 0, per)
					for range per {
						times = append(times, yard.OnCPU(func() {
							for range 16 {
								q.reset()
								x.lookup(&q, all[r.IntN(len(all)-batch):])
							}
						})/(16*batch))
					}
					mu.Lock()
					ns = append(ns, times...)
					mu.Unlock()
				})
			}
			readers.Wait()
			stop.Store(true)
			wg.Wait()
			report(b, ns, "block")
		})
	}
}
