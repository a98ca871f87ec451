package fleet

import (
	"fmt"
	"testing"

	"github.com/calinix/caddy-calinix/internal/bench/yard"
	"github.com/calinix/caddy-calinix/outcome"
	"github.com/calinix/caddy-calinix/selection"
)

// BenchmarkBegin is Begin and End of one leg, without a prompt (filter, score,
// pick, reserve, release) and with one of 64 that are cached on a pod each (the
// index asked and told besides).
func BenchmarkBegin(b *testing.B) {
	for _, prompt := range []int{0, 32, 256} {
		for _, pods := range []int{16, 256} {
			b.Run(fmt.Sprintf("blocks=%d/pods=%d", prompt, pods), func(b *testing.B) {
				f := fleetOf(b, single(pods))
				busy := make([]Lease, 3*pods)
				for i := range busy {
					if err := f.Begin(epoch, ask(nil), &busy[i]); err != nil {
						b.Fatal(err)
					}
				}
				asks := make([]*Ask, 64)
				for i := range asks {
					asks[i] = ask(nil)
					if prompt > 0 {
						asks[i] = ask(words(run(fmt.Sprint("prompt", i, "-"), prompt)...))
					}
					asks[i].Session = uint64(1 + i)
				}
				var l Lease
				yard.Measure(b, yard.Work{Run: func(i int) {
					if err := f.Begin(epoch, asks[i%len(asks)], &l); err != nil {
						b.Fatal(err)
					}
					l.Start()
					l.FirstByte(epoch)
					l.End(epoch, outcome.Answered)
				}})
			})
		}
	}
}

// TestBeginAllocatesNothing once everything has grown to its size.
func TestBeginAllocatesNothing(t *testing.T) {
	if racing {
		t.Skip("allocations are only counted without the race detector")
	}
	f := fleetOf(t, single(8))
	a := ask(words(run("prompt-", 64)...))
	a.Session = 1
	var l Lease
	leg := func() {
		if err := f.Begin(epoch, a, &l); err != nil {
			t.Fatal(err)
		}
		l.Start()
		l.FirstByte(epoch)
		l.End(epoch, outcome.Answered)
	}
	for _, a.Strategy = range []selection.Strategy{
		selection.Random, selection.CacheAware, selection.LeastLoaded, selection.RoundRobin, selection.ExpectedTTFT,
	} {
		for range 100 {
			leg()
		}
		if n := testing.AllocsPerRun(200, leg); n >= 1 {
			t.Errorf("%s: %v allocations a leg", a.Strategy, n)
		}
	}
	a.Exclude = f.role[Single]
	if n := testing.AllocsPerRun(200, func() { _ = f.Begin(epoch, a, &l) }); n >= 1 {
		t.Errorf("%v allocations a refusal", n)
	}
}
