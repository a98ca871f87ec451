package selection

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/calinix/caddy-calinix/index"
)

// The acceptance figures, with the product's defaults.
const (
	ringPods   = 20
	ringKeys   = 10_000
	ringNodes  = 160
	ringFactor = 1.25
)

// places puts pods with these ids into the slots from 0.
func places(ids ...string) []Place {
	all := make([]Place, len(ids))
	for i, id := range ids {
		all[i] = Place{uint8(i), IDHash(id)}
	}
	return all
}

func named(format string, n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf(format, i)
	}
	return ids
}

// homes returns where each of the keys belongs.
func homes(r *Ring, c index.Bitmap) []int {
	at := make([]int, ringKeys)
	for k := range at {
		at[k] = r.Home(&c, IDHash(fmt.Sprintf("session-%d", k)))
	}
	return at
}

// TestRingMovesLittle: whichever of 20 pods goes or comes, at most 1.3/20 of
// 10,000 keys move, and only from or to that pod.
func TestRingMovesLittle(t *testing.T) {
	for _, names := range []string{"pod-%d", "gpu-%02d", "10.0.0.%d:8000"} {
		all := index.All(ringPods)
		r := NewRing(places(named(names, ringPods)...), ringNodes)
		before := homes(r, all)
		most := 0
		for gone := range ringPods {
			rest := all
			rest.Clear(gone)
			// Out of the ring, and only out of the candidates, is the same.
			without := NewRing(slices.Delete(places(named(names, ringPods)...), gone, gone+1), ringNodes)
			after := homes(without, rest)
			if !slices.Equal(after, homes(r, rest)) {
				t.Fatalf("a ring without pod %d is not the ring with it left out", gone)
			}
			moved := 0
			for k := range before {
				if before[k] == after[k] {
					continue
				}
				moved++
				if before[k] != gone {
					t.Fatalf("key %d went from pod %d to pod %d when pod %d went", k, before[k], after[k], gone)
				}
			}
			most = max(most, moved)
			if limit := 1.3 / ringPods * ringKeys; float64(moved) > limit {
				t.Errorf("%s: %d of %d keys move with pod %d, want at most %.0f", names, moved, ringKeys, gone, limit)
			}
			if share := without.Moved(r); math.Abs(share-float64(moved)/ringKeys) > 0.01 {
				t.Errorf("%s: %.4f of the keys have moved by Moved, %.4f by counting", names, share, float64(moved)/ringKeys)
			}
		}
		t.Logf("%s: at most %d of %d keys move", names, most, ringKeys)
	}
}

// TestRingIsBounded: however the requests are spread over the keys, no pod holds
// more than 1.25 times the mean and one; keys stay at their pod as long as that is
// below the bound.
func TestRingIsBounded(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	r := NewRing(places(named("pod-%d", ringPods)...), ringNodes)
	v, c := &View{}, index.All(ringPods)
	passed := 0
	for n := range ringKeys {
		key := IDHash(fmt.Sprintf("session-%d", rnd.IntN(ringKeys)))
		if rnd.IntN(10) == 0 {
			key = IDHash("the hot one")
		}
		most := ringFactor * float64(n+1) / ringPods
		home, slot := r.Home(&c, key), r.Bounded(v, &c, key, ringFactor)
		if slot != home {
			passed++
			if float64(v.Inflight(uint8(home))+1) <= most {
				t.Fatalf("a key left pod %d, which has %d of at most %.2f legs", home, v.Inflight(uint8(home)), most)
			}
		}
		v.Add(uint8(slot), 1)
		for p := range ringPods {
			if got := float64(v.Inflight(uint8(p))); got > most+1 {
				t.Fatalf("pod %d has %.0f of %d legs, want at most %.2f", p, got, n+1, most+1)
			}
		}
	}
	if passed == 0 {
		t.Error("one key in ten requests never went over the bound: the test tests nothing")
	}
	t.Logf("%d of %d were passed on", passed, ringKeys)
}

