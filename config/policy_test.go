package config

import "testing"

// TestValidatePolicy checks what a policy of Caddy's own proxy may say.
func TestValidatePolicy(t *testing.T) {
	for _, c := range []struct {
		name string
		b    Balancer
		want string
	}{
		{"nothing", Balancer{}, ""},
		{
			"everything",
			Balancer{
				BlockSize: new(16), Strategy: "least_loaded",
				Weights:       &RoleWeights{Single: &Weights{Cache: new(0.6), Load: new(0.3), Sticky: new(0.1)}},
				CacheRegistry: &CacheRegistry{MaxBlocks: new(1), StaleTTL: new(Duration(0))},
			},
			"",
		},
		{
			"faults, under the keys of a policy",
			Balancer{
				BlockSize: new(-1), Strategy: "cleverest",
				Weights:       &RoleWeights{Single: &Weights{Cache: new(-1.0), Locality: new(1.0)}},
				CacheRegistry: &CacheRegistry{MaxBlocks: new(0), StaleTTL: new(Duration(-1))},
			},
			`strategy "cleverest": unknown strategy, want cacheAware, expectedTTFT, sessionAffinity, prefix, leastLoaded, roundRobin, random or powerOfTwo
block_size -1: too small, want at least 1
weights.cache -1: too small, want at least 0
stale_ttl -1ns: want no negative time
max_blocks 0: too small, want at least 1
weights.locality: a policy knows no prefill pod to be near to, want cache, load and sticky only`,
		},
		{
			"no weight at all",
			Balancer{Weights: &RoleWeights{Single: &Weights{Cache: new(0.0), Load: new(0.0), Sticky: new(0.0)}}},
			"weights: all weights are 0, want one above it",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := ""
			if err := c.b.ValidatePolicy(); err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}
