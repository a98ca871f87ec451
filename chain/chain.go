package chain

import "math"

// Options are the two numbers of the rule. Chains made under different options
// have nothing in common.
type Options struct {
	BlockSize     int // tokens in a block, at least 1 (less counts as 1)
	MaxTokenBytes int // longer tokens count as several; 0 or less: no limit
}

// Chain is the chain of one text. It is made for reuse: Reset, then Extend as
// far as needed, again and again. In steady state none of its methods
// allocates. It holds 16 bytes a block of the longest text so far, and, until it is
// finished, 20 KiB. The
// zero value is ready for Reset, and may be used only behind it. A Chain must not
// be copied, nor used by two goroutines at a time.
type Chain struct {
	seed   uint64
	hashes []uint64 // of all blocks cut so far, cumulative up to n
	ends   []int    // of all blocks cut so far
	taken  int      // blocks that lanes have taken
	n      int      // blocks whose hashes are cumulative
	total  int      // blocks of the whole text, 0 if they are not counted
	last   uint64   // cumulative hash of block n-1, or seed
	carry  uint64   // hash of what the stream has lost of the open block
	bytes  int      // length of the text
	scan   scanner
	rest   scanner // for Blocks
	lanes  lanes
}

// Reset starts the chain of a text. It borrows text until the next Reset; reset
// with nil to give it back. seed is what the first block is chained to: see the
// function Seed. The cost does not depend on the text.
func (c *Chain) Reset(o Options, seed uint64, text []byte) {
	c.seed = seed
	c.hashes, c.ends = c.hashes[:0], c.ends[:0]
	c.taken, c.n, c.total, c.last, c.carry = 0, 0, 0, seed, fnvOffset
	c.bytes = len(text)
	c.scan.reset(o, text)
}

// Finish hashes the rest of the text, and gives back the text and the room that
// hashing takes. What the chain tells stays until the next Reset.
func (c *Chain) Finish() {
	c.Complete()
	c.scan.finish()
}

// Extend hashes on until there are at least n blocks, or the text ends, and
// returns how many there are now. It rounds n up to a multiple of four, since
// four blocks cost no more than one, and reads no more of the text than these
// blocks and less than 200 bytes behind them.
func (c *Chain) Extend(n int) int {
	if n > c.n && !c.Done() {
		n = min(n, math.MaxInt-laneCount)
		c.scan.open()
		c.run((n + laneCount - 1) / laneCount * laneCount)
	}
	return c.n
}

// Complete hashes the rest of the text and returns the number of its blocks.
func (c *Chain) Complete() int {
	return c.Extend(math.MaxInt)
}

// Done tells whether the whole text is hashed. That the text ends behind a block
// is found out only by asking for a further one.
func (c *Chain) Done() bool {
	return c.n == len(c.hashes) && c.scan.done()
}

// Hashes returns the cumulative hashes of the blocks hashed so far. They stay
// valid until the next Reset; a later Extend appends.
func (c *Chain) Hashes() []uint64 {
	return c.hashes[:c.n:c.n]
}

// End returns the byte in the text behind block k, counted from 0: the end of
// its last token. k must be less than len(Hashes()). The text up to there has
// the same first k+1 hashes as the whole.
func (c *Chain) End(k int) int {
	return c.ends[:c.n][k]
}

// Bytes returns the length of the text.
func (c *Chain) Bytes() int {
	return c.bytes
}

// Seed returns the seed that the chain was reset with.
func (c *Chain) Seed() uint64 {
	return c.seed
}
