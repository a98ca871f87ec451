package index

import "sync"

// shard is the writers' side of a shard; its view lies apart, in Index.views,
// because readers would otherwise share a cache line with the lock.
type shard struct {
	mu   sync.Mutex
	live uint32 // records in use
	used uint32 // records ever used; those above are untouched
	free uint64 // first dead record's number plus one, 0 for none; read also without the lock, as a hint
	_    [40]byte
}

// keepRecords is how many records an empty shard may keep for the next blocks.
const keepRecords = 4 * chunkLen

// own makes pod an owner of the block with the hash, creating its record
// if there is none: from the reserved room if any is left, else from what can be
// reserved now. at is the caller's guess where the record is, and learns where
// it is. The caller holds the pod's mirror lock.
func (x *Index) own(pod uint8, at *spot, hash uint64, use uint64, room *int64) ownership {
	sp := spread(hash)
	no, key := uint8(sp>>keyBits), sp&keyMask
	s := &x.shards[no]
	s.mu.Lock()
	defer s.mu.Unlock()
	if !at.holds() {
		place := x.mix.place(sp)
		c, n, k := x.views[no].Load().find(place, key)
		if c == nil {
			if *room == 0 && !x.reserve(1) {
				return notOwned
			}
			*room = max(*room-1, 0)
			if c, n, k = x.create(s, no, place, key, use); c == nil {
				*room++
				return notOwned
			}
		}
		*at = spot{c, k, uint32(no)<<blockBits | n}
	}
	w, bit := at.chunk.owners(at.id, uint(pod/64)), uint64(1)<<(pod%64)
	if old := w.Load(); old&bit == 0 {
		w.Store(old | bit)
		return nowOwned
	}
	return wasOwned
}

// ownership is what own found and did.
type ownership uint8

const (
	notOwned ownership = iota // there was no room for the block
	nowOwned
	wasOwned // by another registration since the caller looked
)

// create adds a record for the block and returns what find would; nil if the
// shard is full. The caller holds the shard's lock, has looked in vain, and
// sets the first owner.
func (x *Index) create(s *shard, no uint8, place, key, use uint64) (*chunk, uint32, uint64) {
	v := x.views[no].Load()
	free := uint32(s.free)
	n := free - 1
	if free == 0 {
		if n = s.used; n > blockMask {
			return nil, 0, 0
		}
	}
	if int(s.live) >= v.table.room() || int(n/chunkLen) >= len(v.chunks) {
		v = x.grow(s, no)
	}
	c := v.chunks[n/chunkLen]
	if free == 0 {
		s.used++
		if c == nil {
			c = new(chunk)
			v.chunks[n/chunkLen] = c // no reader looks here before the reference below is in the table
			x.bytes.Add(chunkBytes)
		}
	}
	r := c.record(n)
	if free != 0 {
		storeRelaxed(&s.free, loadRelaxed(&r.use))
	}
	s.live++
	k := r.key.Load()&^identMask | key | aliveBit
	r.key.Store(k)
	storeRelaxed(&r.use, use)
	v.table.insert(place, n+1)
	return c, n, k
}

// grow swaps in a larger view of the shard, whose lock the caller holds.
func (x *Index) grow(s *shard, no uint8) *view {
	old := x.views[no].Load()
	v := &view{table: old.table.larger(old.table.room() + 1)}
	v.chunks = make([]*chunk, v.table.room()/chunkLen+1)
	copy(v.chunks, old.chunks)
	for n := range s.used {
		if k := v.chunks[n/chunkLen].record(n).key.Load(); k&aliveBit != 0 {
			v.table.insert(x.mix.place(uint64(no)<<keyBits|k&keyMask), n+1)
		}
	}
	x.views[no].Store(v)
	x.bytes.Add(v.bytes() - old.bytes())
	return v
}

// disown takes pod off the owners of a block, of which it is one, and reports
// whether the block, left without owners, disappeared. The caller holds the
// pod's mirror lock.
func (x *Index) disown(pod uint8, id uint32) bool {
	no, n := uint8(id>>blockBits), id&blockMask
	s := &x.shards[no]
	s.mu.Lock()
	defer s.mu.Unlock()
	v := x.views[no].Load()
	c := v.chunks[n/chunkLen]
	own := c.owners(n, uint(pod/64))
	own.Store(own.Load() &^ (1 << (pod % 64)))
	for w := range uint(ownerWords) {
		if c.owners(n, w).Load() != 0 {
			return false
		}
	}
	r := c.record(n)
	k := r.key.Load()
	v.table.remove(x.mix.place(uint64(no)<<keyBits|k&keyMask), n+1)
	r.key.Store(k&^identMask + versionUnit)
	storeRelaxed(&r.use, s.free)
	storeRelaxed(&s.free, uint64(n+1))
	if s.live--; s.live == 0 && s.used > keepRecords {
		x.drop(s, no)
	}
	return true
}

// drop gives back the memory of a shard without blocks. Readers that still hold
// the old view find only dead records there, for ever.
func (x *Index) drop(s *shard, no uint8) {
	v := x.views[no].Load()
	x.views[no].Store(emptyView)
	x.bytes.Add(-v.bytes() - int64((s.used+chunkLen-1)/chunkLen)*chunkBytes)
	s.used = 0
	storeRelaxed(&s.free, 0)
}
