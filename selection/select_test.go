package selection

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/calinix/caddy-calinix/index"
)

// scene is a drawn fleet and request, in a form that can be laid out in any
// order of slots.
type scene struct {
	pods []pod
	r    Request // Frames and Sticky are made by lay
	gone int     // pods from here on are no candidates
	best int     // which pod served the session, or None
}

type pod struct {
	id         uint64
	legs       int32
	limit      int32 // < 0: none
	node, zone uint16
	depth      int
	load       Load // of each of its legs; every other one decodes
}

// weight draws finite weights for the most part, and now and then what no
// configuration should let through.
func weight() *rapid.Generator[float64] {
	return rapid.OneOf(
		rapid.SampledFrom([]float64{0, 0.1, 0.25, 0.3, 0.6, 1}),
		rapid.Float64Range(-2, 2),
		rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), math.Inf(-1), 1e300, -1e300, 5e-324}),
	)
}

func drawScene(t *rapid.T) *scene {
	n := rapid.IntRange(1, 40).Draw(t, "pods")
	s := &scene{best: None}
	kinds := rapid.IntRange(0, 2).Draw(t, "limits") // none, all, some
	for i := range n {
		p := pod{
			id:    rapid.Uint64Range(1, 1<<20).Draw(t, "id"),
			legs:  rapid.Int32Range(0, 6).Draw(t, "legs"),
			limit: -1,
			node:  rapid.Uint16Range(0, 3).Draw(t, "node"),
			zone:  rapid.Uint16Range(0, 2).Draw(t, "zone"),
			depth: rapid.IntRange(0, 4).Draw(t, "depth"),
			load: Load{
				Prompt:   rapid.SampledFrom([]int64{1, 100, 100, 9000}).Draw(t, "prompt"),
				Uncached: rapid.SampledFrom([]int64{1, 50, 50, 1 << 40}).Draw(t, "uncached"),
			},
		}
		if rapid.IntRange(0, 9).Draw(t, "many") == 0 {
			p.legs += 70
		}
		if kinds == 1 || kinds == 2 && i%2 == 0 {
			p.limit = rapid.SampledFrom([]int32{0, 1, 8, 8, 8, 100}).Draw(t, "limit")
		}
		s.pods = append(s.pods, p)
	}
	s.gone = rapid.IntRange(0, n).Draw(t, "candidates")
	if rapid.Bool().Draw(t, "session") {
		s.best = rapid.IntRange(0, n-1).Draw(t, "served")
	}
	s.r = Request{
		Strategy: Strategy(rapid.IntRange(0, int(PowerOfTwo)).Draw(t, "strategy")),
		TieBreak: TieBreak(rapid.IntRange(0, int(ByPodID)).Draw(t, "tieBreak")),
		Weights: Weights{
			weight().Draw(t, "cache"), weight().Draw(t, "load"),
			weight().Draw(t, "sticky"), weight().Draw(t, "locality"),
		},
		Blocks: rapid.SampledFrom([]int{0, 4, 7}).Draw(t, "blocks"),
		Node:   rapid.Uint16Range(0, 3).Draw(t, "nearNode"),
		Zone:   rapid.Uint16Range(0, 2).Draw(t, "nearZone"),
		Key:    rapid.Uint64().Draw(t, "key"),
		HasKey: rapid.Bool().Draw(t, "hasKey"),
		Turn:   rapid.Uint8().Draw(t, "turn"),
		Draw:   rapid.Uint64().Draw(t, "random"),

		Hash:       rapid.Uint64().Draw(t, "hash"),
		HasHash:    rapid.Bool().Draw(t, "hasHash"),
		LoadFactor: rapid.Float64Range(1, 3).Draw(t, "loadFactor"),
		TTFT:       TTFT{PrefillRate: 2000, Gamma: weight().Draw(t, "gamma"), Theta: weight().Draw(t, "theta"), Eta: 0.7, Replicas: 2},
		Duty:       Duty(rapid.IntRange(0, int(Generate)).Draw(t, "duty")),
		Tokens:     rapid.Int64Range(1, 5000).Draw(t, "tokens"),
		Now:        rapid.Int64Range(0, 1<<32).Draw(t, "now"),
	}
	return s
}

// lay puts pod i into slot at[i] and keeps its rank.
func (s *scene) lay(at []int) (*View, index.Bitmap, *Request) {
	v, r := &View{}, s.r
	r.Frames, r.Sticky = nil, None
	var c index.Bitmap
	depths := map[int]index.Bitmap{}
	var ring []Place
	for i, p := range s.pods {
		slot := at[i]
		v.ID[slot], v.Rank[slot], v.Node[slot], v.Zone[slot] = p.id, uint8(i), p.node, p.zone
		v.Add(uint8(slot), p.legs)
		ring = append(ring, Place{uint8(slot), p.id<<8 | uint64(i)}) // ids may be equal
		for i := range p.legs {
			v.Queue(uint8(slot), p.load, int64(i)<<20, r.TTFT.PrefillRate)
			if i%2 == 1 {
				v.Computed(uint8(slot), p.load, int64(i)<<21, r.TTFT.PrefillRate)
				v.Decode(uint8(slot), p.load, 1)
			}
		}
		if p.limit >= 0 {
			v.SetLimit(uint8(slot), p.limit)
		}
		if i < s.gone {
			c.Set(slot)
		}
		if p.depth > 0 {
			b := depths[p.depth]
			b.Set(slot)
			depths[p.depth] = b
		}
	}
	for d := 1; d <= 4; d++ {
		if b, ok := depths[d]; ok {
			r.Frames = append(r.Frames, index.Frame{Depth: d, Pods: b})
		}
	}
	if s.best != None {
		r.Sticky = at[s.best]
	}
	r.Ring = NewRing(ring, 3)
	r.Work = nil
	for _, f := range append(r.Frames[:len(r.Frames):len(r.Frames)], index.Frame{}) {
		r.Work = append(r.Work, r.TTFT.Work(r.Tokens, int64(f.Depth)*64, int64(f.Depth)*64+100))
	}
	return v, c, &r
}

