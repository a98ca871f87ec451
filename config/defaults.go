package config

import "time"

// The default of strategy, by who does not name one: in JSON and the Caddyfile it
// is DefaultStrategy. A config.yaml keeps the meaning that it always had, and the
// policy cache_aware of a stock reverse_proxy that of its name.
const (
	DefaultStrategy       = "expectedTTFT"
	DefaultYAMLStrategy   = "cacheAware"
	DefaultPolicyStrategy = "cacheAware"
)

// The defaults of everything else that has one.
const (
	DefaultPort            = 8080
	DefaultName            = "default"
	DefaultTieBreak        = "prompt"
	DefaultBlockSize       = 16
	DefaultMaxTokenBytes   = 16
	DefaultMaxBodyBytes    = 64 << 20
	DefaultBodyMemoryBytes = 1 << 30
	DefaultRetries         = 1
	DefaultRetryBudget     = 0.1

	DefaultHealthEndpoint     = "/health"
	DefaultHealthInterval     = Duration(2 * time.Second)
	DefaultHealthTimeout      = Duration(500 * time.Millisecond)
	DefaultHealthyThreshold   = 2
	DefaultUnhealthyThreshold = 3
	DefaultPassiveFailures    = 0
	DefaultPassiveWindow      = Duration(10 * time.Second)

	DefaultMaxPods       = 256
	DefaultShardsCount   = 256
	DefaultStaleTTL      = Duration(0)
	DefaultMaxBlocks     = 1_000_000
	DefaultBlocksPerPod  = 0
	DefaultIdleTTL       = Duration(30 * time.Minute)
	DefaultMaxSessions   = 100_000
	DefaultMetricsPath   = "/metrics"
	DefaultMetricsPeriod = Duration(2 * time.Second)

	DefaultPrefillRate = 2000
	DefaultGamma       = 0.5
	DefaultTheta       = 0.01
	DefaultEta         = 0.7
	DefaultReplicas    = 2
	DefaultTau         = Duration(20 * time.Second)

	DefaultUnknownModel = "reject"
	DefaultModelsPath   = "/v1/models"
	DefaultModelsPeriod = Duration(10 * time.Second)

	DefaultLoadFactor   = 1.25
	DefaultVirtualNodes = 160

	// DefaultPodTokens is the size of a pod's KV cache where none is known.
	DefaultPodTokens = 460_800

	DefaultConnector        = "nixl"
	DefaultBootstrapPort    = 8998
	DefaultSideChannelPort  = 5600
	DefaultOnPrefillFailure = "fail"

	// DefaultDialTimeout and DefaultKeepAlive are those of the transport to the
	// pods. The former is Caddy's own, which it does not tell. Caddy keeps idle
	// connections for two minutes, but vLLM (VLLM_HTTP_TIMEOUT_KEEP_ALIVE) and
	// llama.cpp close theirs after 5 s.
	DefaultDialTimeout = Duration(3 * time.Second)
	DefaultKeepAlive   = Duration(4 * time.Second)
)

// The weights of cacheAware by role.
var (
	defaultSingle  = factors{cache: 0.60, load: 0.30, sticky: 0.10, locality: 0}
	defaultPrefill = factors{cache: 0.65, load: 0.25, sticky: 0.10, locality: 0}
	defaultDecode  = factors{cache: 0.10, load: 0.55, sticky: 0.10, locality: 0.25}
)

type factors struct{ cache, load, sticky, locality float64 }

// Defaults returns the effective values: a copy of b in which everything that has
// a default is set and every name and URL is in its canonical form. Single,
// Dispatch and Overload stay nil where b has none, as do a pod's Healthy (nil: up until its
// first probe), MaxConns (nil: no limit) and Capabilities. b is not changed.
func (b *Balancer) Defaults() *Balancer {
	e := *b
	if b.Dispatch != nil {
		d := *b.Dispatch
		e.Dispatch = &d
	}
	e.normalize()
	fillString(&e.Name, DefaultName)
	fillString(&e.Strategy, DefaultStrategy)
	fillString(&e.TieBreak, DefaultTieBreak)
	fillString(&e.Mode, e.defaultMode())
	fill(&e.BlockSize, DefaultBlockSize)
	fill(&e.MaxTokenBytes, DefaultMaxTokenBytes)
	fill(&e.MaxBodyBytes, DefaultMaxBodyBytes)
	fill(&e.BodyMemoryBytes, DefaultBodyMemoryBytes)
	fill(&e.ResponseHeaders, true)
	fill(&e.LogTrace, false)
	fill(&e.Retries, DefaultRetries)
	fill(&e.RetryBudget, DefaultRetryBudget)
	e.Weights = e.Weights.defaults()
	e.Health = e.Health.defaults()
	e.CacheRegistry = e.CacheRegistry.defaults()
	e.Sessions = e.Sessions.defaults()
	e.ExpectedTTFT = e.ExpectedTTFT.defaults()
	e.Overload = e.Overload.defaults()
	fillString(&e.UnknownModel, DefaultUnknownModel)
	e.Models = defaultModels(e.Models, e.Weights)
	e.LearnModels = e.LearnModels.defaults()
	e.Hashing = e.Hashing.defaults()
	e.EngineMetrics = e.EngineMetrics.defaults()
	if b.Single != nil {
		e.Single = &Single{Pods: effectivePods(b.Single.Pods), Discover: b.Single.Discover}
	}
	if d := e.Dispatch; d != nil {
		fillString(&d.Connector, DefaultConnector)
		fillString(&d.OnPrefillFailure, DefaultOnPrefillFailure)
		fill(&d.PrefillTimeout, 0)
		fill(&d.MinUncachedTokens, 0)
		fill(&d.Adaptive, false)
		d.Prefill = d.Prefill.defaults()
		d.Decode = d.Decode.defaults()
	}
	return &e
}

