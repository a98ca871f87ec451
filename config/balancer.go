package config

// Balancer is the configuration of one balancer. A nil pointer, an empty string
// or an empty list means that the user said nothing about it; [Balancer.Defaults]
// gives the values that then hold. Values behind the pointers are shared between
// copies and never written.
//
// The json tags spell the keys as JSON and the Caddyfile have them, the yaml tags
// as config.yaml has them, with a dot where the key lives in a section of its own.
type Balancer struct {
	// The name of the balancer. The same name in two places is the same state:
	// pods, health, block_size, max_token_bytes, cache_registry, sessions,
	// learn_models and overload must then agree. 1 to 128 visible ASCII characters. Default: "default".
	Name string `json:"name,omitempty" yaml:"gateway.name"`

	// How a pod is chosen: cacheAware, expectedTTFT, sessionAffinity, prefix,
	// leastLoaded, roundRobin, random or powerOfTwo.
	// Default: expectedTTFT; in config.yaml cacheAware.
	Strategy string `json:"strategy,omitempty" yaml:"gateway.strategy"`

	// What becomes of a request for a model that no pod serves, where pods name
	// their models: reject (404) or pass (to any pod). Default: reject.
	UnknownModel string `json:"unknown_model,omitempty" yaml:"gateway.unknownModel"`

	// What breaks equal scores: prompt (a fixed function of prompt and pod id)
	// or podId (the plain order of the ids). Default: prompt.
	TieBreak string `json:"tie_break,omitempty" yaml:"gateway.tieBreak"`

	// The mode of requests that name none: single or dispatch. Default: single
	// if it has pods, else dispatch.
	Mode string `json:"mode,omitempty" yaml:"gateway.mode"`

	// Tokens in a block of the prefix index. Default: 16.
	BlockSize *int `json:"block_size,omitempty" yaml:"gateway.blockSize"`

	// A run of n bytes without white space counts as n divided by this, rounded
	// up, tokens. 0 counts every run as one. Default: 16.
	MaxTokenBytes *int `json:"max_token_bytes,omitempty" yaml:"gateway.maxTokenBytes"`

	// The largest request body in bytes; a larger one is answered with 413.
	// Default: 67108864 (64 MiB).
	MaxBodyBytes *int64 `json:"max_body_bytes,omitempty" yaml:"gateway.maxBodyBytes"`

	// The memory in bytes that all buffered bodies may take together; beyond it
	// requests are answered with 503 and Retry-After. Default: 1073741824 (1 GiB).
	BodyMemoryBytes *int64 `json:"body_memory_bytes,omitempty" yaml:"gateway.bodyMemoryBytes"`

	// The weights of cacheAware's four factors, per role. Other strategies have no
	// use for them.
	Weights *RoleWeights `json:"weights,omitempty" yaml:"gateway.weights"`

	// Whether the X-Calinix-* headers are also set on answers. Default: true.
	ResponseHeaders *bool `json:"response_headers,omitempty" yaml:"gateway.responseHeaders"`

	// Whether the access log gets the field calinix_trace, from which the traffic
	// can be replayed. Default: false.
	LogTrace *bool `json:"log_trace,omitempty" yaml:"gateway.logTrace"`

	// How many further pods a request may try before its first byte of an
	// answer. Default: 1.
	Retries *int `json:"retries,omitempty" yaml:"gateway.retries"`

	// The share of the requests of the last 10 s that may be retries, 0 to 1;
	// 3 in that time always may. Default: 0.1.
	RetryBudget *float64 `json:"retry_budget,omitempty" yaml:"gateway.retryBudget"`

	// Statuses (400 to 599) of a pod after which another one may be tried.
	// Default: none.
	RetryStatus []int `json:"retry_status,omitempty" yaml:"gateway.retryStatus"`

	// How pods are probed and when they count as up or down.
	Health *Health `json:"health,omitempty" yaml:"health"`

	// The prefix index: its bounds and ageing.
	CacheRegistry *CacheRegistry `json:"cache_registry,omitempty" yaml:"cacheRegistry"`

	// How long and how many sessions are remembered.
	Sessions *Sessions `json:"sessions,omitempty" yaml:"sessions"`

	// The constants of the strategy expectedTTFT. Its defaults suit every engine;
	// they are for experiments.
	ExpectedTTFT *ExpectedTTFT `json:"expected_ttft,omitempty" yaml:"expectedTTFT"`

	// Holding requests back while the pods are too busy. Default: off.
	Overload *Overload `json:"overload,omitempty" yaml:"overload"`

	// The models that are served otherwise than the rest, by the names that engines
	// have for them.
	Models map[string]*Model `json:"models,omitempty" yaml:"models"`

	// Asking pods which models they serve.
	LearnModels *LearnModels `json:"learn_models,omitempty" yaml:"learnModels"`

	// The ring of hashes of the strategies sessionAffinity and prefix.
	Hashing *Hashing `json:"hashing,omitempty" yaml:"hashing"`

	// Reading the metrics of the engines.
	EngineMetrics *EngineMetrics `json:"engine_metrics,omitempty" yaml:"engineMetrics"`

	// The pods that answer a request by themselves.
	Single *Single `json:"single,omitempty" yaml:"upstreams.single"`

	// The pods that answer a request in two legs, prefill and decode.
	Dispatch *Dispatch `json:"dispatch,omitempty" yaml:"upstreams.dispatch"`
}