// straight puts pod i into slot i.
func straight(n int) []int {
	at := make([]int, n)
	for i := range at {
		at[i] = i
	}
	return at
}

// above says whether score a beats score b: numbers by size, and any number
// beats what is none.
func above(a, b float64) bool { return a > b || math.IsNaN(b) && !math.IsNaN(a) }

// TestScoreIsExplained compares Score with its plain twin: the candidates whose
// explained score none beats, found by comparing each with each.
func TestScoreIsExplained(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawScene(t)
		v, c, r := s.lay(straight(len(s.pods)))
		if r.Strategy == PowerOfTwo {
			return // scores only two of them
		}
		var want index.Bitmap
		for p := c.Next(0); p >= 0; p = c.Next(p + 1) {
			beaten := false
			for q := c.Next(0); q >= 0; q = c.Next(q + 1) {
				beaten = beaten || above(Explain(v, &c, r, uint8(q)).Score, Explain(v, &c, r, uint8(p)).Score)
			}
			if !beaten {
				want.Set(p)
			}
		}
		top := Score(v, &c, r)
		if top != want {
			t.Fatalf("top %v, want %v", top, want)
		}
		pick := Pick(v, &top, r)
		if c.Empty() != (pick == None) || pick != None && !top.Has(pick) {
			t.Fatalf("picked %d of %v", pick, top)
		}
	})
}

// TestSlotsDoNotMatter: the pick is a function of the pods, not of the slots in
// which they live.
func TestSlotsDoNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawScene(t)
		n := len(s.pods)
		seed := rapid.Uint64().Draw(t, "permutation")
		at := rand.New(rand.NewPCG(seed, 1)).Perm(Slots)[:n]
		v, c, r := s.lay(straight(n))
		top := Score(v, &c, r)
		want := Pick(v, &top, r)

		v, c, r = s.lay(at)
		top = Score(v, &c, r)
		got := Pick(v, &top, r)
		if got != None {
			for i, slot := range at {
				if slot == got {
					got = i
					break
				}
			}
		}
		if got != want {
			t.Fatalf("pod %d in other slots, %d in its own", got, want)
		}
	})
}

// TestLosersDoNotMatter: a candidate that is not picked may come or go without
// changing the pick, as long as load factors do not depend on it: with explicit
// limits everywhere. The bound of a ring depends on all, and who is drawn does.
func TestLosersDoNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawScene(t)
		for i := range s.pods {
			s.pods[i].limit = max(s.pods[i].limit, 5)
		}
		v, c, r := s.lay(straight(len(s.pods)))
		if r.Strategy.Hashes() || r.Strategy == PowerOfTwo {
			return
		}
		top := Score(v, &c, r)
		want := Pick(v, &top, r)
		for p := c.Next(0); p >= 0; p = c.Next(p + 1) {
			if p == want {
				continue
			}
			fewer := c
			fewer.Clear(p)
			top := Score(v, &fewer, r)
			if got := Pick(v, &top, r); got != want {
				t.Fatalf("without pod %d the pick is %d, with it %d", p, got, want)
			}
		}
	})
}

// TestPickOrdersEquals: among any set of equals the pick is the first of one
// fixed sequence, so that picking and leaving out names each pod once.
func TestPickOrdersEquals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawScene(t)
		v, c, r := s.lay(straight(len(s.pods)))
		var sequence []int
		for rest := c; !rest.Empty(); {
			p := Pick(v, &rest, r)
			rest.Clear(p)
			sequence = append(sequence, p)
		}
		mask := rapid.Uint64().Draw(t, "some")
		some := c.And(index.Bitmap{mask, mask, mask, mask})
		for _, p := range sequence {
			if some.Has(p) {
				if got := Pick(v, &some, r); got != p {
					t.Fatalf("picked %d of %v, want %d: sequence %v", got, some, p, sequence)
				}
				break
			}
		}
	})
}

// TestFilter checks bitmap by bitmap, and that the reason agrees.
func TestFilter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set := func(name string) index.Bitmap {
			w := rapid.Uint64().Draw(t, name)
			return index.Bitmap{w, w << 1, w >> 1, ^w}
		}
		s := State{set("role"), set("other"), set("up"), set("draining"), set("full"), set("excluded")}
		c, u := Filter(&s), Usable(&s)
		for p := range Slots {
			usable := s.Role.Has(p) && !s.Other.Has(p) && s.Up.Has(p) && !s.Draining.Has(p) && !s.Excluded.Has(p)
			if u.Has(p) != usable {
				t.Fatalf("pod %d usable %v, want %v", p, u.Has(p), usable)
			}
			if c.Has(p) != (usable && !s.Full.Has(p)) {
				t.Fatalf("pod %d candidate %v", p, c.Has(p))
			}
			if c.Has(p) != (Reason(&s, p) == "") {
				t.Fatalf("pod %d candidate %v, reason %q", p, c.Has(p), Reason(&s, p))
			}
		}
	})
}