// plainBounded is Bounded as one would write it down: the points of each pod in
// a list, in order from the key on.
func plainBounded(v *View, pods []Place, nodes int, c index.Bitmap, key uint64, factor float64) int {
	type point struct {
		ahead uint64 // how far after the key
		slot  int
	}
	var points []point
	legs, n := 0, 0
	for p := c.Next(0); p >= 0; p = c.Next(p + 1) {
		legs += int(v.Inflight(uint8(p)))
		n++
	}
	for _, p := range pods {
		for i := range nodes * nodePoints {
			if c.Has(int(p.Slot)) {
				points = append(points, point{pointAt(p.ID, i)>>8 - key>>8, int(p.Slot)})
			}
		}
	}
	for i := range points {
		points[i].ahead &= 1<<56 - 1
	}
	slices.SortFunc(points, func(a, b point) int {
		if a.ahead != b.ahead {
			return int(int64(a.ahead>>1) - int64(b.ahead>>1))
		}
		return a.slot - b.slot
	})
	for _, p := range points {
		if float64(v.Inflight(uint8(p.slot))) < math.Ceil(factor*float64(legs+1)/float64(n)) {
			return p.slot
		}
	}
	if len(points) == 0 {
		return None
	}
	return points[0].slot
}

// TestRingIsPlain compares the ring with its plain twin.
func TestRingIsPlain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 12).Draw(t, "pods")
		nodes := rapid.IntRange(0, 20).Draw(t, "nodes")
		at := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "slots"), 1)).Perm(Slots)[:n]
		v := &View{}
		var pods []Place
		var c index.Bitmap
		for i, slot := range at {
			pods = append(pods, Place{uint8(slot), IDHash(fmt.Sprint(i))})
			v.Add(uint8(slot), rapid.Int32Range(0, 5).Draw(t, "legs"))
			if rapid.IntRange(0, 3).Draw(t, "candidate") > 0 {
				c.Set(slot)
			}
		}
		key := rapid.Uint64().Draw(t, "key")
		factor := rapid.SampledFrom([]float64{1, 1.25, 2, 0, math.NaN(), math.Inf(1)}).Draw(t, "factor")
		want := plainBounded(v, pods, nodes, c, key, factor)
		if got := NewRing(pods, nodes).Bounded(v, &c, key, factor); got != want {
			t.Fatalf("pod %d, want %d", got, want)
		}
	})
}

// TestRingMoved: the share that has moved is symmetric, 0 between equal rings
// whatever the slots, and counts a pod that has taken another one's slot.
func TestRingMoved(t *testing.T) {
	a := NewRing(places("a", "b", "c"), 160)
	b := NewRing([]Place{{7, IDHash("c")}, {3, IDHash("b")}, {9, IDHash("a")}}, 160)
	if x := b.Moved(a); x != 0 {
		t.Errorf("%v has moved to other slots", x)
	}
	d := NewRing(places("a", "b", "d"), 160)
	x, y := d.Moved(a), a.Moved(d)
	if x != y || x < 0.4 || x > 0.9 { // both pods' shares, but for what one takes from the other
		t.Errorf("moved %v one way, %v the other", x, y)
	}
	if x := a.Moved(nil); x != 0 {
		t.Errorf("%v has moved from no ring", x)
	}
	if !a.Same(places("a", "b", "c")) || a.Same(places("a", "b", "d")) || a.Same(places("a", "b")) {
		t.Error("Same is wrong")
	}
}