// strategy is the one that holds.
func (b *Balancer) strategy() string {
	if b.Strategy == "" {
		return DefaultStrategy
	}
	return canonical(strategies, b.Strategy)
}

// RoleWeights holds the weights of the four factors for each role.
type RoleWeights struct {
	// Default: cache 0.6, load 0.3, sticky 0.1, locality 0.
	Single *Weights `json:"single,omitempty" yaml:"single"`

	// Default: cache 0.65, load 0.25, sticky 0.1, locality 0.
	Prefill *Weights `json:"prefill,omitempty" yaml:"prefill"`

	// Default: cache 0.1, load 0.55, sticky 0.1, locality 0.25.
	Decode *Weights `json:"decode,omitempty" yaml:"decode"`
}

// Weights holds the weights of the four factors of one role. They need not add
// up to 1. One that is not given has its role's default.
type Weights struct {
	// Weight of the share of the prompt that the pod holds.
	Cache *float64 `json:"cache,omitempty" yaml:"cache"`

	// Weight of the pod's room for more requests.
	Load *float64 `json:"load,omitempty" yaml:"load"`

	// Weight of having served the session before.
	Sticky *float64 `json:"sticky,omitempty" yaml:"sticky"`

	// Weight of being near the prefill pod.
	Locality *float64 `json:"locality,omitempty" yaml:"locality"`
}

// Health says how pods are probed.
type Health struct {
	// The path that is probed with GET. Default: "/health".
	Endpoint string `json:"endpoint,omitempty" yaml:"endpoint"`

	// The time between two probes of a pod. Default: 2s.
	Interval *Duration `json:"interval,omitempty" yaml:"intervalMs"`

	// The time after which a probe has failed. Default: 500ms.
	Timeout *Duration `json:"timeout,omitempty" yaml:"timeoutMs"`

	// Probes in a row that must pass before a pod that is down is up. Default: 2.
	HealthyThreshold *int `json:"healthy_threshold,omitempty" yaml:"healthyThreshold"`

	// Probes in a row that must fail before a pod that is up is down. Default: 3.
	UnhealthyThreshold *int `json:"unhealthy_threshold,omitempty" yaml:"unhealthyThreshold"`

	// Headers that are sent with probes only.
	Headers map[string]string `json:"headers,omitempty" yaml:"headers"`

	// Failures of requests that mark a pod down.
	Passive *Passive `json:"passive,omitempty" yaml:"passive"`
}

// Passive says how many failed requests mark a pod down until it passes probes
// again.
type Passive struct {
	// That many failures within the window mark a pod down; 0 turns this off.
	// Default: 0.
	Failures *int `json:"failures,omitempty" yaml:"failures"`

	// The window in which failures are counted. Default: 10s.
	Window *Duration `json:"window,omitempty" yaml:"windowMs"`
}

