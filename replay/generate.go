package replay

import "math"

// Conversations generates a trace of chats: users who come back with all that was
// said before, some system prompts that many share, lengths that vary as widely
// as in published traces of production. The same seed gives the same trace.
func Conversations(requests int, seed uint64) *Trace {
	const (
		think   = 60_000 // ms between the turns of a chat, on average
		between = 250    // ms between requests, on average
		systems = 4
	)
	g := &generator{random: random{seed}, trace: &Trace{BlockTokens: mooncakeTokens}}
	prompts := make([][]int32, systems)
	for i := range prompts {
		prompts[i] = append(prompts[i], 0) // one block that all begin with
		for range 1 + g.below(6) {
			prompts[i] = append(prompts[i], g.block())
		}
	}
	type chat struct {
		blocks []int32
		tokens int
		next   float64
	}
	var chats []*chat
	now := 0.0
	for len(g.trace.Requests) < requests {
		now += g.exponential(between)
		var c *chat
		for i, open := range chats {
			if open.next <= now {
				c = open
				chats = append(chats[:i], chats[i+1:]...)
				break
			}
		}
		if c == nil {
			system := prompts[min(g.below(systems), g.below(systems))]
			c = &chat{blocks: append([]int32(nil), system...), tokens: len(system) * mooncakeTokens}
		}
		// A turn adds what the user says; whole blocks of it can be shared later.
		c.tokens += int(math.Min(g.lognormal(1200, 1.3), 60_000))
		whole := c.tokens / mooncakeTokens
		for len(c.blocks) < whole {
			c.blocks = append(c.blocks, g.block())
		}
		r := Request{At: now, Input: c.tokens, Output: 1 + int(math.Min(g.lognormal(220, 0.9), 4000))}
		r.Blocks = append(r.Blocks, c.blocks...)
		if c.tokens%mooncakeTokens != 0 || len(r.Blocks) == 0 {
			r.Blocks = append(r.Blocks, g.block())
		}
		g.trace.Requests = append(g.trace.Requests, r)
		c.tokens += r.Output
		if c.tokens < 100_000 && g.share() < 0.7 {
			c.next = now + g.exponential(think)
			chats = append(chats, c)
		}
	}
	g.trace.finish()
	return g.trace
}

// generator draws requests.
type generator struct {
	random
	trace *Trace
	last  int32
}

// block returns a block that was not there before.
func (g *generator) block() int32 {
	g.last++
	return g.last
}

func (g *generator) exponential(mean float64) float64 { return -math.Log(1-g.share()) * mean }

// lognormal returns a number with the median and the spread in powers of e.
func (g *generator) lognormal(median, spread float64) float64 {
	normal := math.Sqrt(-2*math.Log(1-g.share())) * math.Cos(2*math.Pi*g.share())
	return median * math.Exp(spread*normal)
}

// The hot prefix: prompts of 256 blocks of 32 tokens whose first half is the
// same; nine of ten are the same prompt altogether.
const (
	hotBlock  = 32
	hotBlocks = 256
	hotShared = 128
	hotCold   = 16 // other prompts
	hotOutput = 16
)

// HotPrefix generates requests of which 90 % have the same prompt and 10 % one of
// 16 others with the same first half, at so many a second, with Poisson's gaps.
func HotPrefix(requests int, rate float64, seed uint64) *Trace {
	g := &generator{random: random{seed}, trace: &Trace{BlockTokens: hotBlock}}
	prompts := make([][]int32, 1+hotCold)
	for k := range prompts {
		for i := range hotBlocks {
			b := int32(i)
			if k > 0 && i >= hotShared {
				b = int32(hotBlocks + (k-1)*(hotBlocks-hotShared) + i - hotShared)
			}
			prompts[k] = append(prompts[k], b)
		}
	}
	now := 0.0
	for i := range requests {
		k := 0
		if i*97%100 >= 90 {
			k = 1 + i%hotCold
		}
		g.trace.Requests = append(g.trace.Requests, Request{
			At: now, Input: hotBlock * hotBlocks, Output: hotOutput, Blocks: prompts[k],
		})
		now += g.exponential(1000 / rate)
	}
	g.trace.finish()
	return g.trace
}

// hotWarm is what the pods hold of the hot prefix at the start: the first pod
// its whole shared half, each further one a block less.
func hotWarm(p int) []int32 {
	held := make([]int32, max(hotShared-p, 32))
	for i := range held {
		held[i] = int32(i)
	}
	return held
}

// hotRun is a run of the hot prefix at 16 pods.
func hotRun(t *Trace, p Policy) Run {
	e := H100()
	e.CacheBlocks = e.KVTokens / hotBlock
	return Run{Trace: t, Policy: p, Pods: 16, Engine: e, Seed: 3, Warm: hotWarm}
}
