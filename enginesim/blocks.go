package enginesim

// blockPool is the paged KV cache: a fixed number of blocks, each free or pinned by
// one or more holders, each with or without contents that a later prompt can find
// by key. Free blocks wait in one list; the front is taken first. A freed block
// with a key goes to the back, one without to the front, so nothing findable is
// evicted while a useless block is free.
//
// Not safe for concurrent use; the engine's lock guards it. Every method costs O(1),
// but for reset.
type blockPool struct {
	blocks []block          // the last one is the sentinel of the free list
	byKey  map[uint64]int32 // key → the newest block that holds its contents
	free   int
	cached int // blocks with a key
}

type block struct {
	key          uint64
	prev, next   int32 // neighbours in the free list; meaningless while pinned
	newer, older int32 // blocks of the same key, -1 for none; meaningless without a key
	pins         int32
	keyed        bool
}

func newBlockPool(n int) *blockPool {
	p := &blockPool{blocks: make([]block, n+1), byKey: make(map[uint64]int32), free: n}
	for i := range p.blocks {
		p.blocks[i].prev = int32((i + n) % (n + 1))
		p.blocks[i].next = int32((i + 1) % (n + 1))
	}
	return p
}

func (p *blockPool) capacity() int { return len(p.blocks) - 1 }

// pinKey pins the block that holds key, if there is one.
func (p *blockPool) pinKey(key uint64) (id int32, ok bool) {
	id, ok = p.byKey[key]
	if ok {
		if p.blocks[id].pins == 0 {
			p.unlink(id)
		}
		p.blocks[id].pins++
	}
	return id, ok
}

// has reports whether key is held, and if so whether its block is free: pinning it
// would then take one from the free ones.
func (p *blockPool) has(key uint64) (held, free bool) {
	id, ok := p.byKey[key]
	return ok, ok && p.blocks[id].pins == 0
}

// take pins the front of the free list, which forgets its contents. The caller has
// made sure that a block is free.
func (p *blockPool) take() int32 {
	id := p.blocks[len(p.blocks)-1].next
	p.unlink(id)
	p.forget(id)
	p.blocks[id].pins = 1
	return id
}

// name makes a pinned block findable by key. Blocks that hold the same, because two
// sequences computed it at once, are all kept; the newest is found.
func (p *blockPool) name(id int32, key uint64) {
	b := &p.blocks[id]
	b.key, b.keyed, b.newer, b.older = key, true, -1, -1
	if old, ok := p.byKey[key]; ok {
		b.older, p.blocks[old].newer = old, id
	}
	p.byKey[key] = id
	p.cached++
}

// forget takes a block's key away.
func (p *blockPool) forget(id int32) {
	b := &p.blocks[id]
	if !b.keyed {
		return
	}
	b.keyed = false
	p.cached--
	if b.older >= 0 {
		p.blocks[b.older].newer = b.newer
	}
	switch {
	case b.newer >= 0:
		p.blocks[b.newer].older = b.older
	case b.older >= 0:
		p.byKey[b.key] = b.older
	default:
		delete(p.byKey, b.key)
	}
}

// unpin gives blocks back, the last one first: of one prompt the tail is evicted
// before the head.
func (p *blockPool) unpin(ids []int32) {
	for i := len(ids) - 1; i >= 0; i-- {
		b := &p.blocks[ids[i]]
		if b.pins--; b.pins > 0 {
			continue
		}
		root := int32(len(p.blocks) - 1)
		if b.keyed {
			p.link(ids[i], p.blocks[root].prev, root)
		} else {
			p.link(ids[i], root, p.blocks[root].next)
		}
	}
}

// reset forgets all contents; pinned blocks stay pinned.
func (p *blockPool) reset() {
	clear(p.byKey)
	p.cached = 0
	for i := range p.blocks {
		p.blocks[i].keyed = false
	}
}

func (p *blockPool) unlink(id int32) {
	b := &p.blocks[id]
	p.blocks[b.prev].next, p.blocks[b.next].prev = b.next, b.prev
	p.free--
}

func (p *blockPool) link(id, prev, next int32) {
	b := &p.blocks[id]
	b.prev, b.next = prev, next
	p.blocks[prev].next, p.blocks[next].prev = id, id
	p.free++
}
