package replay

import "math"

// llmd is the default profile of the llm-d inference scheduler: a weighed sum of
// the shortest queue, free KV memory and the cached share of the first 4096
// tokens. Queues and memory are read from the pods every 50 ms; prompts are
// learnt when they are routed.
type llmd struct {
	counts
	known  *ownership
	blocks int // that count as the prefix
}

const (
	llmdTokens = 4096
	llmdEvery  = 50
)

func newLLMD(s *sim) router {
	s.scraped = &scrape{every: llmdEvery, waiting: make([]int, s.Pods), usage: make([]float64, s.Pods)}
	return &llmd{countsOf(s), newOwnership(s, s.Engine.capacity()), llmdTokens / s.Trace.BlockTokens}
}

func (x *llmd) route(j *job, _ float64) int {
	x.known.match(j.Blocks)
	all := min(len(j.Blocks), x.blocks)
	least, most := math.MaxInt, 0
	for _, n := range x.s.scraped.waiting {
		least, most = min(least, n), max(most, n)
	}
	pick := lowest(&x.s.draw, x.s.Pods, func(p int) float64 {
		queue := 1.0
		if most > least {
			queue = float64(most-x.s.scraped.waiting[p]) / float64(most-least)
		}
		prefix := float64(min(x.known.depth[p], all)) / float64(all)
		return -(3*prefix + 2*queue + 2*(1-x.s.scraped.usage[p]))
	})
	j.believed = x.known.depth[pick]
	x.known.learn(pick, j.Blocks)
	return x.send(pick)
}

func (x *llmd) warm(p int, held []int32) { x.known.learn(p, held) }

// sglang is the cache_aware policy of SGLang's router: the longest match if it
// is more than 0.3 of the prompt, else the smallest tree; the shortest queue when
// pods differ by more than 64 requests and 1.5 times.
type sglang struct {
	counts
	known *ownership
	tree  []int
}

// sglangBlocks is its bound on a tree, 2^24 tokens, in blocks of 512.
const sglangBlocks = 32768

func newSGLang(s *sim) router {
	return &sglang{countsOf(s), newOwnership(s, sglangBlocks), make([]int, s.Pods)}
}

func (x *sglang) route(j *job, _ float64) int {
	x.known.match(j.Blocks)
	first := func(better func(a, b int) bool) int {
		best := 0
		for p := range x.s.Pods {
			if better(p, best) {
				best = p
			}
		}
		return best
	}
	idle := first(func(a, b int) bool { return x.inflight[a] < x.inflight[b] })
	full := first(func(a, b int) bool { return x.inflight[a] > x.inflight[b] })
	deep := first(func(a, b int) bool { return x.known.depth[a] > x.known.depth[b] })
	pick := idle
	switch low, high := x.inflight[idle], x.inflight[full]; {
	case high-low > 64 && float64(high) > 1.5*float64(low):
	case float64(x.known.depth[deep])/float64(len(j.Blocks)) > 0.3:
		pick = deep
	default:
		pick = first(func(a, b int) bool { return x.tree[a] < x.tree[b] })
	}
	j.believed = x.known.depth[pick]
	x.tree[pick] += len(j.Blocks) - j.believed
	x.known.learn(pick, j.Blocks)
	return x.send(pick)
}

func (x *sglang) warm(p int, held []int32) { x.known.learn(p, held) }

// dynamo is the default cost of NVIDIA Dynamo's KV router: blocks to compute,
// those that wait included, and blocks in use, at equal weights. The pods' caches
// are known by their events, 10 ms late.
type dynamo struct {
	counts
	known   *ownership
	pending []float64 // tokens to compute before first bytes
	held    []float64 // tokens of prompts under way
	work    []float64 // uncached tokens, by job
}

const dynamoLate = 10

func newDynamo(s *sim) router {
	x := &dynamo{
		counts: countsOf(s), known: newOwnership(s, 0),
		pending: make([]float64, s.Pods), held: make([]float64, s.Pods), work: make([]float64, len(s.jobs)),
	}
	s.changes.wanted, s.changes.late, s.changes.tell = true, dynamoLate, x.known.hear
	return x
}

func (x *dynamo) route(j *job, _ float64) int {
	x.known.match(j.Blocks)
	uncached := func(p int) float64 { return float64(j.Input - x.s.Trace.cached(j.Request, x.known.depth[p])) }
	pick := lowest(&x.s.draw, x.s.Pods, func(p int) float64 {
		u := uncached(p)
		return x.pending[p] + u + x.held[p] + u
	})
	j.believed, x.work[j.id] = x.known.depth[pick], uncached(pick)
	x.pending[pick] += x.work[j.id]
	x.held[pick] += float64(j.Input)
	return x.send(pick)
}

func (x *dynamo) first(j *job, _ float64) { x.pending[j.pod] -= x.work[j.id] }

func (x *dynamo) done(j *job, now float64) {
	x.counts.done(j, now)
	x.held[j.pod] -= float64(j.Input)
}

func (x *dynamo) warm(p int, held []int32) { x.known.learn(p, held) }
