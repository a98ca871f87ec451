package index

import (
	"testing"

	"pgregory.net/rapid"
)

// references returns what a search for the place comes across.
func (t table) references(place uint64) map[uint32]bool {
	refs := map[uint32]bool{}
	b := t.home(place)
	for range t {
		for m := t[b].match(tagOf(place)); m != 0; m &= m - 1 {
			refs[t[b].ref(m)] = true
		}
		if !t[b].passed() {
			break
		}
		b = t.after(b)
	}
	return refs
}

// TestTable compares a table with a map, also where all keys share a home bucket or
// a tag.
func TestTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mask := rapid.SampledFrom([]uint64{^uint64(0), 0xffffffff, 0xffffffff_00ffffff, 0x1_00000000}).Draw(t, "mask")
		places := map[uint32]uint64{} // by reference
		tab := make(table, rapid.IntRange(1, 5).Draw(t, "buckets"))
		refs := rapid.Uint32Range(1, 60)
		t.Repeat(map[string]func(*rapid.T){
			"insert": func(t *rapid.T) {
				for _, ref := range rapid.SliceOfN(refs, 1, 20).Draw(t, "references") {
					if _, ok := places[ref]; ok {
						continue
					}
					if len(places) >= tab.room() {
						old := tab
						tab = tab.larger(len(places) + 1)
						if len(tab) <= len(old) || tab.room() <= len(places) {
							t.Fatalf("grew from %d to %d buckets for %d items", len(old), len(tab), len(places)+1)
						}
						for r, p := range places {
							tab.insert(p, r)
						}
					}
					places[ref] = rapid.Uint64().Draw(t, "place") & mask
					tab.insert(places[ref], ref)
				}
			},
			"remove": func(t *rapid.T) {
				ref := refs.Draw(t, "reference")
				place, ok := places[ref]
				if tab.remove(place, ref) != ok {
					t.Fatalf("removed %d: %v, want %v", ref, !ok, ok)
				}
				delete(places, ref)
			},
			"": func(t *rapid.T) {
				var at [128]int // bucket of a reference, plus one
				items, passed := 0, 0
				for b := range tab {
					passed += int(tab[b][7].Load() >> passedShift)
					for i := range tab[b] {
						w := tab[b][i].Load()
						for half := range 2 {
							if item := uint32(w >> (32 * half)); item != 0 && (i < 7 || half == 0) {
								items++
								at[item&refMask] = b + 1
							}
						}
					}
				}
				if items != len(places) {
					t.Fatalf("%d items in the buckets, want %d", items, len(places))
				}
				for ref, place := range places {
					home := int(tab.home(place))
					passed -= (at[ref] - 1 - home + len(tab)) % len(tab)
				}
				if passed != 0 {
					t.Fatalf("the counts of items that passed are %d too high", passed)
				}
				for ref, place := range places {
					if !tab.references(place)[ref] {
						t.Fatalf("reference %d with place %#x is not found", ref, place)
					}
				}
			},
		})
	})
}

// TestMatch: every item with the tag is in the mask, and whatever else is there is
// an item with a neighbouring tag.
func TestMatch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b bucket
		var items [2 * len(b)]uint32
		tag := rapid.Uint32Range(0, 255).Draw(t, "tag")
		for i := range items {
			near := rapid.SampledFrom([]uint32{tag, tag ^ 1, tag + 1, tag - 1, 0, 0x80, 0xff}).Draw(t, "tag of item") & 0xff
			items[i] = near<<refBits | rapid.Uint32Range(0, refMask).Draw(t, "reference")
		}
		for i := range b {
			b[i].Store(uint64(items[2*i]) | uint64(items[2*i+1])<<32)
		}
		found := 0
		for m := b.match(tag); m != 0; m &= m - 1 {
			i, shift := slot(m)
			got := items[2*i+shift/32] >> refBits
			if got != tag && got != tag^1 {
				t.Fatalf("an item with tag %#x matches %#x", got, tag)
			}
			if got == tag {
				found++
			}
		}
		want := 0
		for _, item := range items {
			if item>>refBits == tag {
				want++
			}
		}
		if found != want {
			t.Fatalf("%d items match %#x, want %d", found, tag, want)
		}
	})
}
