package index

// fakeChain is a chain of given hashes that is "hashed" four blocks at a time.
type fakeChain struct {
	hashes []uint64
	done   int
}

func (c *fakeChain) Extend(n int) int {
	if n > c.done {
		c.done = min((n+3)/4*4, len(c.hashes))
	}
	return c.done
}
func (c *fakeChain) Complete() int    { c.done = len(c.hashes); return c.done }
func (c *fakeChain) Hashes() []uint64 { return c.hashes[:c.done] }
