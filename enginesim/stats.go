package enginesim

import "maps"

// Counters only grow, from the engine's start.
type Counters struct {
	// Requests by API path, counted when accepted.
	Requests map[string]uint64 `json:"requests"`
	// Finished sequences by reason: stop, length, abort.
	Finished map[string]uint64 `json:"finished"`
	// PrefixQueries and PrefixHits are prompt tokens looked up and found in the
	// cache, as vLLM counts them.
	PrefixQueries uint64 `json:"prefix_queries"`
	PrefixHits    uint64 `json:"prefix_hits"`
	// PromptTokens and GenerationTokens of sequences that got their first token.
	PromptTokens     uint64 `json:"prompt_tokens"`
	GenerationTokens uint64 `json:"generation_tokens"`
	// TransferredTokens were loaded from prefill engines.
	TransferredTokens uint64 `json:"transferred_tokens"`
	// Preemptions of running sequences for want of blocks.
	Preemptions uint64 `json:"preemptions"`
	// LeasesGranted after prefill legs; LeasesExpired were never loaded.
	LeasesGranted uint64 `json:"leases_granted"`
	LeasesExpired uint64 `json:"leases_expired"`
	// ClaimsRefused of decode legs, counted at the decode engine.
	ClaimsRefused uint64 `json:"claims_refused"`
}

// Stats is the state of an engine at one moment.
type Stats struct {
	Name     string `json:"name"`
	EngineID string `json:"engine_id"`
	// Running sequences, and those that wait: queued, or for handed-over KV.
	Running int `json:"running"`
	Waiting int `json:"waiting"`
	// Blocks of the cache, those pinned by sequences and leases, and those (pinned
	// or free) whose contents a prompt can find.
	Blocks       int `json:"blocks"`
	BlocksPinned int `json:"blocks_pinned"`
	BlocksCached int `json:"blocks_cached"`
	// Leases that hold blocks for a decode leg.
	Leases int `json:"leases"`
	Counters
}

// Stats returns the engine's state.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.count
	c.Requests, c.Finished = maps.Clone(c.Requests), maps.Clone(c.Finished)
	return Stats{
		Name:         e.set.Name,
		EngineID:     e.id,
		Running:      len(e.running),
		Waiting:      len(e.waiting) + len(e.loading) + len(e.ready),
		Blocks:       e.pool.capacity(),
		BlocksPinned: e.pool.capacity() - e.pool.free,
		BlocksCached: e.pool.cached,
		Leases:       len(e.leases),
		Counters:     c,
	}
}
