package selection

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/calinix/caddy-calinix/index"
)

// TestPairCrosses: the best prefill pod and the decode pod that is best beside it are
// not the best pair.
func TestPairCrosses(t *testing.T) {
	const here, there = 1, 2 // nodes
	for _, c := range []struct {
		name     string
		strategy Strategy
		holds    int   // of 10 blocks, the prefill pod here
		legs     int32 // of the decode pod here, with 8000 tokens each
		want     int
	}{
		{"both are free: the first in order", CacheAware, 0, 0, 0},
		{"the decode pod here is busy", CacheAware, 0, 2, 1},
		{"but here is half of the prompt", CacheAware, 5, 2, 0},
		{"both are free: the first in order", ExpectedTTFT, 0, 0, 0},
		{"the decode pod here is busy", ExpectedTTFT, 0, 2, 1},
		{"but here is half of the prompt", ExpectedTTFT, 5, 2, 0},
	} {
		v := &View{}
		for i, node := range []uint16{here, there, here, there} { // prefill pods 0 and 1, decode pods 2 and 3
			v.Node[i], v.Rank[i] = node, uint8(i)
		}
		for range c.legs {
			v.Add(2, 1)
			v.Queue(2, Load{Prompt: 8000}, 0, 2000)
		}
		request := func(d Duty, w Weights) *Request {
			r := &Request{Strategy: c.strategy, Weights: w, TieBreak: ByPodID, Sticky: None, Duty: d, TTFT: DefaultTTFT(), Tokens: 8000, Work: []float64{8000}}
			if d == Compute && c.holds > 0 {
				r.Blocks, r.Frames = 10, []index.Frame{{Depth: c.holds, Pods: index.Of(0)}}
				r.Work = []float64{8000 - 800*float64(c.holds), 8000}
			}
			return r
		}
		prefill, decode := index.Of(0, 1), index.Of(2, 3)
		p := request(Compute, prefillWeights)
		if top := Score(v, &prefill, p); Pick(v, &top, p) != 0 {
			t.Errorf("%s, %v: pod 0 is not the best by itself", c.strategy, c.name)
		}
		if got := Pair(v, &prefill, &decode, p, request(Generate, decodeWeights)); got != c.want {
			t.Errorf("%s, %s: picked %d, want %d", c.strategy, c.name, got, c.want)
		}
	}
}

// TestPairIsTheBestOfAll compares Pair with the best of all pairs, of at most four
// places; of equals it is the prefill pod that Pick would take.
func TestPairIsTheBestOfAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := &View{}
		pods := rapid.IntRange(1, 12).Draw(t, "pods")
		var prefill, decode index.Bitmap
		one := rapid.Bool().Draw(t, "one place")
		places := map[[2]uint16]bool{}
		for i := range pods {
			slot := uint8(i * 17)
			v.ID[slot], v.Rank[slot] = rapid.Uint64().Draw(t, "id"), uint8(i)
			if !one {
				v.Node[slot] = uint16(rapid.IntRange(0, 3).Draw(t, "node"))
				v.Zone[slot] = v.Node[slot] / 2
			}
			v.Add(slot, int32(rapid.IntRange(0, 3).Draw(t, "legs")))
			v.Queue(slot, Load{Prompt: int64(rapid.IntRange(0, 3).Draw(t, "prompts") * 1000)}, 0, 2000)
			if rapid.IntRange(0, 3).Draw(t, "role") > 1 { // a pod of both roles is a place of its own
				decode.Set(int(slot))
			} else {
				prefill.Set(int(slot))
				places[[2]uint16{v.Node[slot], v.Zone[slot]}] = true
			}
		}
		strategy := rapid.SampledFrom([]Strategy{CacheAware, ExpectedTTFT, LeastLoaded}).Draw(t, "strategy")
		p := &Request{
			Strategy: strategy, Weights: prefillWeights, Sticky: None, Duty: Compute, TTFT: DefaultTTFT(), Tokens: 4000,
			Key: rapid.Uint64().Draw(t, "key"), HasKey: true, Work: []float64{1000, 4000}, Blocks: 8,
			Frames: []index.Frame{{Depth: 6, Pods: index.Of(rapid.IntRange(0, 11).Draw(t, "holder") * 17)}},
		}
		d := *p
		d.Weights, d.Duty = decodeWeights, Generate
		got := Pair(v, &prefill, &decode, p, &d)

		top := Score(v, &prefill, p)
		want := Pick(v, &top, p)
		if strategy == LeastLoaded || decode.Empty() || len(places) <= 1 {
			if got != want {
				t.Fatalf("picked %d, want %d as of one leg", got, want)
			}
			return
		}
		best := sum(v, &prefill, &decode, p, &d, want)
		for slot := prefill.Next(0); slot >= 0; slot = prefill.Next(slot + 1) {
			switch s := sum(v, &prefill, &decode, p, &d, slot); {
			case s > best:
				best, want = s, slot
			case s == best && slot != want:
				equal, score := index.Of(slot, want), func(slot int) float64 { return Explain(v, &prefill, p, uint8(slot)).Score }
				if score(slot) > score(want) || score(slot) == score(want) && Pick(v, &equal, p) == slot {
					want = slot
				}
			}
		}
		if got != want {
			t.Fatalf("picked %d of sum %v, want %d of sum %v", got, sum(v, &prefill, &decode, p, &d, got), want, best)
		}
	})
}