func (b *Balancer) defaultMode() string {
	if b.HasSingle() {
		return "single"
	}
	return "dispatch"
}

func (w *RoleWeights) defaults() *RoleWeights {
	e := orEmpty(w)
	e.Single = e.Single.defaults(defaultSingle)
	e.Prefill = e.Prefill.defaults(defaultPrefill)
	e.Decode = e.Decode.defaults(defaultDecode)
	return e
}

func (w *Weights) defaults(f factors) *Weights {
	e := orEmpty(w)
	fill(&e.Cache, f.cache)
	fill(&e.Load, f.load)
	fill(&e.Sticky, f.sticky)
	fill(&e.Locality, f.locality)
	return e
}

func (h *Health) defaults() *Health {
	e := orEmpty(h)
	fillString(&e.Endpoint, DefaultHealthEndpoint)
	fill(&e.Interval, DefaultHealthInterval)
	fill(&e.Timeout, DefaultHealthTimeout)
	fill(&e.HealthyThreshold, DefaultHealthyThreshold)
	fill(&e.UnhealthyThreshold, DefaultUnhealthyThreshold)
	e.Passive = orEmpty(e.Passive)
	fill(&e.Passive.Failures, DefaultPassiveFailures)
	fill(&e.Passive.Window, DefaultPassiveWindow)
	return e
}

func (r *CacheRegistry) defaults() *CacheRegistry {
	e := orEmpty(r)
	fill(&e.Enabled, true)
	fill(&e.MaxPods, DefaultMaxPods)
	fill(&e.ShardsCount, DefaultShardsCount)
	fill(&e.StaleTTL, DefaultStaleTTL)
	fill(&e.MaxBlocks, DefaultMaxBlocks)
	fill(&e.BlocksPerPod, DefaultBlocksPerPod)
	return e
}

func (s *Sessions) defaults() *Sessions {
	e := orEmpty(s)
	fill(&e.IdleTTL, DefaultIdleTTL)
	fill(&e.Max, DefaultMaxSessions)
	return e
}

func (x *ExpectedTTFT) defaults() *ExpectedTTFT {
	e := orEmpty(x)
	fill(&e.PrefillRate, DefaultPrefillRate)
	fill(&e.Gamma, DefaultGamma)
	fill(&e.Theta, DefaultTheta)
	fill(&e.Eta, DefaultEta)
	fill(&e.Replicas, DefaultReplicas)
	fill(&e.Tau, DefaultTau)
	return e
}

func (h *Hashing) defaults() *Hashing {
	e := orEmpty(h)
	fill(&e.LoadFactor, DefaultLoadFactor)
	fill(&e.VirtualNodes, DefaultVirtualNodes)
	return e
}

// PodTokens returns how many tokens the cache of a pod is said to hold, 0 for any
// number. b is effective: see Defaults.
func (b *Balancer) PodTokens() int64 {
	switch n := *b.CacheRegistry.BlocksPerPod; {
	case n > 0:
		return int64(n) * int64(*b.BlockSize)
	case n == 0:
		return DefaultPodTokens
	default:
		return 0
	}
}

// LearnsCaches says whether the size of a pod's cache is what the engine's
// metrics say. b is effective: see Defaults.
func (b *Balancer) LearnsCaches() bool {
	return *b.EngineMetrics.Enabled && *b.CacheRegistry.BlocksPerPod == 0
}

func (m *EngineMetrics) defaults() *EngineMetrics {
	e := orEmpty(m)
	fill(&e.Enabled, false)
	fillString(&e.Path, DefaultMetricsPath)
	fill(&e.Interval, DefaultMetricsPeriod)
	return e
}

func (p *Pods) defaults() *Pods {
	e := orEmpty(p)
	e.Pods = effectivePods(e.Pods)
	return e
}

// effectivePods returns a copy of pods with their defaults.
func effectivePods(pods []Pod) []Pod {
	out := make([]Pod, len(pods))
	for i, p := range pods {
		fill(&p.Draining, false)
		p.Strategy = canonical(strategies, p.Strategy)
		if a, err := ParseURL(p.URL); err == nil {
			p.URL = a.String()
			fillString(&p.Node, a.Host)
		}
		out[i] = p
	}
	return out
}

// orEmpty returns a copy of what p points to, or a zero value.
func orEmpty[T any](p *T) *T {
	e := new(T)
	if p != nil {
		*e = *p
	}
	return e
}

func fill[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

func fillString(field *string, value string) {
	if *field == "" {
		*field = value
	}
}
