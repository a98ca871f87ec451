package replay

import "math"

// job is a request on its way through a Run.
type job struct {
	*Request
	id  int
	at  float64 // when it came
	pod int

	matched  int // leading blocks that the pod held when it began
	believed int // leading blocks that the policy thought it held
	pinned   int // blocks in use
	computed int // tokens of the prompt that are computed or were cached
	finish   int64

	first, done float64
}

// pod is one simulated engine. It works in steps: each computes a chunk of the
// waiting prompts, in the order in which they came, and one token of every
// sequence that decodes. While nothing else is to do, steps of decoding are
// taken together up to the next one at which a sequence ends.
type pod struct {
	engine *Engine
	slow   float64 // how many times slower than the engine it is
	tokens int     // in a block
	cache  *cache

	waiting fifo
	filling []*job // their prompts are being computed
	chunks  []int  // tokens of these in this step
	decode  decoders
	context int64 // tokens that decoding sequences hold
	active  int   // tokens that running sequences may come to hold

	steps int64   // taken so far
	start float64 // of this step
	end   float64 // of this step, infinite when idle
	take  int64   // steps that this one stands for

	busy     float64 // ms
	longest  int     // of waiting
	computed func(j *job, now float64)
	finished func(j *job, now float64)
}

func (p *pod) idle() bool { return math.IsInf(p.end, 1) }

func (p *pod) running() int { return len(p.filling) + len(p.decode) }

// push gives the pod a request.
func (p *pod) push(j *job, now float64) {
	p.waiting.push(j)
	p.longest = max(p.longest, p.waiting.len())
	switch {
	case p.idle():
		p.begin(now)
	case len(p.filling) == 0 && p.take > 1:
		p.cut(now)
	}
}

// cut ends a run of decoding steps with the step that is under way.
func (p *pod) cut(now float64) {
	e, n := p.engine, float64(len(p.decode))
	linear := (e.Step + e.Read*float64(p.context) - e.Read*n/2) * p.slow
	square := e.Read * n / 2 * p.slow
	gone := now - p.start
	steps := gone / linear
	if square > 0 {
		steps = (math.Sqrt(linear*linear+4*square*gone) - linear) / (2 * square)
	}
	if k := max(1, int64(math.Ceil(steps-1e-9))); k < p.take {
		p.take = k
		p.end = p.start + p.decoding(k)
	}
}

// decoding returns the time of k steps of decoding and nothing else: in each
// the sequences are one token longer.
func (p *pod) decoding(k int64) float64 {
	n, steps := float64(len(p.decode)), float64(k)
	read := steps*float64(p.context) + n*steps*(steps-1)/2
	return (steps*p.engine.Step + p.engine.Read*read) * p.slow
}

// begin plans the next step.
func (p *pod) begin(now float64) {
	e := p.engine
	room := e.Chunk - len(p.decode)
	p.chunks = p.chunks[:0]
	tokens, attention := 0, 0.0
	for i := 0; room > 0; i++ {
		if i >= len(p.filling) && !p.admit() {
			break
		}
		j := p.filling[i]
		c := min(room, j.Input-j.computed)
		room -= c
		tokens += c
		attention += float64(c) * (float64(j.computed) + float64(c)/2)
		p.chunks = append(p.chunks, c)
	}
	p.start = now
	switch {
	case tokens > 0:
		p.take = 1
		compute := math.Max(e.Step, e.Token*float64(tokens+len(p.decode)))
		p.end = now + (compute+e.Read*float64(p.context)+e.Context*attention)*p.slow
	case len(p.decode) > 0:
		p.take = p.decode[0].finish - p.steps
		if e.EachStep {
			p.take = 1
		}
		p.end = now + p.decoding(p.take)
	default:
		p.end = math.Inf(1)
	}
}

// admit begins the next waiting request, if there is one and it fits.
func (p *pod) admit() bool {
	j := p.waiting.front()
	if j == nil || p.running() >= p.engine.Running || p.active > 0 && p.active+j.Input+j.Output > p.engine.KVTokens {
		return false
	}
	p.waiting.pop()
	for j.matched < len(j.Blocks) && p.cache.has(j.Blocks[j.matched]) {
		j.matched++
	}
	for _, b := range j.Blocks[:j.matched] {
		p.cache.pin(b)
	}
	j.pinned = j.matched
	j.computed = min(j.matched*p.tokens, j.Input-1)
	p.active += j.Input + j.Output
	p.filling = append(p.filling, j)
	return true
}

// step ends the step under way and begins the next.
func (p *pod) step() {
	now := p.end
	p.busy += now - p.start
	p.steps += p.take
	p.context += int64(len(p.decode)) * p.take
	for len(p.decode) > 0 && p.decode[0].finish <= p.steps {
		j := p.decode.pop()
		p.context -= int64(j.Input + j.Output - 1)
		p.finish(j, now)
	}
	left := p.filling[:0]
	for i, j := range p.filling {
		if i < len(p.chunks) && p.fill(j, p.chunks[i], now) {
			continue
		}
		left = append(left, j)
	}
	p.filling = left
	p.begin(now)
}

// fill notes that so many more tokens of the prompt are computed; their blocks
// are cached from now on. It reports whether the prompt is complete.
func (p *pod) fill(j *job, tokens int, now float64) bool {
	j.computed += tokens
	for j.pinned < len(j.Blocks) && j.computed >= min((j.pinned+1)*p.tokens, j.Input) && p.cache.pin(j.Blocks[j.pinned]) {
		j.pinned++
	}
	if j.computed < j.Input {
		return false
	}
	j.first = now
	p.computed(j, now)
	if j.Output <= 1 {
		p.finish(j, now)
		return true
	}
	j.finish = p.steps + int64(j.Output-1)
	p.context += int64(j.Input)
	p.decode.push(j)
	return true
}

// finish ends a request. Its blocks are given up from the last to the first, so
// that heads outlive tails.
func (p *pod) finish(j *job, now float64) {
	j.done = now
	for i := j.pinned - 1; i >= 0; i-- {
		p.cache.unpin(j.Blocks[i])
	}
	p.active -= j.Input + j.Output
	p.finished(j, now)
}
