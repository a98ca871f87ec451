package selection

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/calinix/caddy-calinix/index"
	"github.com/calinix/caddy-calinix/internal/bench/yard"
)

// BenchmarkSelect is Filter, Score and Pick for one request. Each meets another
// fleet, so that no branch is learnt by heart.
func BenchmarkSelect(b *testing.B) {
	type fleet struct {
		v View
		s State
		r Request
	}
	for _, shape := range []struct {
		name    string
		limits  int // 0 none, 1 all, 2 every other
		busy    bool
		frames  int
		near    bool
		factors Strategy
	}{
		{"idle", 0, false, 0, false, CacheAware},
		{"busy", 0, true, 3, false, CacheAware},
		{"limited", 1, true, 3, false, CacheAware},
		{"mixed", 2, true, 3, false, CacheAware},
		{"staggered", 0, true, 256, false, CacheAware},
		{"near", 0, true, 3, true, CacheAware},
		{"leastLoaded", 0, true, 0, false, LeastLoaded},
		{"roundRobin", 0, true, 0, false, RoundRobin},
	} {
		for _, pods := range []int{1, 16, 256} {
			b.Run(fmt.Sprintf("%s/pods=%d", shape.name, pods), func(b *testing.B) {
				rnd := rand.New(rand.NewPCG(1, 2))
				fleets := make([]fleet, 8)
				for i := range fleets {
					f := &fleets[i]
					f.s.Role, f.s.Up = index.All(pods), index.All(pods)
					f.r = Request{
						Strategy: shape.factors, Weights: SingleWeights(), Blocks: 256,
						Sticky: rnd.IntN(pods), HasKey: true, Key: rnd.Uint64(),
					}
					if shape.near {
						f.r.Node, f.r.Zone = 1, 2
					}
					for n := range min(shape.frames, pods) {
						var at index.Bitmap
						for p := n; p < pods; p += min(shape.frames, pods) {
							at.Set(p)
						}
						f.r.Frames = append(f.r.Frames, index.Frame{Depth: n + 1, Pods: at})
					}
					for p := range pods {
						f.v.ID[p], f.v.Rank[p] = rnd.Uint64(), uint8(p)
						f.v.Node[p], f.v.Zone[p] = uint16(rnd.IntN(32)), uint16(rnd.IntN(4))
						if shape.limits == 1 || shape.limits == 2 && p%2 == 0 {
							f.v.SetLimit(uint8(p), 64)
						}
						if shape.busy {
							f.v.Add(uint8(p), int32(rnd.IntN(32)))
						}
					}
				}
				yard.Measure(b, yard.Work{Run: func(i int) {
					f := &fleets[i%len(fleets)]
					c := Filter(&f.s)
					top := Score(&f.v, &c, &f.r)
					if Pick(&f.v, &top, &f.r) < 0 {
						b.Fatal("nothing picked")
					}
				}})
			})
		}
	}
}
