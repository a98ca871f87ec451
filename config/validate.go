package config

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Bounds that keep sums and 32-bit counters far from overflowing.
const (
	maxCount  = math.MaxInt32
	maxTokens = 1 << 20
	maxBytes  = 1 << 50
	maxWeight = 1000
	// A ring of 256 pods then has a million points.
	maxVirtualNodes = 1000
	maxName         = 128 // bytes of a name or id
)

// Validate checks everything that was said and returns all that is wrong with it
// as [Problems], or nil. It does not change b.
func (b *Balancer) Validate() error {
	c := &checker{}
	c.gateway(b)
	c.weights(b)
	c.health(b.Health)
	c.registry(b)
	c.overload(b)
	c.dispatch(b.Dispatch)
	c.modes(b)
	c.pods(b)
	c.sources(b)
	c.models(b)
	if len(c.problems) > 0 {
		return c.problems
	}
	return nil
}

// checker collects what is wrong. Its checks take the path of a key and the
// pointer to its value; a value that was not given is never wrong.
type checker struct {
	problems Problems
	pod      string // whose keys are being checked
}

// add notes that the value of a key is wrong; a nil value is not shown.
func (c *checker) add(path string, value any, format string, args ...any) {
	p := &Problem{Path: path, Pod: c.pod, Message: fmt.Sprintf(format, args...)}
	switch v := value.(type) {
	case nil:
	case string:
		p.Value = strconv.Quote(short(v))
	default:
		p.Value = fmt.Sprint(v)
	}
	c.problems = append(c.problems, p)
}

func (c *checker) gateway(b *Balancer) {
	c.visible("name", b.Name)
	c.choice("strategy", b.Strategy, "strategy", strategies)
	c.choice("tie_break", b.TieBreak, "tie break", tieBreaks)
	c.choice("mode", b.Mode, "mode", modes)
	between(c, "block_size", b.BlockSize, 1, maxTokens)
	between(c, "max_token_bytes", b.MaxTokenBytes, 0, maxTokens)
	between(c, "max_body_bytes", b.MaxBodyBytes, 1, maxBytes)
	between(c, "body_memory_bytes", b.BodyMemoryBytes, 1, maxBytes)
	between(c, "retries", b.Retries, 0, MaxPods)
	between(c, "retry_budget", b.RetryBudget, 0, 1)
	for i, status := range b.RetryStatus {
		between(c, index("retry_status", i), &status, 400, 599)
	}
}

func (c *checker) weights(b *Balancer) {
	if b.Weights == nil {
		return
	}
	said, effective := b.Weights, b.Weights.defaults()
	c.roleWeights("weights.single", said.Single, effective.Single)
	c.roleWeights("weights.prefill", said.Prefill, effective.Prefill)
	c.roleWeights("weights.decode", said.Decode, effective.Decode)
}

func (c *checker) roleWeights(path string, said, effective *Weights) {
	if said == nil {
		return
	}
	before := len(c.problems)
	between(c, path+".cache", said.Cache, 0, maxWeight)
	between(c, path+".load", said.Load, 0, maxWeight)
	between(c, path+".sticky", said.Sticky, 0, maxWeight)
	between(c, path+".locality", said.Locality, 0, maxWeight)
	if len(c.problems) == before && *effective.Cache+*effective.Load+*effective.Sticky+*effective.Locality == 0 {
		c.add(path, nil, "all weights are 0, want one above it")
	}
}

func (c *checker) health(h *Health) {
	if h == nil {
		return
	}
	c.path("health.endpoint", h.Endpoint)
	c.positive("health.interval", h.Interval)
	c.positive("health.timeout", h.Timeout)
	between(c, "health.healthy_threshold", h.HealthyThreshold, 1, maxCount)
	between(c, "health.unhealthy_threshold", h.UnhealthyThreshold, 1, maxCount)
	for _, name := range slices.Sorted(maps.Keys(h.Headers)) {
		c.header("health.headers."+name, name, h.Headers[name])
	}
	if p := h.Passive; p != nil {
		between(c, "health.passive.failures", p.Failures, 0, maxCount)
		c.positive("health.passive.window", p.Window)
	}
}

