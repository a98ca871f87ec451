package replay

// cache holds blocks and forgets those that were not used for longest. Blocks
// in use are pinned and outside the list. Everything lies in arrays indexed by
// block: a trace numbers its blocks from 0.
type cache struct {
	capacity, n  int
	pins         []int32 // 0: absent, else 1 + the number of users
	older, newer []int32 // the list of unused blocks; the last place is its anchor
	anchor       int32

	inserted, evicted func(block int32) // may be nil
}

func newCache(blocks, capacity int) *cache {
	c := &cache{
		capacity: capacity, anchor: int32(blocks),
		pins: make([]int32, blocks), older: make([]int32, blocks+1), newer: make([]int32, blocks+1),
	}
	c.older[c.anchor], c.newer[c.anchor] = c.anchor, c.anchor
	return c
}

func (c *cache) has(b int32) bool { return c.pins[b] != 0 }

func (c *cache) unlink(b int32) {
	o, n := c.older[b], c.newer[b]
	c.newer[o], c.older[n] = n, o
}

// link makes b the most recently used one.
func (c *cache) link(b int32) {
	last := c.older[c.anchor]
	c.newer[last], c.older[b] = b, last
	c.newer[b], c.older[c.anchor] = c.anchor, b
}

// admit makes room for a block and counts it; false if all others are pinned.
func (c *cache) admit(b int32) bool {
	if c.n >= c.capacity {
		oldest := c.newer[c.anchor]
		if oldest == c.anchor {
			return false
		}
		c.drop(oldest)
	}
	c.n++
	if c.inserted != nil {
		c.inserted(b)
	}
	return true
}

// drop forgets a block that is not pinned.
func (c *cache) drop(b int32) {
	c.unlink(b)
	c.pins[b] = 0
	c.n--
	if c.evicted != nil {
		c.evicted(b)
	}
}

// pin makes b present and not to be forgotten; false if there is no room.
func (c *cache) pin(b int32) bool {
	switch c.pins[b] {
	case 0:
		if !c.admit(b) {
			return false
		}
		c.pins[b] = 2
		return true
	case 1:
		c.unlink(b)
	}
	c.pins[b]++
	return true
}

// unpin ends one use; the last makes b the most recently used block.
func (c *cache) unpin(b int32) {
	if c.pins[b]--; c.pins[b] == 1 {
		c.link(b)
	}
}

// touch makes b present and the most recently used one.
func (c *cache) touch(b int32) {
	switch {
	case c.pins[b] > 1:
		return
	case c.pins[b] == 1:
		c.unlink(b)
	case !c.admit(b):
		return
	}
	c.pins[b] = 1
	c.link(b)
}

// forget drops b if it is there and not in use.
func (c *cache) forget(b int32) {
	if c.pins[b] == 1 {
		c.drop(b)
	}
}
