package index

import (
	"sync/atomic"
	"unsafe"
)

// record is what the index knows of one block, but for the owners from pod 128
// on, which its chunk holds. So what most queries and registrations need of a
// block, 32 bytes, never straddles two cache lines.
//
// Guards: key and owners are written under the shard's lock and read by
// anybody. A pod's owner bit moreover changes only under the lock of that pod's
// mirror, and is set exactly as long as the mirror holds an entry for the
// block; so whoever holds the mirror's lock and sees the bit knows that the
// record stays. use is written by registrations without a lock (storeRelaxed).
//
// A record without owners is dead and may become another block's. Readers
// therefore compare key before and after they read the owners. The version in
// it makes the comparison fail also if the same block came back to the record
// in between (it would take 128 re-uses between two adjacent loads, the last of
// them for the same block, to deceive a reader).
type record struct {
	key    atomic.Uint64 // key of the block, alive bit, version
	use    uint64        // see popularity.go; in a dead record the next free one
	owners [nearWords]atomic.Uint64
}

const (
	aliveBit    = 1 << keyBits
	versionUnit = 1 << (keyBits + 1)
	identMask   = keyMask | aliveBit

	ownerWords = len(Bitmap{})
	nearWords  = 2
)

// chunk is the unit in which records are allocated: 48 bytes a block. A record
// never moves, so that a query may remember it for the registration.
type chunk struct {
	records [chunkLen]record
	far     [chunkLen][ownerWords - nearWords]atomic.Uint64
}

func (c *chunk) record(n uint32) *record { return &c.records[n%chunkLen] }

// owners returns one word of a record's owners; n may be a block's id.
func (c *chunk) owners(n uint32, w uint) *atomic.Uint64 {
	if w < nearWords {
		return &c.records[n%chunkLen].owners[w]
	}
	return &c.far[n%chunkLen][w%nearWords]
}

const (
	chunkLen   = 64
	chunkBytes = int64(unsafe.Sizeof(chunk{}))

	// blockBits is the width of a record's number within its shard, and
	// so limits a shard to a million blocks; a block's id is the shard's
	// number above it.
	blockBits = 20
	blockMask = 1<<blockBits - 1
	idMask    = 1<<(shardBits+blockBits) - 1
	noBlock   = idMask + 1 // an id that no block has
)

// view is what readers see of a shard: one snapshot of its shape. The table's
// references are record numbers plus one.
type view struct {
	table  table
	chunks []*chunk // as many as the table has room for; nil where not needed yet
}

// record returns a block's record, of which the mirror of one of its owners has an
// entry: so there is one, for as long as the caller holds that mirror's lock.
func (x *Index) record(id uint32) (*chunk, *record) {
	c := x.views[id>>blockBits].Load().chunks[id&blockMask/chunkLen]
	return c, c.record(id)
}

// emptyView is every shard's view until its first block.
var emptyView = &view{table: make(table, 1)}

// chunk returns the chunk of the record with the number, or nil if this view is
// too old to know it.
func (v *view) chunk(n uint32) *chunk {
	if c := n / chunkLen; c < uint32(len(v.chunks)) {
		return v.chunks[c]
	}
	return nil
}

// guess returns where a block's record probably is, without a look at it: the
// first item with the right tag in the home bucket. With nil comes noBlock if
// the block surely does not exist.
func (v *view) guess(place uint64) (*chunk, uint32) {
	b := &v.table[v.table.home(place)]
	m := b.match(tagOf(place))
	if m == 0 {
		if b.passed() {
			return nil, 0
		}
		return nil, noBlock
	}
	n := b.ref(m) - 1
	return v.chunk(n), n
}

// find returns the chunk of a block's record, the record's number and the word
// with its key; or nil. Wait-free.
func (v *view) find(place, key uint64) (*chunk, uint32, uint64) {
	tag := tagOf(place)
	b := v.table.home(place)
	for range v.table {
		bk := &v.table[b]
		for m := bk.match(tag); m != 0; m &= m - 1 {
			n := bk.ref(m) - 1
			if c := v.chunk(n); c != nil {
				if k := c.record(n).key.Load(); k&identMask == key|aliveBit {
					return c, n, k
				}
			}
		}
		if !bk.passed() {
			break
		}
		b = v.table.after(b)
	}
	return nil, 0, 0
}

func (v *view) bytes() int64 {
	if v == emptyView {
		return 0
	}
	return int64(len(v.table))*bucketBytes + int64(len(v.chunks))*8 + int64(unsafe.Sizeof(*v))
}
