package selection

import "github.com/calinix/caddy-calinix/index"

// topLeastLoaded returns the candidates with the highest load factor: those
// with the fewest legs, in proportion to maxConns where a pod has one.
func topLeastLoaded(v *View, c *index.Bitmap) index.Bitmap {
	return topCacheAware(v, c, &Request{Weights: Weights{Load: 1}, Sticky: None})
}