// sum is the score of the best pair with that prefill pod.
func sum(v *View, prefill, decode *index.Bitmap, p, d *Request, slot int) float64 {
	d.Node, d.Zone = v.Node[slot], v.Zone[slot]
	best := 0.0
	for i, at := 0, decode.Next(0); at >= 0; i, at = i+1, decode.Next(at+1) {
		if s := Explain(v, decode, d, uint8(at)).Score; s > best || i == 0 {
			best = s
		}
	}
	return Explain(v, prefill, p, uint8(slot)).Score + best
}

// TestPairOfManyPlaces: of more places than it looks at, those with the best prefill
// pods count.
func TestPairOfManyPlaces(t *testing.T) {
	v := &View{}
	prefill, decode := index.Bitmap{}, index.Of(200)
	for i := range 8 {
		prefill.Set(i)
		v.Node[i], v.Rank[i] = uint16(i+1), uint8(i)
		v.Add(uint8(i), int32(i+1)) // the later, the busier
	}
	v.Rank[200] = 200
	for near, want := range []int{0, 1, 2, 3, 0, 0, 0, 0} {
		v.Node[200] = uint16(near + 1)
		p := &Request{Weights: Weights{Load: 0.01}, TieBreak: ByPodID, Sticky: None}
		d := &Request{Weights: decodeWeights, TieBreak: ByPodID, Sticky: None}
		if got := Pair(v, &prefill, &decode, p, d); got != want {
			t.Errorf("the decode pod is near pod %d: picked %d, want %d", near, got, want)
		}
	}
}

// TestPairOfBothRoles: a pod that would be left without a decode pod but itself is no
// half of the best pair.
func TestPairOfBothRoles(t *testing.T) {
	v := &View{}
	for i := range 3 {
		v.Node[i], v.Rank[i] = 1, uint8(i)
	}
	v.Add(2, 3) // busy
	// 0 serves both legs, 1 the prefill leg, 2 the decode leg.
	prefill, decode := index.Of(0, 1), index.Of(0, 2)
	p := &Request{Weights: prefillWeights, TieBreak: ByPodID, Sticky: None}
	d := &Request{Weights: decodeWeights, TieBreak: ByPodID, Sticky: None}
	if got := Pair(v, &prefill, &decode, p, d); got != 1 {
		t.Errorf("picked %d: the decode leg is left with the busy pod", got)
	}
	alone := index.Of(0)
	if got := Pair(v, &prefill, &alone, p, d); got != 0 {
		t.Errorf("picked %d, where the only decode pod is the first prefill pod", got)
	}
}
