package enginesim

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"
)

// Settings describes one simulated engine. The zero value of every field means
// its default; names follow vLLM's flags where vLLM has one. A Settings is a plain
// value: copy it freely, change an engine by Engine.Configure.
type Settings struct {
	// Name of the engine: sent as the response header X-Sim-Engine, and what tells
	// engines of one process apart. Default: "sim" (in Caddy: the listen address).
	Name string `json:"name,omitempty"`

	// Models that the engine serves; a request for another one is answered 404.
	// Default: none named, every model is served under the name the client uses.
	Models []string `json:"models,omitempty"`

	// Seed of the generated words. Engines with equal seeds answer equal prompts
	// with equal words. Default: 0.
	Seed uint64 `json:"seed,omitempty"`

	// BlockSize is the number of tokens in a KV block. Default: 16.
	BlockSize int `json:"block_size,omitempty"`

	// NumGPUBlocks is the size of the KV cache in blocks. Default: 28800, which is
	// 460,800 tokens: an 8B model on one 80 GB card.
	NumGPUBlocks int `json:"num_gpu_blocks,omitempty"`

	// MaxTokenBytes cuts a run of more bytes without white space into pieces of
	// this size, one token each; 0 turns the cutting off. Default: 16.
	MaxTokenBytes *int `json:"max_token_bytes,omitempty"`

	// MaxModelLen bounds prompt plus answer, in tokens. It must fit into the KV
	// cache. Default: 131072, or the whole cache if that is smaller.
	MaxModelLen int `json:"max_model_len,omitempty"`

	// MaxNumSeqs is how many sequences run at once; more wait. Default: 256.
	MaxNumSeqs int `json:"max_num_seqs,omitempty"`

	// MaxNumBatchedTokens bounds the tokens of one step, so a longer prompt is
	// prefilled in chunks. Default: 2048.
	MaxNumBatchedTokens int `json:"max_num_batched_tokens,omitempty"`

	// PrefillTokensPerSecond is the speed of computing uncached prompt tokens.
	// Default: 20000.
	PrefillTokensPerSecond float64 `json:"prefill_tokens_per_second,omitempty"`

	// AttentionTokens is the context, in tokens, at which attention makes a prompt
	// token cost twice as much (about 38000 for an 8B model on an H100).
	// Default: 0, no attention cost.
	AttentionTokens float64 `json:"attention_tokens,omitempty"`

	// DecodeTokensPerSecond is the speed of one sequence that decodes alone; its
	// inverse is the shortest time a step can take. Default: 50.
	DecodeTokensPerSecond float64 `json:"decode_tokens_per_second,omitempty"`

	// BatchSlowdown is the part by which each further decoding sequence lengthens
	// a step; 0 means none. Default: 0.005.
	BatchSlowdown *float64 `json:"batch_slowdown,omitempty"`

	// DecodeContextTokens is the sum of the contexts of all decoding sequences that
	// lengthens a step by its shortest time (about 175000 for an 8B model on an
	// H100). Default: 0, no such cost.
	DecodeContextTokens float64 `json:"decode_context_tokens,omitempty"`

	// TransferTokensPerSecond is the speed at which a decode leg loads handed-over
	// KV. Default: 333333, that is 3 µs a token.
	TransferTokensPerSecond float64 `json:"transfer_tokens_per_second,omitempty"`

	// KVLeaseDuration is how long the blocks of a prefill leg stay pinned for a
	// decode leg to come. Default: 30s.
	KVLeaseDuration Duration `json:"kv_lease_duration,omitempty"`

	// KVLoadFailurePolicy says what becomes of a decode leg whose KV cannot be had:
	// "fail" (status 500) or "recompute". Default: "fail".
	KVLoadFailurePolicy string `json:"kv_load_failure_policy,omitempty"`

	// KVConnector is how the engine hands KV over: "nixl" (vLLM's NixlConnector),
	// "nixl_push" (NixlPushConnector), "mooncake" (MooncakeConnector), "p2pnccl"
	// (P2pNcclConnector), "shared_storage" (LMCache and its like), "sglang" or
	// "trtllm". Default: "nixl".
	KVConnector string `json:"kv_connector,omitempty"`

	// Role is "prefill" or "decode" for an engine that serves one kind of leg alone,
	// as SGLang's disaggregation mode and P2pNccl's kv_role have it. Default: none.
	Role string `json:"role,omitempty"`

	// EngineID is what the engine calls itself among engines. Default: random.
	EngineID string `json:"engine_id,omitempty"`

	// KVAddress is where the engine's KV transfer listens, host:port: p2pnccl's ZMQ
	// address, nixl_push's side channel. Nothing is opened there. Default:
	// "127.0.0.1:5600".
	KVAddress string `json:"kv_address,omitempty"`

	// BootstrapPort is where the bootstrap server of sglang and mooncake is said to
	// be; for mooncake the engine must be served there too, for GET /query.
	// Default: 8998.
	BootstrapPort int `json:"bootstrap_port,omitempty"`

	// KVWaitTimeout is how long a leg waits for the other one. Default: 480s.
	KVWaitTimeout Duration `json:"kv_wait_timeout,omitempty"`

	// OutputTokens is the mean length of an answer that nothing else ends; lengths
	// lie evenly between half and one and a half of it. Default: 64.
	OutputTokens int `json:"output_tokens,omitempty"`

	// CacheOutput also keeps the words of answers for reuse by the next turn, as a
	// real engine does. Default: false.
	CacheOutput bool `json:"cache_output,omitempty"`

	// PromptTokensDetails says when usage carries prompt_tokens_details: "always",
	// "nonzero" (null unless tokens were cached, as vLLM does) or "never" (vLLM
	// without --enable-prompt-tokens-details). Default: "always".
	PromptTokensDetails string `json:"prompt_tokens_details,omitempty"`

	// StreamHeaders says when a stream's response headers leave: "at_once" (vLLM)
	// or with the "first_token" (llama.cpp). Default: "at_once".
	StreamHeaders string `json:"stream_headers,omitempty"`

	// EmbeddingDimensions is the length of an embedding when the request names none.
	// Default: 64.
	EmbeddingDimensions int `json:"embedding_dimensions,omitempty"`

	// HealthStatus is what /health answers. Default: 200.
	HealthStatus int `json:"health_status,omitempty"`
}

