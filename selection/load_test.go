package selection

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/calinix/caddy-calinix/index"
)

// fleetOf makes pods with the given legs and limits (< 0: none), all of them
// candidates.
func fleetOf(legs, limits []int32) (*View, index.Bitmap) {
	v := &View{}
	for p := range legs {
		v.ID[p], v.Rank[p] = IDHash(fmt.Sprint("pod-", p)), uint8(p)
		v.Add(uint8(p), legs[p])
		if limits != nil && limits[p] >= 0 {
			v.SetLimit(uint8(p), limits[p])
		}
	}
	return v, index.All(len(legs))
}

func TestLoadFactor(t *testing.T) {
	for _, tc := range []struct {
		name         string
		legs, limits []int32
		want         []float64
	}{
		{"an idle pod has 100", []int32{0, 0}, nil, []float64{100, 100}},
		{"alone", []int32{3}, nil, []float64{-800}},
		{"against the mean of the others", []int32{2, 3, 5}, nil, []float64{
			100 * (1 - 2./5*2/5), 100 * (1 - 3/4.5*3/4.5), 100 * (1 - 5/3.5*5/3.5),
		}},
		{"a pile-up is not clamped", []int32{3, 0, 0, 0}, nil, []float64{-800, 100, 100, 100}},
		{"against maxConns", []int32{0, 25, 100, 150}, []int32{100, 100, 100, 100}, []float64{100, 75, 0, 0}},
		{"maxConns 0 takes nothing", []int32{0, 0}, []int32{0, 10}, []float64{0, 100}},
		{"mixed: as many legs, as used", []int32{10, 10}, []int32{1000, -1}, []float64{99, 99}},
		{"mixed: fewer legs", []int32{40, 10}, []int32{100, -1}, []float64{60, 90}},
		{"mixed: a surplus counts against the others", []int32{10, 22}, []int32{1000, -1}, []float64{99, 100 * (1 - .01 - 4 + 100/121.)}},
		{"mixed: idle peers", []int32{0, 2, 0}, []int32{8, -1, -1}, []float64{100, -300, 100}},
		{"mixed: the mean of the limits", []int32{4, 4, 4}, []int32{4, 12, -1}, []float64{0, 100 * (1 - 4/12.), 50}},
		{"mixed: small limits among much traffic", []int32{3, 9, 9}, []int32{4, -1, -1}, []float64{
			25, 100 * (1 - 6/7. - 81/49. + 36/49.), 100 * (1 - 6/7. - 81/49. + 36/49.),
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v, c := fleetOf(tc.legs, tc.limits)
			for p, want := range tc.want {
				got := Explain(v, &c, &Request{Strategy: LeastLoaded, Sticky: None}, uint8(p))
				if math.Abs(got.Load-want) > 1e-9 {
					t.Errorf("pod %d: load %v, want %v", p, got.Load, want)
				}
			}
		})
	}
}

// TestLoadFalls: each further leg lowers a pod's own factor, whatever the
// fleet, down to 0 for a pod with a limit and without end for one without; and
// no pod is above an idle one.
func TestLoadFalls(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawScene(t)
		v, c, _ := s.lay(straight(len(s.pods)))
		p := uint8(rapid.IntRange(0, len(s.pods)-1).Draw(t, "pod"))
		c.Set(int(p))
		sc := scaleOf(v, &c)
		before := sc.factor(v, p)
		if before > 100 || v.Inflight(p) == 0 && before != 100 && !(v.Limited.Has(int(p)) && v.limit[p] == 0) {
			t.Fatalf("factor %v with %d legs", before, v.Inflight(p))
		}
		v.Add(p, 1)
		sc = scaleOf(v, &c)
		after := sc.factor(v, p)
		if after > before || after == before && !(v.Limited.Has(int(p)) && after == 0) {
			t.Fatalf("factor %v with one leg more, %v before", after, before)
		}
	})
}

// The weights that configurations give both legs of a request by default.
var (
	prefillWeights = Weights{Cache: 0.65, Load: 0.25, Sticky: 0.10}
	decodeWeights  = Weights{Cache: 0.10, Load: 0.55, Sticky: 0.10, Locality: 0.25}
)

// TestPileUp: with the default weights of each role no cached prefix, session
// and place together outweigh a pile-up, also between two pods.
func TestPileUp(t *testing.T) {
	for role, w := range map[string]Weights{
		"single": SingleWeights(), "prefill": prefillWeights, "decode": decodeWeights,
	} {
		for _, pods := range []int{2, 3, 4, 16} {
			for _, others := range []int32{0, 1, 4, 16} {
				t.Run(fmt.Sprintf("%s/pods=%d/others=%d", role, pods, others), func(t *testing.T) {
					legs := make([]int32, pods)
					for p := range legs {
						legs[p] = others
					}
					v, c := fleetOf(legs, nil)
					v.Node[0] = 1
					r := &Request{
						Weights: w, Blocks: 10, Frames: []index.Frame{{Depth: 10, Pods: index.Of(0)}},
						Sticky: 0, Node: 1, HasKey: true,
					}
					kept := int32(0)
					for {
						top := Score(v, &c, r)
						if Pick(v, &top, r) != 0 {
							break
						}
						v.Add(0, 1)
						if kept++; kept > 1000 {
							t.Fatal("the pod that holds the prefix takes everything")
						}
					}
					if limit := 4 * (others + 1); others+kept > limit {
						t.Errorf("holds %d legs, the others %d each; want at most %d", others+kept, others, limit)
					}
					if kept == 0 && others == 0 {
						t.Error("an idle pod that holds the prefix is not picked")
					}
				})
			}
		}
	}
}

// TestBurstSpreads: legs reserved one by one spread evenly over pods that are
// alike, in fleets of any kind.
func TestBurstSpreads(t *testing.T) {
	for name, limits := range map[string][]int32{
		"no limits": nil,
		"limits":    {100, 100, 100, 100},
		"mixed":     {100, -1, 100, -1},
		"one limit": {1000, -1, -1, -1},
	} {
		for _, strategy := range []Strategy{CacheAware, LeastLoaded, RoundRobin} {
			t.Run(name+"/"+strategy.String(), func(t *testing.T) {
				v, c := fleetOf(make([]int32, 4), limits)
				r := &Request{Strategy: strategy, Weights: SingleWeights(), Sticky: None, HasKey: true, Turn: math.MaxUint8}
				for i := range 64 {
					r.Key = uint64(i) * 0x9e3779b97f4a7c15
					top := Score(v, &c, r)
					p := Pick(v, &top, r)
					v.Add(uint8(p), 1)
					r.Turn = v.Rank[p]
				}
				for p := range 4 {
					if v.Inflight(uint8(p)) != 16 {
						t.Errorf("pod %d holds %d of 64, want 16", p, v.Inflight(uint8(p)))
					}
				}
			})
		}
	}
}
