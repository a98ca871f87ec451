package replay

import "math"

// Engine is what a pod's work costs, in ms and tokens: vLLM-like continuous
// batching with chunked prefill, first come, first served.
type Engine struct {
	Token    float64 // to compute a token of a prompt
	Context  float64 // and, for each token before it, its attention
	Step     float64 // the least time of a step: reading the weights
	Read     float64 // to read a token of a decoding sequence, each step
	Chunk    int     // tokens computed in a step, at most
	Running  int     // sequences in a batch, at most
	KVTokens int     // tokens of running sequences that the memory holds
	// CacheBlocks is how many blocks the prefix cache holds; 0: any number.
	CacheBlocks int

	// EachStep simulates every step of decoding instead of skipping to the next
	// one at which something changes. The results are the same; tests see to it.
	EachStep bool
}

// H100 is Llama 3.1 8B in bf16 on one H100: 20,000 tokens of prompts a second,
// attention equal to that at 38,000 tokens, 3.35 TB/s, and a KV cache of
// 460,800 tokens.
func H100() Engine {
	return Engine{
		Token: 0.05, Context: 1.3e-6, Step: 7, Read: 4e-5,
		Chunk: 2048, Running: 256, KVTokens: 460_800, CacheBlocks: 900,
	}
}

// Work returns the time to compute so many tokens behind others that are there.
func (e *Engine) Work(held, tokens float64) float64 {
	return e.Token*tokens + e.Context*tokens*(held+tokens/2)
}

// unlimited is a capacity that nothing reaches.
const unlimited = math.MaxInt32

func (e *Engine) capacity() int {
	if e.CacheBlocks > 0 {
		return e.CacheBlocks
	}
	return unlimited
}