// WithDefaults returns the settings with every unset field filled in, or an error
// that names the field which cannot be.
func (s Settings) WithDefaults() (Settings, error) {
	s.Name = orDefault(s.Name, "sim")
	s.BlockSize = orDefault(s.BlockSize, 16)
	s.NumGPUBlocks = orDefault(s.NumGPUBlocks, 28800)
	s.MaxNumSeqs = orDefault(s.MaxNumSeqs, 256)
	s.MaxNumBatchedTokens = orDefault(s.MaxNumBatchedTokens, 2048)
	s.PrefillTokensPerSecond = orDefault(s.PrefillTokensPerSecond, 20000)
	s.DecodeTokensPerSecond = orDefault(s.DecodeTokensPerSecond, 50)
	s.TransferTokensPerSecond = orDefault(s.TransferTokensPerSecond, 333333)
	s.KVLeaseDuration = orDefault(s.KVLeaseDuration, Duration(30*time.Second))
	s.KVLoadFailurePolicy = orDefault(s.KVLoadFailurePolicy, "fail")
	s.KVConnector = orDefault(s.KVConnector, "nixl")
	s.KVAddress = orDefault(s.KVAddress, "127.0.0.1:5600")
	s.BootstrapPort = orDefault(s.BootstrapPort, 8998)
	s.KVWaitTimeout = orDefault(s.KVWaitTimeout, Duration(480*time.Second))
	s.OutputTokens = orDefault(s.OutputTokens, 64)
	s.PromptTokensDetails = orDefault(s.PromptTokensDetails, "always")
	s.StreamHeaders = orDefault(s.StreamHeaders, "at_once")
	s.EmbeddingDimensions = orDefault(s.EmbeddingDimensions, 64)
	s.HealthStatus = orDefault(s.HealthStatus, 200)
	if s.MaxTokenBytes == nil {
		s.MaxTokenBytes = new(16)
	}
	if s.BatchSlowdown == nil {
		s.BatchSlowdown = new(0.005)
	}
	if err := s.check(); err != nil {
		return s, err
	}
	s.MaxModelLen = orDefault(s.MaxModelLen, min(131072, s.cacheTokens()))
	if s.MaxModelLen < 2 || s.MaxModelLen > s.cacheTokens() {
		return s, fmt.Errorf("max_model_len %d: want 2 to %d, which is num_gpu_blocks × block_size", s.MaxModelLen, s.cacheTokens())
	}
	return s, nil
}

