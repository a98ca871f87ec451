package replay

import (
	"github.com/calinix/caddy-calinix/fleet"
	"github.com/calinix/caddy-calinix/selection"
)

// Policy is a way to pick pods: the product with one of its strategies, or a
// model of another router.
type Policy struct {
	// Name is unique among Policies.
	Name string
	// Note says in a few words what it is.
	Note string
	// Product says that it is this product, not a model of something else.
	Product bool

	make func(s *sim) router
}

// Policies returns all policies, the product's first. The models are of the
// published defaults of the routers that they are named after.
func Policies() []Policy {
	return []Policy{
		Strategy("expectedTTFT", selection.ExpectedTTFT, Constants{}),
		Holding(fleet.DefaultOverload()),
		Strategy("cacheAware", selection.CacheAware, Constants{}),
		Strategy("sessionAffinity", selection.SessionAffinity, Constants{}),
		Strategy("prefix", selection.Prefix, Constants{}),
		Strategy("powerOfTwo", selection.PowerOfTwo, Constants{}),
		Strategy("leastLoaded", selection.LeastLoaded, Constants{}),
		Strategy("roundRobin", selection.RoundRobin, Constants{}),
		Strategy("random", selection.Random, Constants{}),
		{Name: "power-of-two", Note: "as elsewhere: the less loaded of two pods drawn", make: newPowerOfTwo},
		{Name: "session", Note: "as elsewhere: sessions on a hash ring, without a bound", make: newSessionRing},
		{Name: "prefix-bounded", Note: "as elsewhere: first block on a hash ring, load bounded at 1.25 x mean", make: newPrefixRing},
		{Name: "seed", Note: "four factors as first published: maxConns 100, learnt on completion, never evicts", make: newSeed},
		{Name: "llm-d", Note: "default: queue 2, KV use 2, prefix 3, of 4096 tokens; gauges each 50 ms", make: newLLMD},
		{Name: "sglang", Note: "default cache_aware: threshold 0.3, balance 64 and 1.5", make: newSGLang},
		{Name: "dynamo", Note: "default: prefill and decode blocks equal; cache events", make: newDynamo},
		{Name: "oracle", Note: "expected TTFT that sees the pods' true state", make: newOracle},
	}
}

// Holding returns the strategy expectedTTFT with requests held as o wants it, but for
// its Max: none are refused.
func Holding(o fleet.Overload) Policy {
	p := Strategy("expectedTTFT+hold", selection.ExpectedTTFT, Constants{Overload: o})
	p.Note += ", requests held while pods are too busy, the shortest goes first"
	return p
}

// PolicyNamed returns the policy of that name.
func PolicyNamed(name string) (Policy, bool) {
	for _, p := range Policies() {
		if p.Name == name {
			return p, true
		}
	}
	return Policy{}, false
}

// named is PolicyNamed for names that are known to exist.
func named(name string) Policy {
	p, _ := PolicyNamed(name)
	return p
}