// TestFall: what cannot be hashed is decided one step further down.
func TestFall(t *testing.T) {
	ring := NewRing(places("a", "b", "c"), 160)
	for _, tt := range []struct {
		name   string
		strat  Strategy
		hash   bool
		ring   *Ring
		legs   int32
		want   Strategy
		reason Fallback
	}{
		{"a key", SessionAffinity, true, ring, 0, SessionAffinity, 0},
		{"a key of a prefix", Prefix, true, ring, 3, Prefix, 0},
		{"no key", SessionAffinity, false, ring, 1, LeastLoaded, NoKey},
		{"no key, no load", Prefix, false, ring, 0, RoundRobin, NoKey | LoadUnknown},
		{"no ring", SessionAffinity, true, nil, 1, LeastLoaded, RingEmpty},
		{"ring of others", SessionAffinity, true, NewRing([]Place{{200, 1}}, 160), 0, RoundRobin, RingEmpty | LoadUnknown},
		{"ring without points", Prefix, true, NewRing(places("a"), 0), 1, LeastLoaded, RingEmpty},
		{"another strategy", CacheAware, false, nil, 0, CacheAware, 0},
		{"another strategy", PowerOfTwo, false, nil, 0, PowerOfTwo, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v, c := &View{}, index.All(3)
			v.Add(1, tt.legs)
			r := &Request{Strategy: tt.strat, HasHash: tt.hash, Ring: tt.ring, LoadFactor: 1.25, Sticky: None, HasKey: true, Turn: math.MaxUint8}
			for i := range 3 {
				v.Rank[i] = uint8(i)
			}
			if why := Fall(v, &c, r); why != tt.reason || r.Strategy != tt.want {
				t.Fatalf("%v because of %b, want %v because of %b", r.Strategy, why, tt.want, tt.reason)
			}
			top := Score(v, &c, r)
			if p := Pick(v, &top, r); p < 0 {
				t.Error("no pod is picked")
			} else if tt.reason != 0 && p != 0 {
				t.Errorf("pod %d is picked, want the next in turn", p)
			}
		})
	}
}

// TestPowerOfTwo: every pod is drawn as often as any other, and the busier of the
// two never wins.
func TestPowerOfTwo(t *testing.T) {
	const n, times = 10, 20_000
	rnd := rand.New(rand.NewPCG(1, 2))
	v, c := &View{}, index.All(n)
	for p := range n {
		v.ID[p], v.Rank[p] = IDHash(fmt.Sprint(p)), uint8(p)
	}
	pick := func() int {
		r := &Request{Strategy: PowerOfTwo, Draw: rnd.Uint64()}
		top := Score(v, &c, r)
		return Pick(v, &top, r)
	}
	var got [n]int
	for range times {
		got[pick()]++
	}
	for p, k := range got {
		if k < times/n*9/10 || k > times/n*11/10 {
			t.Errorf("pod %d was picked %d times of %d", p, k, times)
		}
	}
	// One pod is busier than all others: only when it is drawn twice could it win.
	v.Add(4, 7)
	for range times {
		if p := pick(); p == 4 {
			t.Fatal("the busiest pod was picked")
		}
	}
	// The least busy one is picked when it is drawn: with probability 2/n.
	v.Add(4, -7)
	for p := range n {
		v.Add(uint8(p), 5)
	}
	v.Add(4, -5)
	mine := 0
	for range times {
		if pick() == 4 {
			mine++
		}
	}
	if want := times * 2 / n; mine < want*9/10 || mine > want*11/10 {
		t.Errorf("the idle pod was picked %d times, want about %d", mine, want)
	}
	c = index.Of(3)
	if p := pick(); p != 3 {
		t.Errorf("of one pod %d was picked", p)
	}
	c = index.Bitmap{}
	if p := pick(); p != None {
		t.Errorf("of no pods %d was picked", p)
	}
}

func TestRingAllocatesNothing(t *testing.T) {
	r := NewRing(places(named("pod-%d", ringPods)...), ringNodes)
	v, c := &View{}, index.All(ringPods)
	q := &Request{Strategy: SessionAffinity, HasHash: true, Hash: 42, LoadFactor: 1.25, Ring: r, Sticky: None}
	if n := testing.AllocsPerRun(100, func() {
		Fall(v, &c, q)
		top := Score(v, &c, q)
		_ = Pick(v, &top, q)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
