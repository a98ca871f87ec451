package config

import (
	"slices"
	"strings"
)

// This file lists everything that has a name in the schema but is not built yet.
// It is refused by that name; what gets built leaves this file.

// Names of connectors, in the spelling of config.yaml.
var unavailableConnectors = []string{"nixlPush", "mooncake", "sglang", "p2pnccl", "trtllm", "sharedStorage"}

// Keys of a pod that have no place in the structs yet, in both spellings.
var unavailablePodKeys = []string{"models", "bootstrapPort", "bootstrap_port"}

// unavailable is what every refusal of this file says.
const unavailable = "not available in this version"

// UnavailableKey tells whether key, in the section at the given path (a pod's ends
// in "]"), is one of a later version.
func UnavailableKey(path, key string) bool {
	return strings.HasSuffix(path, "]") && slices.Contains(unavailablePodKeys, key)
}

// unavailable refuses values of known keys for which there is no code yet.
func (c *checker) unavailable(b *Balancer) {
	if d := b.Dispatch; d != nil && d.MinUncachedTokens != nil && *d.MinUncachedTokens != 0 {
		c.add("dispatch.min_uncached_tokens", *d.MinUncachedTokens, "%s, want 0", unavailable)
	}
}
