package index

import (
	"math/bits"
	"math/rand/v2"
)

// golden is 2^64 divided by the golden ratio, the multiplier of Fibonacci
// hashing.
const golden = 0x9E3779B97F4A7C15

// shardCount is the number of shards of the block table: a writer locks one,
// so two registrations rarely meet.
const (
	shardBits  = 8
	shardCount = 1 << shardBits
)

// Shard returns the shard of a block hash among the given number of shards, by
// Fibonacci hashing; fewer than two shards leave only shard 0.
func Shard(hash uint64, shards int) int {
	if shards < 1 {
		return 0
	}
	hi, _ := bits.Mul64(spread(hash), uint64(shards))
	return int(hi)
}

// A block hash h is spread to h·golden, which loses nothing because golden is
// odd. The upper byte of that is the shard among 256, so within a shard the
// lower 56 bits identify the block: they are its key.
const (
	keyBits = 64 - shardBits
	keyMask = 1<<keyBits - 1
)

func spread(hash uint64) uint64 { return hash * golden }

// mixer decides where in a table a key lies. It is drawn anew for each index:
// prompts come from strangers, and one who could compute the place of a block
// could send prompts that all meet in one bucket.
type mixer struct{ add, mul uint64 }

func newMixer() mixer {
	return mixer{rand.Uint64(), rand.Uint64() | 1}
}

// place returns the place of a key; tables take a bucket from its upper half
// and a tag from its lower half.
func (m mixer) place(key uint64) uint64 {
	hi, lo := bits.Mul64(key^m.add, m.mul)
	return hi ^ lo
}
