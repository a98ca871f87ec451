package config

import (
	"slices"
	"strings"
)

// name is a value of an enumeration: as config.yaml spells it, which is the
// canonical form, and as the Caddyfile does.
type name struct{ yaml, snake string }

var (
	strategies = []name{
		{"cacheAware", "cache_aware"},
		{"expectedTTFT", "expected_ttft"},
		{"sessionAffinity", "session_affinity"},
		{"prefix", "prefix"},
		{"leastLoaded", "least_loaded"},
		{"roundRobin", "round_robin"},
		{"random", "random"},
		{"powerOfTwo", "power_of_two"},
	}
	connectors = []name{
		{"nixl", "nixl"},
		{"plain", "plain"},
		{"nixlPush", "nixl_push"},
		{"mooncake", "mooncake"},
		{"sglang", "sglang"},
		{"p2pnccl", "p2pnccl"},
		{"trtllm", "trtllm"},
		{"sharedStorage", "shared_storage"},
	}
	tieBreaks       = []name{{"prompt", "prompt"}, {"podId", "pod_id"}}
	modes           = []name{{"single", "single"}, {"dispatch", "dispatch"}}
	unknownModels   = []name{{"reject", "reject"}, {"pass", "pass"}}
	prefillFailures = []name{{"fail", "fail"}, {"decodeOnly", "decode_only"}}
)

// canonical returns the YAML spelling of s, or s itself if it is no known name.
func canonical(names []name, s string) string {
	for _, n := range names {
		if s == n.snake {
			return n.yaml
		}
	}
	return s
}

// known tells whether s is the YAML spelling of one of names.
func known(names []name, s string) bool {
	return slices.ContainsFunc(names, func(n name) bool { return n.yaml == s })
}

// list writes the names, as in "a, b or c".
func list(names []name) string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = n.yaml
	}
	return orList(out)
}

// orList joins words as in "a, b or c".
func orList(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// Normalize writes all names of enumerations in the spelling of config.yaml.
// Load and the Caddyfile's parser call it, so that an adapted configuration looks
// the same from either.
func (b *Balancer) Normalize() {
	b.normalize()
	b.normalizeModels()
}

// normalize does it for what is the balancer's own, not shared with copies.
func (b *Balancer) normalize() {
	b.Strategy = canonical(strategies, b.Strategy)
	b.TieBreak = canonical(tieBreaks, b.TieBreak)
	b.UnknownModel = canonical(unknownModels, b.UnknownModel)
	if d := b.Dispatch; d != nil {
		d.Connector = canonical(connectors, d.Connector)
		d.OnPrefillFailure = canonical(prefillFailures, d.OnPrefillFailure)
	}
}
