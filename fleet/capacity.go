package fleet

// Capacity is how much of prompts the pods' caches hold.
type Capacity struct {
	// Tokens is the size of a pod's cache in tokens of the engine; 0: any number.
	Tokens int64
	// Learn says that what the engine says of itself (SetCache) goes before
	// Tokens.
	Learn bool
	// BlockTokens is how many of the engine's tokens a block of the index is
	// taken for until prompts have shown how many it is; less than 1 is 1.
	BlockTokens int
}

// SetCapacity says how large the pods' caches are. What the index knows of a pod
// beyond that is forgotten, least recently used first.
func (f *Fleet) SetCapacity(c Capacity) {
	f.mu.Lock()
	f.capacity = c
	f.mu.Unlock()
	f.fitAll()
}

// SetCache notes that the pod's engine says that its cache holds so many tokens;
// 0: it does not say. It does nothing if the pod is gone.
func (f *Fleet) SetCache(ref Ref, tokens int64) {
	f.mu.Lock()
	s := &f.slots[ref.Slot]
	known := s.life == live && s.gen == ref.Gen && s.cache != tokens
	if known {
		s.cache = tokens
	}
	f.mu.Unlock()
	if known {
		f.fit(ref.Slot)
	}
}

// sizes is how many of the engine's tokens the blocks of a pod's prompts have. A
// block of the index is so many words; how long they are depends on what people
// write.
type sizes struct{ tokens, blocks float64 }

// add enters a prompt. What lies longer ago than so many blocks fades.
func (z *sizes) add(tokens int64, blocks int, horizon float64) {
	z.tokens += float64(tokens)
	z.blocks += float64(blocks)
	if z.blocks > horizon {
		fade := horizon / z.blocks
		z.tokens *= fade
		z.blocks = horizon
	}
}

// perBlock returns the mean, or what stands for it before the first prompt.
func (z *sizes) perBlock(before int) float64 {
	if z.blocks == 0 {
		return float64(max(1, before))
	}
	return max(z.tokens/z.blocks, 1e-3)
}

// leastHorizon is over how many blocks the mean is taken at the least.
const leastHorizon = 1024

// maxRoom is as good as any number of blocks.
const maxRoom = 1 << 30

// tokensOf returns how many tokens the cache of the slot's pod holds, 0 for any
// number. Guarded by mu.
func (f *Fleet) tokensOf(s *slot) int64 {
	if f.capacity.Learn && s.cache > 0 {
		return s.cache
	}
	return f.capacity.Tokens
}

// roomOf returns how many blocks the index is to keep of the slot's pod, 0 for
// any number. Guarded by mu.
func (f *Fleet) roomOf(s *slot) int {
	n := 0
	if tokens := f.tokensOf(s); tokens > 0 {
		n = int(max(1, min(float64(tokens)/s.sizes.perBlock(f.capacity.BlockTokens), maxRoom)))
	}
	if limit := s.trust.limit; limit > 0 && (n == 0 || limit < n) {
		n = limit
	}
	return n
}

// weigh learns from a leg that has ended how long the blocks of its pod's
// prompts are. It reports whether the index should be told: a mean that has
// changed by less than a thirtieth is not worth a call. Guarded by mu.
func (f *Fleet) weigh(l *Lease) bool {
	s := &f.slots[l.ref.Slot]
	if l.Blocks == 0 || f.tokensOf(s) == 0 {
		return false
	}
	s.sizes.add(l.queued.load.Prompt, l.Blocks, max(leastHorizon, float64(s.room)))
	n := f.roomOf(s)
	return max(n-s.room, s.room-n) > s.room/30
}

// fit tells the index how many blocks it is to keep of the slot's pod.
func (f *Fleet) fit(slot uint8) {
	f.fitting.Lock()
	defer f.fitting.Unlock()
	f.mu.Lock()
	s := &f.slots[slot]
	n := f.roomOf(s)
	changed := n != s.room
	s.room = n
	f.mu.Unlock()
	if changed {
		f.index.SetCapacity(slot, n)
	}
}

func (f *Fleet) fitAll() {
	for slot := range f.slots {
		f.fit(uint8(slot))
	}
}
