package config

import "strings"

// ValidatePolicy checks what a selection policy of Caddy's own proxy can say:
// strategy, block size, weights.single and the bounds of the index. It has no
// pods and no roles, so the paths of its problems leave those out.
func (b *Balancer) ValidatePolicy() error {
	c := &checker{}
	c.gateway(b)
	c.weights(b)
	c.registry(b)
	if w := b.Weights; w != nil && w.Single != nil && w.Single.Locality != nil {
		c.add("weights.single.locality", nil, "a policy knows no prefill pod to be near to, want cache, load and sticky only")
	}
	for _, p := range c.problems {
		p.Path = strings.TrimPrefix(strings.Replace(p.Path, "weights.single", "weights", 1), "cache_registry.")
	}
	if len(c.problems) > 0 {
		return c.problems
	}
	return nil
}
