package fleet

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/outcome"
	"github.com/calinix/caddy-calinix/selection"
)

// TestStress runs requests against a fleet that changes all the time. No pod
// ever has more legs than its maxConns, also not over its removal and return;
// and when all has ended nothing is left.
func TestStress(t *testing.T) {
	const (
		pods    = 8
		limit   = 3
		workers = 6
		rounds  = 500
	)
	wanted := single(pods)
	for i := range wanted {
		wanted[i].MaxConns, wanted[i].Limited = limit, i%2 == 0
		wanted[i].Roles, wanted[i].Data = wanted[i].Roles.With(Decode), i
	}
	f := fleetOf(t, wanted)
	var held [pods]atomic.Int64
	var served, refused atomic.Int64

	var requests, changes sync.WaitGroup
	for w := range workers {
		requests.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(w), 0))
			for i := range rounds {
				now := epoch.Add(time.Duration(i) * time.Millisecond)
				a := ask(words(run(fmt.Sprint("prompt", rnd.IntN(20), "-"), 1+rnd.IntN(30))...))
				a.Role = []Role{Single, Decode}[rnd.IntN(2)]
				a.Session, a.Strategy = rnd.Uint64N(30), selection.Strategy(rnd.IntN(4))
				var leases [2]Lease
				for n := range leases {
					if f.Begin(now, a, &leases[n]) != nil {
						refused.Add(1)
						continue
					}
					served.Add(1)
					p := leases[n].Pod()
					if h := held[p.Data.(int)].Add(1); p.Limited && h > limit {
						t.Errorf("%s holds %d legs", p.ID, h)
					}
				}
				runtime.Gosched() // the legs last a while
				for n := range leases {
					l := &leases[n]
					if l.Pod() == nil {
						continue
					}
					l.Start()
					if rnd.IntN(2) == 0 {
						l.FirstByte(now)
					}
					held[l.Pod().Data.(int)].Add(-1)
					for range 2 {
						l.End(now, outcome.Outcome(1+rnd.IntN(9)))
					}
				}
			}
		})
	}
	stop := make(chan struct{})
	change := func(seed uint64, do func(rnd *rand.Rand, ref Ref, id string)) {
		changes.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, 1))
			for {
				select {
				case <-stop:
					return
				default:
				}
				id := wanted[rnd.IntN(pods)].ID
				ref, _ := f.find(id)
				do(rnd, ref, id)
				runtime.Gosched()
			}
		})
	}
	change(1, func(rnd *rand.Rand, _ Ref, _ string) {
		some := append([]Pod(nil), wanted...)
		rnd.Shuffle(pods, func(i, j int) { some[i], some[j] = some[j], some[i] })
		if _, err := f.Apply(epoch, some[:1+rnd.IntN(pods)]); err != nil {
			t.Error(err)
		}
	})
	change(2, func(rnd *rand.Rand, ref Ref, id string) {
		f.SetUp(ref, rnd.IntN(4) > 0, rnd.IntN(8) == 0)
		f.Drain(id, rnd.IntN(4) == 0)
	})
	change(3, func(rnd *rand.Rand, _ Ref, _ string) {
		for _, s := range f.Snapshot() {
			if s.Inflight < 0 || s.Running[Single] < 0 || s.Running[Decode] < 0 || s.Limited && s.Inflight > limit {
				t.Errorf("%+v", s)
			}
		}
		f.Explain(epoch, ask(words(run("prompt1-", 9)...)))
		f.Expire(epoch.Add(time.Duration(rnd.IntN(4)) * time.Hour))
		f.Configure(Sessions{TTL: time.Hour, Max: rnd.IntN(40)})
		if rnd.IntN(100) == 0 {
			f.Forget()
		}
	})
	change(4, func(rnd *rand.Rand, ref Ref, id string) {
		f.SetModels(ref, []string{"common", id}[:rnd.IntN(3)])
		if s := f.Serves([]byte("nobody's")); s.HasStrategy || !s.Named && s.Roles == 0 {
			t.Errorf("a model that no pod names: %+v", s)
		}
	})
	requests.Wait()
	close(stop)
	changes.Wait()

	if served.Load() == 0 {
		t.Fatal("nothing was served")
	}
	t.Logf("%d served, %d refused", served.Load(), refused.Load())
	apply(t, f, wanted)
	for _, s := range f.Snapshot() {
		if s.Inflight != 0 || s.Running != [Roles]int{} {
			t.Errorf("left: %+v", s)
		}
	}
	apply(t, f, nil)
	if n := f.index.Blocks(); n != 0 {
		t.Errorf("%d blocks of nobody", n)
	}
}
