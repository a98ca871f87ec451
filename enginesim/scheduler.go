package enginesim

import (
	"math"
	"slices"
	"time"
)

// Everything in this file runs under Engine.mu.

// maxLag is how far an engine may be behind its clock, because the machine is busy,
// and still start its next step where the last one ended, so that its speed holds.
const maxLag = 200 * time.Millisecond

// kick starts a step if none runs and there is something to do.
func (e *Engine) kick(now time.Time) {
	if !e.stepping {
		e.begin(now)
	}
}

// begin plans the step that starts at that time. If there is nothing to do the
// engine rests until the next kick.
func (e *Engine) begin(at time.Time) {
	took, preempted := e.plan(at)
	if took == 0 && preempted {
		// Its blocks are free now, so perhaps the head of the queue fits.
		took, _ = e.plan(at)
	}
	e.stepping = took > 0
	if e.stepping {
		e.stepEnd = at.Add(took)
		e.clock.AfterFunc(e.stepEnd.Sub(e.clock.Now()), e.tick)
	}
}

// tick ends the steps that are over, and begins the next one.
func (e *Engine) tick() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.stepping {
		return
	}
	now := e.clock.Now()
	if e.stepEnd.After(now) { // woken early by a coarse timer
		e.clock.AfterFunc(e.stepEnd.Sub(now), e.tick)
		return
	}
	e.finishStep()
	e.begin(later(e.stepEnd, now.Add(-maxLag)))
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// plan gives each sequence its share of the next step and returns how long the step
// takes; 0 if no sequence has a share.
func (e *Engine) plan(at time.Time) (took time.Duration, preempted bool) {
	budget := e.set.MaxNumBatchedTokens
	for i := 0; i < len(e.running); i++ {
		s := e.running[i]
		s.chunk = 0
		n := min(s.total()-s.computed, budget)
		for !e.reserve(s, s.computed+n) {
			victim := e.running[len(e.running)-1]
			e.preempt(victim)
			preempted = true
			if victim == s {
				n = 0
				break
			}
		}
		s.chunk = n
		budget -= n
	}
	if !preempted {
		e.admit(at, budget)
	}
	return e.stepTime(), preempted
}

// reserve pins enough blocks for the first n tokens of s.
func (e *Engine) reserve(s *sequence, n int) bool {
	need := blocksFor(n, e.set.BlockSize) - len(s.blocks)
	if need > e.pool.free {
		return false
	}
	for range need {
		s.blocks = append(s.blocks, e.pool.take())
	}
	return true
}

func blocksFor(tokens, size int) int { return (tokens + size - 1) / size }

// preempt takes a running sequence's blocks; it will compute its tokens anew, and is
// the next to be admitted.
func (e *Engine) preempt(s *sequence) {
	e.running = slices.DeleteFunc(e.running, func(r *sequence) bool { return r == s })
	e.pool.unpin(s.blocks)
	s.blocks, s.named, s.computed, s.chunk, s.state = nil, 0, 0, 0, queued
	e.waiting = slices.Insert(e.waiting, 0, s)
	e.count.Preemptions++
}

// admit lets sequences in, first those whose KV is loaded, then the queue in order,
// until slots, tokens or blocks run out.
func (e *Engine) admit(at time.Time, budget int) {
	for budget > 0 && len(e.ready) > 0 && len(e.running) < e.set.MaxNumSeqs {
		s := e.ready[0]
		e.ready[0] = nil
		e.ready = e.ready[1:]
		s.cached = s.computed
		n := min(s.total()-s.computed, budget)
		e.run(s, n)
		budget -= n
	}
	for budget > 0 && len(e.waiting) > 0 && len(e.running) < e.set.MaxNumSeqs {
		s := e.waiting[0]
		hits, freeHits := e.lookUp(s)
		start := hits * e.set.BlockSize
		n := min(s.total()-start, budget)
		stored := e.inStore(s, hits)
		if s.claim != nil || stored > start {
			n = len(s.prompt) - start
		}
		if blocksFor(start+n, e.set.BlockSize)-hits+freeHits > e.pool.free {
			return // the head of the queue waits for memory, and all others behind it
		}
		e.waiting[0] = nil
		e.waiting = e.waiting[1:]
		for _, key := range s.keys[:hits] {
			id, _ := e.pool.pinKey(key)
			s.blocks = append(s.blocks, id)
		}
		e.reserve(s, start+n)
		s.named, s.computed = hits, start
		if s.cached < 0 && !s.embed {
			s.cached = start
			e.count.PrefixQueries += uint64(len(s.prompt))
			e.count.PrefixHits += uint64(start)
		}
		if s.claim != nil {
			e.load(at, s, n)
			continue
		}
		if stored > start {
			s.stored = stored
			e.load(at, s, stored-start)
			continue
		}
		e.run(s, n)
		budget -= n
	}
}

