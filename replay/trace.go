package replay

import "math"

// Request is one request of a trace. It is never changed by a Run.
type Request struct {
	At     float64 // when it comes, in ms from the start
	Input  int     // tokens of the prompt, at least 1
	Output int     // tokens of the answer, at least 1
	// Blocks are the prompt's blocks, numbered from 0; equal numbers are equal
	// prefixes. The last one may be partial.
	Blocks []int32
	// Session stands for the conversation: the first block that is not common
	// to a large part of all requests.
	Session int32

	hashes []uint64 // of Blocks, as the product sees them
	known  int      // leading blocks that came in an earlier request
}

// Trace is what a Run replays.
type Trace struct {
	Requests    []Request
	BlockTokens int // tokens in a whole block
	Blocks      int // distinct blocks: they are numbered below this
	// Bound is the share of blocks that one cache without limits, for all
	// requests, would have held.
	Bound float64
}

// Rate returns the trace's own pace in requests a second.
func (t *Trace) Rate() float64 {
	if n := len(t.Requests); n > 0 && t.Requests[n-1].At > 0 {
		return float64(n) / t.Requests[n-1].At * 1000
	}
	return 1
}

// globalShare is which share of all requests a first block must begin to count
// as a system prompt for everybody rather than as a conversation.
const globalShare = 0.05

// finish computes what follows from times, lengths and blocks.
func (t *Trace) finish() {
	first := map[int32]int{}
	for i := range t.Requests {
		first[t.Requests[i].Blocks[0]]++
	}
	common := globalShare * float64(len(t.Requests))
	highest := int32(-1)
	for i := range t.Requests {
		r := &t.Requests[i]
		r.Session = r.Blocks[0]
		if float64(first[r.Session]) > common && len(r.Blocks) > 1 {
			r.Session = r.Blocks[1]
		}
		for _, b := range r.Blocks {
			highest = max(highest, b)
		}
	}
	t.Blocks = int(highest) + 1
	t.bound()
	t.hash()
}

// bound finds what an unlimited cache would have held of each request.
func (t *Trace) bound() {
	seen := make([]bool, t.Blocks)
	known, all := 0, 0
	for i := range t.Requests {
		r := &t.Requests[i]
		r.known = 0
		for r.known < len(r.Blocks) && seen[r.Blocks[r.known]] {
			r.known++
		}
		known += r.known
		all += len(r.Blocks)
		for _, b := range r.Blocks {
			seen[b] = true
		}
	}
	t.Bound = float64(known) / math.Max(1, float64(all))
}

// hash gives the blocks the hashes under which the product's index knows them.
// A block's number stands for all that comes before it, too, as a cumulative
// hash does.
func (t *Trace) hash() {
	n := 0
	for i := range t.Requests {
		n += len(t.Requests[i].Blocks)
	}
	all := make([]uint64, 0, n)
	for i := range t.Requests {
		r := &t.Requests[i]
		from := len(all)
		for _, b := range r.Blocks {
			all = append(all, mix(uint64(b)))
		}
		r.hashes = all[from:len(all):len(all)]
	}
}

// cached returns how many tokens of the request lie in its first blocks; the
// last token is always computed.
func (t *Trace) cached(r *Request, blocks int) int { return min(blocks*t.BlockTokens, r.Input-1) }
