package fleet

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/outcome"
)

// BenchmarkBeside times Begin and End of legs with prompts of 256 blocks, by the
// clock, beside nothing and beside what takes long: a pod with a million blocks loses
// its cache (wipe), or is taken out and put back by a reload. A round is one of these,
// with all legs that begin while it lasts; beside nothing, a round is as long.
func BenchmarkBeside(b *testing.B) {
	const pods, blocks, chains = 16, 1_000_000, 64
	for _, beside := range []string{"nothing", "wipe", "reload"} {
		b.Run(beside, func(b *testing.B) {
			all := single(pods)
			f := fleetOf(b, all)
			f.index.SetCapacity(0, blocks)
			asks := make([]*Ask, chains)
			for i := range asks {
				asks[i] = ask(words(run(fmt.Sprint("prompt-", i, "-"), 256)...))
				asks[i].Exclude.Set(0)
			}
			others := make([]*text, blocks/1000)
			for i := range others {
				others[i] = words(run(fmt.Sprint("other-", i, "-"), 1000)...)
				others[i].Complete()
			}
			leg := func(i int) time.Duration {
				var l Lease
				start := time.Now()
				if err := f.Begin(epoch, asks[i%len(asks)], &l); err != nil {
					b.Fatal(err)
				}
				l.Start()
				l.FirstByte(epoch)
				l.End(epoch, outcome.Answered)
				return time.Since(start)
			}
			var took, work []time.Duration
			for b.Loop() {
				slot := f.byID["pod-0"]
				for _, c := range others {
					f.index.Register(epoch, slot, c, nil)
				}
				for i := range asks {
					leg(i)
				}
				var done atomic.Bool
				over := make(chan time.Duration)
				go func() {
					start := time.Now()
					switch beside {
					case "nothing":
						time.Sleep(50 * time.Millisecond)
					case "wipe":
						f.SetUp(Ref{slot, f.slots[slot].gen}, true, true)
					case "reload":
						if _, err := f.Apply(epoch, all[1:]); err != nil {
							b.Error(err)
						}
						if _, err := f.Apply(epoch, all); err != nil {
							b.Error(err)
						}
					}
					done.Store(true)
					over <- time.Since(start)
				}()
				for i := 0; !done.Load(); i++ {
					took = append(took, leg(i))
				}
				work = append(work, <-over)
			}
			slices.Sort(took)
			slices.Sort(work)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(took[len(took)/2].Nanoseconds()), "p50-ns/leg")
			b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "p99-ns/leg")
			b.ReportMetric(float64(took[len(took)-1].Nanoseconds()), "max-ns/leg")
			b.ReportMetric(float64(len(took)), "legs")
			b.ReportMetric(float64(work[len(work)/2].Microseconds())/1000, "ms/round")
		})
	}
}