func (c *checker) registry(b *Balancer) {
	if r := b.CacheRegistry; r != nil {
		between(c, "cache_registry.max_pods", r.MaxPods, 1, MaxPods)
		between(c, "cache_registry.shards_count", r.ShardsCount, 1, maxCount)
		c.notNegative("cache_registry.stale_ttl", r.StaleTTL)
		between(c, "cache_registry.max_blocks", r.MaxBlocks, 1, maxCount)
		between(c, "cache_registry.blocks_per_pod", r.BlocksPerPod, -1, maxCount)
	}
	if x := b.ExpectedTTFT; x != nil {
		between(c, "expected_ttft.prefill_rate", x.PrefillRate, 1, maxCount)
		between(c, "expected_ttft.gamma", x.Gamma, 0, maxWeight)
		between(c, "expected_ttft.theta", x.Theta, 0, maxWeight)
		between(c, "expected_ttft.eta", x.Eta, 0, 1)
		between(c, "expected_ttft.replicas", x.Replicas, 0.1, maxCount)
		c.positive("expected_ttft.tau", x.Tau)
	}
	if h := b.Hashing; h != nil {
		between(c, "hashing.load_factor", h.LoadFactor, 1, maxWeight)
		between(c, "hashing.virtual_nodes", h.VirtualNodes, 1, maxVirtualNodes)
	}
	if s := b.Sessions; s != nil {
		c.positive("sessions.idle_ttl", s.IdleTTL)
		between(c, "sessions.max", s.Max, 1, maxCount)
	}
	if m := b.EngineMetrics; m != nil {
		c.path("engine_metrics.path", m.Path)
		c.positive("engine_metrics.interval", m.Interval)
	}
}

func (c *checker) dispatch(d *Dispatch) {
	if d == nil {
		return
	}
	c.choice("dispatch.connector", d.Connector, "connector", connectors)
	between(c, "dispatch.min_uncached_tokens", d.MinUncachedTokens, 0, maxCount)
	c.choice("dispatch.on_prefill_failure", d.OnPrefillFailure, "value", prefillFailures)
	c.notNegative("dispatch.prefill_timeout", d.PrefillTimeout)
}

// modes checks that the pods can serve at all, and the mode that was asked for.
func (c *checker) modes(b *Balancer) {
	single := b.HasSingle()
	prefill, decode := b.legs()
	switch {
	case !single && !prefill && !decode:
		c.add("", nil, "no pods: want at least one under single, or one each under dispatch's prefill and decode")
	case prefill && !decode:
		c.add("dispatch", nil, "prefill has pods but decode has none, want at least one")
	case decode && !prefill:
		c.add("dispatch", nil, "decode has pods but prefill has none, want at least one")
	case b.Mode == "single" && !single, b.Mode == "dispatch" && !prefill:
		c.add("mode", b.Mode, "there are no pods for this mode")
	}
}

// number is what a key of the configuration can hold.
type number interface{ ~int | ~int64 | ~float64 }

func between[T number](c *checker, path string, v *T, low, high T) {
	switch {
	case v == nil:
	case *v < low:
		c.add(path, *v, "too small, want at least %v", low)
	case *v > high:
		c.add(path, *v, "too large, want at most %v", high)
	case math.IsNaN(float64(*v)):
		c.add(path, *v, "not a number, want one between %v and %v", low, high)
	}
}

func (c *checker) positive(path string, v *Duration) {
	if v != nil && *v == 0 {
		c.add(path, *v, "want more than 0")
		return
	}
	c.notNegative(path, v)
}

func (c *checker) notNegative(path string, v *Duration) {
	switch {
	case v == nil:
	case *v < 0:
		c.add(path, *v, "want no negative time")
	case *v > Duration(maxDuration):
		c.add(path, *v, "too long, want at most %d days", maxDays)
	}
}

func (c *checker) choice(path, value, what string, names []name) {
	value = canonical(names, value)
	if value != "" && !known(names, value) {
		c.add(path, value, "unknown %s, want %s", what, list(names))
	}
}

// visible checks what is to stand in headers and labels.
func (c *checker) visible(path, value string) {
	if len(value) > maxName {
		c.add(path, nil, "is %d bytes long, want at most %d", len(value), maxName)
		return
	}
	if strings.ContainsFunc(value, func(r rune) bool { return r < '!' || r > '~' }) {
		c.add(path, value, "want only visible ASCII characters, without spaces")
	}
}

func (c *checker) path(path, value string) {
	switch {
	case value == "":
	case value[0] != '/':
		c.add(path, value, "want a path that begins with a slash")
	case strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r == '#' || r >= 0x7f }):
		c.add(path, value, "want no spaces, control characters, # or unescaped letters beyond ASCII")
	}
}

func (c *checker) header(path, name, value string) {
	if strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-.^_`|~") != "" {
		c.add("health.headers", nil, "%q is no name of a header", name)
		return
	}
	if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
		// The value may be a secret; it is not repeated.
		c.add(path, nil, "the header's value has a control character")
	}
}