func orDefault[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

func (s *Settings) cacheTokens() int { return s.BlockSize * s.NumGPUBlocks }

// check looks at settings whose defaults are filled in.
func (s *Settings) check() error {
	for _, f := range []struct {
		name  string
		v, hi int
	}{
		{"block_size", s.BlockSize, 1 << 16},
		{"num_gpu_blocks", s.NumGPUBlocks, 1 << 26},
		{"max_num_seqs", s.MaxNumSeqs, 1 << 20},
		{"max_num_batched_tokens", s.MaxNumBatchedTokens, 1 << 30},
		{"output_tokens", s.OutputTokens, 1 << 24},
		{"embedding_dimensions", s.EmbeddingDimensions, 1 << 16},
		{"bootstrap_port", s.BootstrapPort, 1<<16 - 1},
	} {
		if f.v < 1 || f.v > f.hi {
			return fmt.Errorf("%s %d: want 1 to %d", f.name, f.v, f.hi)
		}
	}
	for _, f := range []struct {
		name string
		v    float64
	}{
		{"prefill_tokens_per_second", s.PrefillTokensPerSecond},
		{"decode_tokens_per_second", s.DecodeTokensPerSecond},
		{"transfer_tokens_per_second", s.TransferTokensPerSecond},
	} {
		// Below 1e-6 a single token would outlast any time.Duration.
		if !(f.v >= 1e-6) || math.IsInf(f.v, 0) {
			return fmt.Errorf("%s %v: want a finite number above 0", f.name, f.v)
		}
	}
	for _, f := range []struct {
		name string
		v    float64
	}{
		{"attention_tokens", s.AttentionTokens},
		{"batch_slowdown", *s.BatchSlowdown},
		{"decode_context_tokens", s.DecodeContextTokens},
	} {
		if !(f.v >= 0) || math.IsInf(f.v, 0) {
			return fmt.Errorf("%s %v: want a finite number, 0 or above", f.name, f.v)
		}
	}
	for _, f := range []struct {
		name, v string
		allowed []string
	}{
		{"kv_load_failure_policy", s.KVLoadFailurePolicy, []string{"fail", "recompute"}},
		{"kv_connector", s.KVConnector, []string{"nixl", "nixl_push", "mooncake", "p2pnccl", "shared_storage", "sglang", "trtllm"}},
		{"role", s.Role, []string{"", "prefill", "decode"}},
		{"prompt_tokens_details", s.PromptTokensDetails, []string{"always", "nonzero", "never"}},
		{"stream_headers", s.StreamHeaders, []string{"at_once", "first_token"}},
	} {
		if !slices.Contains(f.allowed, f.v) {
			return fmt.Errorf("%s %q: want one of %q", f.name, f.v, f.allowed)
		}
	}
	if *s.MaxTokenBytes < 0 {
		return fmt.Errorf("max_token_bytes %d: want 0 (off) or above", *s.MaxTokenBytes)
	}
	if s.KVWaitTimeout < 0 {
		return fmt.Errorf("kv_wait_timeout %v: want above 0", time.Duration(s.KVWaitTimeout))
	}
	if s.KVLeaseDuration < 0 {
		return fmt.Errorf("kv_lease_duration %v: want above 0", time.Duration(s.KVLeaseDuration))
	}
	if s.HealthStatus < 200 || s.HealthStatus > 599 {
		return fmt.Errorf("health_status %d: want 200 to 599", s.HealthStatus)
	}
	if slices.Contains(s.Models, "") {
		return errors.New("models: want names that are not empty")
	}
	return nil
}

// Shape names what makes the contents of a KV cache incompatible: engines may hand
// their cache on from one configuration to the next only if their shapes are equal.
// s must have its defaults filled in.
func (s Settings) Shape() string {
	return fmt.Sprintf("block_size=%d num_gpu_blocks=%d max_token_bytes=%d", s.BlockSize, s.NumGPUBlocks, *s.MaxTokenBytes)
}

// Duration is a time.Duration that JSON spells as "30s" or as nanoseconds.
type Duration time.Duration

// UnmarshalJSON accepts a string as time.ParseDuration does, or an integer of
// nanoseconds.
func (d *Duration) UnmarshalJSON(b []byte) error {
	if n, err := strconv.ParseInt(string(b), 10, 64); err == nil {
		*d = Duration(n)
		return nil
	}
	var text string
	if err := json.Unmarshal(b, &text); err != nil {
		return fmt.Errorf("duration %s: want a string such as \"30s\" or nanoseconds", b)
	}
	v, err := time.ParseDuration(text)
	if err != nil {
		return err
	}
	*d = Duration(v)
	return nil
}
