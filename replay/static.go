package replay

import (
	"github.com/calinix/caddy-calinix/index"
	"github.com/calinix/caddy-calinix/selection"
)

// StaticFairness is the benchmark that the seed published, on the product's four
// factors: 1,000 requests for the hot prefix, none of which ever ends, at 16 pods
// of 1,000 connections whose caches stand still. It returns Jain's index of the
// numbers of requests.
func StaticFairness() float64 {
	const pods, requests = 16, 1000
	v := &selection.View{}
	r := &selection.Request{
		Strategy: selection.CacheAware, TieBreak: selection.ByPodID, Weights: selection.SingleWeights(),
		Sticky: selection.None, Blocks: hotBlocks,
	}
	for p := pods - 1; p >= 0; p-- { // depths ascend
		v.Rank[p] = uint8(p)
		v.SetLimit(uint8(p), requests)
		r.Frames = append(r.Frames, index.Frame{Depth: len(hotWarm(p)), Pods: index.Of(p)})
	}
	all := index.All(pods)
	for range requests {
		top := selection.Score(v, &all, r)
		v.Add(uint8(selection.Pick(v, &top, r)), 1)
	}
	var got []float64
	for p := range pods {
		got = append(got, float64(v.Inflight(uint8(p))))
	}
	return Jain(got)
}
