package index

import (
	"math/bits"
	"sync/atomic"
)

// table is a hash set of small numbers ("references"), the common frame of the
// block table's shards and of the mirrors' look-ups. It stores neither keys
// nor values: the owner says by its own records whether a reference is the one
// that is looked for. So an item costs four bytes divided by the fill.
//
// One writer at a time, guarded by the owner's lock; readers need no lock. An
// item never moves within a table: it is put where it fits, on the way from its
// home bucket onwards, and each bucket counts the items that had to pass it. A
// reader therefore never misses an item that stays, a removal needs neither a
// tombstone nor a shift, and a search ends at the first bucket that nothing
// passed. To grow, the owner fills a larger table and swaps it in.
//
// (Linear probing with backward shift was the alternative: it packs as well,
// but a reader beside the shift can step over a block that is there.)
type table []bucket

// bucket is one cache line: 15 items and, in the last half word, the number of
// items that passed it. An item is a tag of 8 bits, never 0, above a reference
// of 24 bits, never 0; 0 is a free place.
type bucket [8]atomic.Uint64

const (
	bucketFill  = 13 // items a bucket at which the owner should grow
	bucketBytes = 64

	refBits = 24
	refMask = 1<<refBits - 1

	passedShift = 32 // of the count within the last word
	passedOne   = 1 << passedShift
	passedBit   = 1 << 57 // in the result of match
)

// room is how many items a table may hold before it is to grow.
func (t table) room() int { return len(t) * bucketFill }

// larger returns an empty table for at least n items, a quarter larger than t
// at least, so that the fill stays between 0.69 and 0.87 while a table grows.
func (t table) larger(n int) table {
	return make(table, max((n+bucketFill-1)/bucketFill, len(t)+len(t)/4+1))
}

// home is the bucket in which the search for a place begins.
func (t table) home(place uint64) uint32 {
	return uint32(place >> 32 * uint64(len(t)) >> 32)
}

// near fetches the home bucket of a place: it returns something of it.
func (t table) near(place uint64) uint64 { return t[t.home(place)][0].Load() }

func (t table) after(b uint32) uint32 {
	if b++; b == uint32(len(t)) {
		return 0
	}
	return b
}

func tagOf(place uint64) uint32 {
	tag := uint32(place) >> refBits
	if tag == 0 {
		tag = 1
	}
	return tag
}

// match returns a mask with a bit for each item with the tag, and rarely one for
// an item with a tag next to it. All items are compared at once, without a branch
// that depends on them: the tags are gathered into two words, in which those that
// equal the wanted one become zero bytes, which are then found by the usual trick.
func (b *bucket) match(tag uint32) uint64 {
	const (
		tags = 0xff000000_ff000000
		ones = 0x01010101_01010101
		tops = ones << 7
	)
	want := uint64(tag) * ones
	lo := b[0].Load()&tags>>24 | b[1].Load()&tags>>16 | b[2].Load()&tags>>8 | b[3].Load()&tags
	hi := b[4].Load()&tags>>24 | b[5].Load()&tags>>16 | b[6].Load()&tags>>8 | b[7].Load()&tags
	lo ^= want
	hi ^= want
	return (lo-ones)&^lo&tops>>7 | (hi-ones)&^hi&tops>>6
}

// slot returns where the first item of a mask of match lies: in which word, and by
// how many bits from its lower end.
func slot(m uint64) (word, shift uint) {
	bit := uint(bits.TrailingZeros64(m))
	return bit&1<<2 | bit>>3&3, bit & 32
}

// ref returns the reference of the first item in a mask of match; if that has
// gone since, 0 or another one's.
func (b *bucket) ref(m uint64) uint32 {
	w, shift := slot(m)
	return uint32(b[w].Load()>>shift) & refMask
}

// passed reports whether an item that belongs here or before lies further on.
func (b *bucket) passed() bool { return b[7].Load()>>passedShift != 0 }

// insert adds a reference; the caller keeps the table at or below room.
func (t table) insert(place uint64, ref uint32) {
	item := uint64(tagOf(place)<<refBits | ref)
	for b := t.home(place); ; b = t.after(b) {
		if t[b].add(item) {
			return
		}
		last := &t[b][7]
		last.Store(last.Load() + passedOne)
	}
}

// add puts the item into a free place, if there is one.
func (b *bucket) add(item uint64) bool {
	for m := b.match(0) &^ passedBit; m != 0; m &= m - 1 {
		i, shift := slot(m)
		if w := b[i].Load(); uint32(w>>shift) == 0 {
			b[i].Store(w | item<<shift)
			return true
		}
	}
	return false
}

// remove deletes a reference and reports whether it was there.
func (t table) remove(place uint64, ref uint32) bool {
	item := uint64(tagOf(place)<<refBits | ref)
	home := t.home(place)
	for b, n := home, 0; n < len(t); b, n = t.after(b), n+1 {
		if t[b].drop(item) {
			for ; home != b; home = t.after(home) {
				last := &t[home][7]
				last.Store(last.Load() - passedOne)
			}
			return true
		}
		if !t[b].passed() {
			return false
		}
	}
	return false
}

// drop frees the item's place, if it is here.
func (b *bucket) drop(item uint64) bool {
	for m := b.match(uint32(item >> refBits)); m != 0; m &= m - 1 {
		i, shift := slot(m)
		if w := b[i].Load(); w>>shift&0xffffffff == item {
			b[i].Store(w &^ (0xffffffff << shift))
			return true
		}
	}
	return false
}