// lookUp returns how many leading blocks of s the cache holds, and how many of those
// are free. The last token is always computed anew.
func (e *Engine) lookUp(s *sequence) (hits, freeHits int) {
	if s.embed {
		return 0, 0
	}
	s.extendKeys(e.set.BlockSize, len(s.prompt))
	for hits < len(s.keys) && (hits+1)*e.set.BlockSize < s.total() {
		held, free := e.pool.has(s.keys[hits])
		if !held {
			break
		}
		hits++
		if free {
			freeHits++
		}
	}
	return hits, freeHits
}

// inStore returns how many leading tokens of s the engine has, or finds in the store
// that it shares with others; hits blocks are its own.
func (e *Engine) inStore(s *sequence, hits int) int {
	if e.set.KVConnector != "shared_storage" || s.embed || s.out > 0 {
		return 0
	}
	e.peers.mu.Lock()
	defer e.peers.mu.Unlock()
	for hits < len(s.keys) && e.peers.stored[s.keys[hits]] {
		hits++
	}
	return hits * e.set.BlockSize
}

func (e *Engine) run(s *sequence, n int) {
	s.state, s.chunk = running, n
	e.running = append(e.running, s)
}

// stepTime is how long the planned step takes (doc.go has the formula).
func (e *Engine) stepTime() time.Duration {
	var prefill, decoding, context int
	var attention float64
	for _, s := range e.running {
		switch {
		case s.chunk == 1 && s.computed == s.total()-1 && s.out > 0:
			decoding++
			context += s.total()
		case s.chunk > 0:
			prefill += s.chunk
			attention += float64(s.chunk) * (float64(s.computed) + float64(s.chunk)/2)
		}
	}
	if prefill+decoding == 0 {
		return 0
	}
	floor := 1 / e.set.DecodeTokensPerSecond
	rate := e.set.PrefillTokensPerSecond
	seconds := max(floor*(1+*e.set.BatchSlowdown*float64(max(0, decoding-1))), float64(prefill+decoding)/rate)
	if e.set.DecodeContextTokens > 0 {
		seconds += floor * float64(context) / e.set.DecodeContextTokens
	}
	if e.set.AttentionTokens > 0 {
		seconds += attention / (rate * e.set.AttentionTokens)
	}
	return max(1, toDuration(seconds))
}

func toDuration(seconds float64) time.Duration {
	return time.Duration(math.Round(min(seconds, 1e9) * 1e9))
}

// finishStep books what the step that just ended has computed.
func (e *Engine) finishStep() {
	still := e.running[:0]
	for _, s := range e.running {
		if s.chunk > 0 {
			e.advance(s)
		}
		if s.state == running {
			still = append(still, s)
		}
	}
	clear(e.running[len(still):])
	e.running = still
}

func (e *Engine) advance(s *sequence) {
	s.computed += s.chunk
	s.chunk = 0
	e.offer(s)
	if s.computed < s.total() {
		return
	}
	e.count.PromptTokens += uint64(len(s.prompt)) * uint64(b2i(s.out == 0))
	if !s.embed {
		s.out++
		e.count.GenerationTokens++
	}
	if s.embed || s.out == s.script.n {
		e.finish(s)
	}
	s.tell()
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// offer makes the full blocks that s has computed findable.
func (e *Engine) offer(s *sequence) {
	if s.embed {
		return
	}
	if e.set.CacheOutput {
		s.extendKeys(e.set.BlockSize, s.computed)
	}
	for s.named < len(s.keys) && (s.named+1)*e.set.BlockSize <= s.computed {
		e.pool.name(s.blocks[s.named], s.keys[s.named])
		if e.set.KVConnector == "shared_storage" {
			e.peers.store(s.keys[s.named])
		}
		s.named++
	}
}

// finish ends a running sequence; finishStep takes it off the list.
func (e *Engine) finish(s *sequence) {
	s.state = ended
	e.count.Finished[s.script.reason]++
	if s.hold != nil {
		e.grantLease(s)
	} else {
		e.pool.unpin(s.blocks)
	}
	s.blocks = nil
}

// load starts fetching handed-over KV of n tokens; until then s waits outside the
// queue, so that the next in line may go ahead.
func (e *Engine) load(at time.Time, s *sequence, n int) {
	s.state = loading
	e.loading = append(e.loading, s)
	e.count.TransferredTokens += uint64(n)
	end := at.Add(toDuration(float64(n) / e.set.TransferTokensPerSecond))
	e.clock.AfterFunc(end.Sub(e.clock.Now()), func() { e.loaded(s) })
}

// abort ends a sequence wherever it stands and frees what it holds at once.
func (e *Engine) abort(s *sequence) {
	if s.state == ended {
		return
	}
	other := func(r *sequence) bool { return r == s }
	switch s.state {
	case queued:
		e.waiting = slices.DeleteFunc(e.waiting, other)
	case loading:
		e.loading = slices.DeleteFunc(e.loading, other)
	case ready:
		e.ready = slices.DeleteFunc(e.ready, other)
	case running:
		e.running = slices.DeleteFunc(e.running, other)
	case ended:
	}
	e.pool.unpin(s.blocks)
	s.blocks, s.state = nil, ended
	if s.meeting != nil {
		e.peers.arrive(s.meeting, errOtherLeft)
	}
	e.count.Finished["abort"]++
	s.tell()
}
