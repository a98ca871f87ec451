// Package enginesim is an inference engine without a model: it answers the
// OpenAI and Anthropic APIs with made-up words, but keeps time, memory and
// hand-over as a vLLM server does. Demonstrations, tests and benchmarks stand on
// it, so what it reports is what happened inside it, never a guess. It shares no
// code with the balancer: agreement between the two proves something.
//
// # The way of a request
//
//	server.go    path → reader of that API; errors in vLLM's form
//	jsontree.go  one pass over the body → tree of values
//	api_*.go     tree → ask (what to generate), and answer → JSON or SSE
//	template.go  turns, tools, images → rendered prompt → token ids
//	engine.go    lengths checked, KV claimed, sequences queued
//	scheduler.go steps of continuous batching; each step ends at a known time
//	blocks.go    paged KV cache with prefix reuse, least recently used first
//	script.go    the words: a pure function of (seed, prompt, sampling seed)
//	handover.go  leases of finished prefills, claims by decode engines
//
// # Tokens
//
// A token is a run of bytes between Unicode white space. A run of n > 16 bytes
// (max_token_bytes) is cut into ceil(n/16) tokens. Every turn starts with one
// marker token for its role, and one more opens the answer. Tools come first,
// then the turns. An image, a sound, a video or a file takes 64 tokens, all the
// same, whatever its size. A token's id is a 31-bit hash of its bytes, so a prompt sent as
// the ids that /tokenize gave is the same prompt.
//
// # Time
//
// The engine works in steps, as vLLM's scheduler does. A step first gives every
// running sequence one token (or the rest of its prompt), then admits waiting
// ones, first come first served, while max_num_seqs, max_num_batched_tokens and
// free blocks allow it; long prompts are cut into chunks over several steps. With
// d sequences decoding over c tokens of context in all, and prompt chunks of
// p tokens, the step lasts
//
//	max(F·(1 + batch_slowdown·(d−1)), (p+d)/prefill_tokens_per_second)
//	  + F·c/decode_context_tokens
//	  + Σ chunk·(context before + chunk/2) / (prefill rate · attention_tokens)
//
// where F = 1/decode_tokens_per_second is a step's floor. A sequence gets its
// first token at the end of the step that completes its prompt, and one more at
// each later step. So a lone prompt of u uncached tokens, u at most one chunk,
// waits max(F, u/rate), and then F per token.
//
// Real engines are more: no speculative decoding, no priorities, no sampling; log
// probabilities, penalties and response formats are accepted and ignored.
//
// # Memory
//
// num_gpu_blocks blocks of block_size tokens. Only full blocks of the prompt are
// kept for reuse; a block is found again by the chained hash of everything up to
// its end, rooted in model and cache_salt, from the moment its step has ended.
// Blocks in use are pinned; free ones are evicted least recently used first, the
// tail of a prompt before its head. At least the last prompt token is computed
// anew. A sequence that finds no block preempts the youngest one, which starts
// over. Words of an answer are not reused by default, because a balancer that sees
// prompts only cannot predict that reuse; cache_output turns it on.
//
// # Hand-over of KV (vLLM's NIXL connector, pull)
//
// A prefill leg (kv_transfer_params.do_remote_decode) must not stream and must be
// one sequence; it gets kv_transfer_params back, and its blocks stay pinned for
// kv_lease_duration. A decode leg (do_remote_prefill) brings those parameters; the
// engine claims the lease before it queues the request. The claim goes through
// Peers when the prefill engine lives in the same process, else by
// POST http://remote_host:remote_port/inference_sim/kv/claim, where host and port
// are those at which the prefill leg reached its engine; that is plain HTTP to a
// loopback address, nothing else is asked. Every member
// must equal what was handed out, the prompt must be the one that was prefilled,
// and a lease serves once; anything else fails the request with status 500, as
// kv_load_failure_policy "fail" does, or falls back to computing ("recompute").
// Loading takes tokens/transfer_tokens_per_second and then frees the lease.
//
// # Other connectors
//
// kv_connector chooses another protocol, read as strictly (connectors.go). With
// nixl_push, mooncake, sglang and p2pnccl the legs meet by an id that both carry
// (meeting.go): it serves one of each, the decode leg must name the engine that
// comes and have its prompt, and a leg that waits in vain for kv_wait_timeout fails
// with status 500, as an event of the stream where headers are out. SGLang's prefill
// leg answers when its KV was taken. trtllm hands out disaggregated_params with ids
// beyond 2^53. shared_storage is one store for all engines. Engines meet within one
// process only.
//
// # What no real engine has
//
// Every answer carries X-Sim-Engine (the engine's name), generating ones X-Sim-Leg
// (whole, prefill or decode), and X-Request-Id comes back as it was sent. Below
// /inference_sim/: GET state shows the engine from inside, PUT health?status=503
// changes what /health says (0 undoes it), and kv/ is for other engines. Like vLLM's
// own POST /reset_prefix_cache these are open to everyone who reaches the engine.
package enginesim
