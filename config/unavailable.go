package config

import "slices"

// This file lists everything that has a name in the schema but is not built yet.
// It is refused by that name; what gets built leaves this file.

// Names of strategies and connectors, in the spelling of config.yaml.
var (
	unavailableStrategies = []string{"sessionAffinity", "prefix", "powerOfTwo"}
	unavailableConnectors = []string{"nixlPush", "mooncake", "sglang", "p2pnccl", "trtllm", "sharedStorage"}
)

// Keys that have no place in the structs yet, in both spellings.
var (
	unavailableSections = []string{"hashing"}
	unavailablePodKeys  = []string{"models", "bootstrapPort", "bootstrap_port"}
)

// unavailable is what every refusal of this file says.
const unavailable = "not available in this version"

// UnavailableKey tells whether key, in the section at the given path ("" is the
// balancer, a pod's ends in "]"), is one of a later version.
func UnavailableKey(path, key string) bool {
	switch {
	case path == "":
		return slices.Contains(unavailableSections, key)
	case path[len(path)-1] == ']':
		return slices.Contains(unavailablePodKeys, key)
	}
	return false
}

// unavailable refuses values of known keys for which there is no code yet.
func (c *checker) unavailable(b *Balancer) {
	if m := b.EngineMetrics; m != nil && m.Enabled != nil && *m.Enabled {
		c.add("engine_metrics.enabled", *m.Enabled, "%s, want false", unavailable)
	}
	if d := b.Dispatch; d != nil && d.MinUncachedTokens != nil && *d.MinUncachedTokens != 0 {
		c.add("dispatch.min_uncached_tokens", *d.MinUncachedTokens, "%s, want 0", unavailable)
	}
}
