package index

import (
	"math"
	"sync/atomic"
	"time"
	"unsafe"
)

// Options are the bounds of an index.
type Options struct {
	// MaxBlocks is the ceiling of distinct blocks; when it is reached, the
	// entries used longest ago go first, whichever pod's they are. Zero or less
	// means as many as the index can hold, 134 million.
	MaxBlocks int
	// StaleTTL is how long an entry is kept without being used. Zero or less
	// means 205 days, about the longest time that the index can tell.
	StaleTTL time.Duration
	// PopularityTau is the time in which a block's popularity falls to 1/e.
	// Zero or less means 20 seconds.
	PopularityTau time.Duration
}

// DefaultPopularityTau is the time constant of popularity if none is given.
const DefaultPopularityTau = 20 * time.Second

// maxBlocks leaves shards, of a million blocks each, room to be of unequal size.
const maxBlocks = 1 << (shardBits + blockBits - 1)

// Index knows which pods hold which blocks. All methods are safe for concurrent
// use. Queries are wait-free; changes to different pods exclude each other
// only for the moment in which they change the same shard.
//
// Locks are taken in the order mirror, then shard, never two of a kind.
type Index struct {
	// Read by every call, rarely written.
	mix   mixer
	base  atomic.Pointer[time.Time] // of ticks
	max   atomic.Int64              // blocks
	ttl   atomic.Uint32             // in ticks
	decay atomic.Uint64             // of popularity a tick: the float64 -1/tau
	views [shardCount]atomic.Pointer[view]
	_     [16]byte // so that each shard has a cache line of its own

	shards [shardCount]shard
	pods   [Pods]mirror

	// Written by registrations of new blocks.
	blocks atomic.Int64 // that exist or are promised to a registration
	bytes  atomic.Int64
	latest atomic.Uint32 // tick
}

// Chain is what the index needs of a prompt's chain of blocks; *chain.Chain is
// one. A nil Chain is a chain without blocks.
type Chain interface {
	// Extend hashes on until there are n blocks or the text ends, and returns
	// how many there are.
	Extend(n int) int
	// Complete hashes all blocks and returns their number.
	Complete() int
	// Hashes returns the cumulative hashes of the blocks hashed so far.
	Hashes() []uint64
}

// New returns an empty index.
func New(o Options) *Index {
	x := &Index{mix: newMixer()}
	for i := range x.views {
		x.views[i].Store(emptyView)
	}
	for i := range x.pods {
		x.pods[i].capacity.Store(maxEntries)
	}
	x.bytes.Store(int64(unsafe.Sizeof(*x)))
	x.setBounds(o)
	return x
}

// Configure gives the index other bounds. A lower ceiling is enforced before it
// returns, a shorter time to live by the next Expire.
func (x *Index) Configure(o Options) {
	x.setBounds(o)
	x.makeRoom(0)
}

func (x *Index) setBounds(o Options) {
	if o.MaxBlocks <= 0 || o.MaxBlocks > maxBlocks {
		o.MaxBlocks = maxBlocks
	}
	if o.PopularityTau <= 0 {
		o.PopularityTau = DefaultPopularityTau
	}
	x.max.Store(int64(o.MaxBlocks))
	x.ttl.Store(ticksOf(o.StaleTTL))
	x.decay.Store(math.Float64bits(-(1 << tickShift) / float64(o.PopularityTau)))
}

// Blocks returns the number of distinct blocks, never more than
// Options.MaxBlocks (after a lower one has been enforced). While registrations
// run, it counts what they may be about to add.
func (x *Index) Blocks() int { return int(x.blocks.Load()) }

// Bytes returns the memory that the index occupies, itself included, without
// what the allocator loses to rounding.
func (x *Index) Bytes() int64 { return x.bytes.Load() }

// PodBlocks returns the number of blocks that the pod is believed to hold.
func (x *Index) PodBlocks(pod uint8) int { return int(x.pods[pod].count.Load()) }
