package index

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func members(b Bitmap) []int {
	var l []int
	for p := b.Next(0); p >= 0; p = b.Next(p + 1) {
		l = append(l, p)
	}
	return l
}

// TestBitmap compares every operation with the same on a map.
func TestBitmap(t *testing.T) {
	sets := rapid.Custom(func(t *rapid.T) Bitmap {
		return rapid.SampledFrom([]Bitmap{
			{},
			All(256), All(rapid.IntRange(0, 256).Draw(t, "n")),
			Of(rapid.SliceOfN(rapid.IntRange(0, 255), 0, 6).Draw(t, "few")...),
			{rapid.Uint64().Draw(t, "w0"), rapid.Uint64().Draw(t, "w1"), rapid.Uint64().Draw(t, "w2"), rapid.Uint64().Draw(t, "w3")},
		}).Draw(t, "set")
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := sets.Draw(t, "a"), sets.Draw(t, "b")
		and, or, not := a.And(b), a.Or(b), a.AndNot(b)
		var all, inBoth []int
		for p := range Pods {
			ha, hb := a.Has(p), b.Has(p)
			if ha != (a[p/64]&(1<<(p%64)) != 0) {
				t.Fatalf("Has(%d) = %v in %x", p, ha, a)
			}
			if and.Has(p) != (ha && hb) || or.Has(p) != (ha || hb) || not.Has(p) != (ha && !hb) {
				t.Fatalf("pod %d: and %v, or %v, andnot %v of %v, %v", p, and.Has(p), or.Has(p), not.Has(p), ha, hb)
			}
			if ha {
				all = append(all, p)
			}
			if ha && hb {
				inBoth = append(inBoth, p)
			}
			with, without := a, a
			with.Set(p)
			without.Clear(p)
			if !with.Has(p) || without.Has(p) || with != a.Or(Of(p)) || without != a.AndNot(Of(p)) {
				t.Fatalf("Set or Clear of %d in %v", p, a)
			}
		}
		if !slices.Equal(members(a), all) || a.Count() != len(all) || a.Empty() != (len(all) == 0) || Of(all...) != a {
			t.Fatalf("%v: members %v, count %d, want %v", a, members(a), a.Count(), all)
		}
		if a.Intersects(b) != (len(inBoth) > 0) {
			t.Fatalf("Intersects = %v, common %v", a.Intersects(b), inBoth)
		}
		from := rapid.IntRange(-3, 259).Draw(t, "from")
		want := -1
		if i := slices.IndexFunc(all, func(p int) bool { return p >= from }); i >= 0 {
			want = all[i]
		}
		if got := a.Next(from); got != want {
			t.Fatalf("Next(%d) = %d, want %d of %v", from, got, want, all)
		}
	})
}

func TestBitmapEdges(t *testing.T) {
	for _, n := range []int{-5, 0, 1, 63, 64, 65, 127, 128, 192, 255, 256, 300} {
		b, want := All(n), min(max(n, 0), 256)
		if b.Count() != want || b.Next(want) != -1 {
			t.Errorf("All(%d) has %d members, next after them %d", n, b.Count(), b.Next(want))
		}
	}
	b := Of(-1, 256, 1<<40, 7)
	b.Clear(-1)
	b.Clear(256)
	if b != Of(7) || b.Has(-1) || b.Has(256) || b.Has(263) {
		t.Errorf("pods outside 0…255 matter: %v", b)
	}
	for want, b := range map[string]Bitmap{
		"{}": {}, "{0-255}": All(256), "{3}": Of(3), "{0,3,8-15,255}": Of(0, 3, 8, 9, 10, 11, 12, 13, 14, 15, 255), "{63-64}": Of(63, 64),
	} {
		if got := b.String(); got != want {
			t.Errorf("String() = %s, want %s", got, want)
		}
	}
}
