package selection

import (
	"math"
	"math/bits"

	"github.com/cespare/xxhash/v2"

	"github.com/calinix/caddy-calinix/index"
)

// None in Request.Sticky says that no pod is remembered for the session.
const None = -1

// Request is what a request brings to Score and Pick. Set Sticky to None where
// there is no session; the zero value of everything else means "nothing".
type Request struct {
	Strategy Strategy
	TieBreak TieBreak
	Weights  Weights

	// Blocks is the number of blocks in the prompt. 0: there is no prompt.
	Blocks int
	// Frames says which candidates hold how many leading blocks.
	Frames []index.Frame
	// Sticky is the slot that served the session before, or None.
	Sticky int
	// Node and Zone are those of the prefill pod to which the pick should be
	// near, as numbered in the View; 0 if there is none or they are unknown.
	Node, Zone uint16

	// Key is a hash of the prompt; it orders equals under ByPrompt if HasKey.
	Key    uint64
	HasKey bool
	// Turn is the rank of the pod that was picked last by rotation.
	Turn uint8
	// Draw is a fresh random number for the strategies that draw.
	Draw uint64

	// Hash is what SessionAffinity and Prefix look up on Ring, if HasHash;
	// LoadFactor is how many times the mean number of legs a pod may hold.
	Hash       uint64
	HasHash    bool
	LoadFactor float64
	Ring       *Ring

	// The rest is for ExpectedTTFT alone. Tokens is the estimated length of the
	// prompt, and Work, by TTFT.Work, the work for the candidates in each of
	// Frames and, last, for those in none. Now is the time on the clock of
	// View.Queue.
	TTFT   TTFT
	Duty   Duty
	Tokens int64
	Work   []float64
	Now    int64
}

// order tells equals apart: by a hash of key and pod id if hashed, the highest
// first, else by rank, round and round from the one after turn.
type order struct {
	hashed bool
	key    uint64
	turn   uint8
}

// byRank is the order of the configuration: the turn begins at rank 0.
var byRank = order{turn: math.MaxUint8}

func (r *Request) order() order {
	switch {
	case r.Strategy == RoundRobin:
		return order{turn: r.Turn}
	case r.Strategy.Draws():
		return order{hashed: true, key: r.Draw}
	case r.TieBreak == ByPodID:
		return byRank
	case r.HasKey:
		return order{hashed: true, key: r.Key}
	default:
		return order{turn: r.Turn}
	}
}

// Rotates says whether Pick takes equals in turn for this request: if so the
// rank of the pod that it picks is the Turn of the next request of the role.
func (r *Request) Rotates() bool {
	return r.Strategy == RoundRobin ||
		!r.Strategy.Draws() && r.TieBreak != ByPodID && !r.HasKey
}

// IDHash returns the hash of a pod's id for View.ID (xxHash64). It is the same
// in every process and release, so that ties fall the same way after a restart
// and in every replica.
func IDHash(id string) uint64 { return xxhash.Sum64String(id) }

// mix is the fixed function of prompt and pod that tells equals apart: one
// 128-bit product, folded.
func mix(key, id uint64) uint64 {
	hi, lo := bits.Mul64(key^0x9e3779b97f4a7c15, id^0xd6e8feb86659fd93)
	return hi ^ lo
}