// CacheRegistry bounds the index of who holds which block.
type CacheRegistry struct {
	// Whether an index is kept at all. Default: true.
	Enabled *bool `json:"enabled,omitempty" yaml:"enabled"`

	// The most pods that the balancer may have, 1 to 256. Default: 256.
	MaxPods *int `json:"max_pods,omitempty" yaml:"maxPods"`

	// Accepted for the sake of older files and without effect: the index always
	// has 256 shards.
	ShardsCount *int `json:"shards_count,omitempty" yaml:"shardsCount"`

	// A block that was not used for so long is forgotten; 0 is never. Default: 0.
	StaleTTL *Duration `json:"stale_ttl,omitempty" yaml:"staleTtlMs"`

	// The most distinct blocks that are kept; the oldest go first. Default: 1000000.
	MaxBlocks *int `json:"max_blocks,omitempty" yaml:"maxBlocks"`

	// The size of a pod's KV cache in the engine's blocks, of block_size tokens
	// each; what was not used for longest beyond it is forgotten. -1 is
	// unbounded. 0 (the default) is what the engine's metrics say if
	// engine_metrics is enabled, else 460800 tokens, which is about what an 8B
	// model leaves on a GPU with 80 GB.
	BlocksPerPod *int `json:"blocks_per_pod,omitempty" yaml:"blocksPerPod"`
}

// Sessions bounds the memory of which pod served a session.
type Sessions struct {
	// A session that was not seen for so long is forgotten. Default: 30m.
	IdleTTL *Duration `json:"idle_ttl,omitempty" yaml:"idleTtlMs"`

	// The most sessions that are remembered; the oldest go first. Default: 100000.
	Max *int `json:"max,omitempty" yaml:"max"`
}

// ExpectedTTFT are the constants of the strategy expectedTTFT, which sends a
// request where its first byte is expected soonest.
type ExpectedTTFT struct {
	// How many tokens of prompts a pod computes in a second at the least. Too
	// low does no harm, too high does. Default: 2000.
	PrefillRate *float64 `json:"prefill_rate,omitempty" yaml:"prefillRate"`

	// How much the work that a prompt makes counts besides its own wait.
	// Default: 0.5.
	Gamma *float64 `json:"gamma,omitempty" yaml:"gamma"`

	// What a token in a pod's KV cache costs, in tokens to compute.
	// Default: 0.01.
	Theta *float64 `json:"theta,omitempty" yaml:"theta"`

	// The share of a hot prefix that a pod without it is forgiven, 0 to 1; 0
	// turns the replication of hot prefixes off. Default: 0.7.
	Eta *float64 `json:"eta,omitempty" yaml:"eta"`

	// How often a prefix must be asked for within tau, for each pod that would
	// then hold it, to be hot. Default: 2.
	Replicas *float64 `json:"replicas,omitempty" yaml:"replicas"`

	// The time constant with which requests for a prefix are forgotten.
	// Default: 20s.
	Tau *Duration `json:"tau,omitempty" yaml:"tauMs"`
}

// Hashing describes the ring of hashes on which sessionAffinity and prefix look
// their keys up.
type Hashing struct {
	// How many times the mean number of requests a pod may have before it passes
	// a key on to the next one on the ring, at least 1. Default: 1.25.
	LoadFactor *float64 `json:"load_factor,omitempty" yaml:"loadFactor"`

	// How many places a pod has on the ring. More spread the keys more evenly.
	// Default: 160.
	VirtualNodes *int `json:"virtual_nodes,omitempty" yaml:"virtualNodes"`
}

// EngineMetrics says whether and how the metrics of engines are read. Where they
// tell the size of the KV cache (vLLM's and SGLang's cache_config_info) and
// blocks_per_pod is 0, that is how much the index keeps of the pod.
type EngineMetrics struct {
	// Whether they are read. Default: false.
	Enabled *bool `json:"enabled,omitempty" yaml:"enabled"`

	// The path of the metrics. Default: "/metrics".
	Path string `json:"path,omitempty" yaml:"path"`

	// The time between two readings. Default: 2s.
	Interval *Duration `json:"interval,omitempty" yaml:"intervalMs"`
}
