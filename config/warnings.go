package config

import (
	"strconv"
	"time"
)

// shortTTL is the life of unused blocks below which a warning is given.
const shortTTL = Duration(10 * time.Minute)

// Warnings returns what is allowed but most likely not meant.
func (b *Balancer) Warnings() Problems {
	c := &checker{}
	if r := b.CacheRegistry; r != nil {
		if ttl := r.StaleTTL; ttl != nil && *ttl > 0 && *ttl < shortTTL {
			c.add("cache_registry.stale_ttl", *ttl, "a block is forgotten so soon that most of the cache's use is lost: "+
				"in a published trace of chats 95 %% of the reuses of a block come later than 30 s after its last use; "+
				"leave this key out, or give at least 10 minutes")
		}
		if n := r.ShardsCount; n != nil && *n != DefaultShardsCount {
			c.add("cache_registry.shards_count", *n, "without effect: the index always has %d shards", DefaultShardsCount)
		}
	}
	if s := b.strategy(); b.Weights != nil && s != "cacheAware" {
		c.add("weights", nil, "without effect: strategy %s weighs nothing, cacheAware does", s)
	}
	c.bodyMemory(b)
	c.withoutPrefill(b)
	c.unserved(b)
	seen := map[string]string{}
	for _, m := range b.Members() {
		c.uselessCapabilities(b, &m)
		a, err := ParseURL(m.URL)
		if err != nil {
			continue
		}
		at := a.String()
		if m.DPRank != nil {
			at += "@" + strconv.Itoa(*m.DPRank) // ranks share a port
		}
		if first, ok := seen[at]; ok {
			c.pod = m.ID
			c.add(m.Path+".url", m.URL, "two pods at one address count their load and their cache apart; this is also the address of")
			c.problems[len(c.problems)-1].Other = first
			continue
		}
		seen[at] = m.Path
	}
	return c.problems
}

// uselessCapabilities remarks on roles of sections that b does not have.
func (c *checker) uselessCapabilities(b *Balancer, m *Member) {
	caps := m.Capabilities
	if caps == nil {
		return
	}
	c.pod = m.ID
	for _, role := range []struct {
		key, section string
		wanted, has  bool
	}{
		{"single", "single", isTrue(caps.Single), b.Single != nil},
		{"prefill", "dispatch", isTrue(caps.Prefill), b.Dispatch != nil},
		{"decode", "dispatch", isTrue(caps.Decode), b.Dispatch != nil},
	} {
		if role.wanted && !role.has {
			c.add(m.Path+".capabilities."+role.key, true, "without effect: there is no section %s", role.section)
		}
	}
	c.pod = ""
}

func (c *checker) bodyMemory(b *Balancer) {
	body, memory := int64(DefaultMaxBodyBytes), int64(DefaultBodyMemoryBytes)
	if b.MaxBodyBytes != nil {
		body = *b.MaxBodyBytes
	}
	if b.BodyMemoryBytes != nil {
		memory = *b.BodyMemoryBytes
	}
	switch {
	case memory >= body:
	case b.BodyMemoryBytes == nil:
		c.add("max_body_bytes", body, "more than all bodies together may take, %d: so large a body can never be read", memory)
	default:
		c.add("body_memory_bytes", memory, "a body of the largest size allowed, %d, can never be read", body)
	}
}

// withoutPrefill warns of what lets decode pods do without prefill pods where the
// engines cannot.
func (c *checker) withoutPrefill(b *Balancer) {
	var alone string
	switch b.connector() {
	case "sglang":
		alone = "SGLang servers that run as decode servers refuse requests without a prefill pod"
	case "p2pnccl":
		alone = "consumers of P2pNcclConnector fail requests whose id names no prefill engine"
	default:
		return
	}
	d := b.Dispatch
	if canonical(prefillFailures, d.OnPrefillFailure) == "decodeOnly" {
		c.add("dispatch.on_prefill_failure", d.OnPrefillFailure, "%s", alone)
	}
	if d.MinUncachedTokens != nil && *d.MinUncachedTokens > 0 {
		c.add("dispatch.min_uncached_tokens", *d.MinUncachedTokens, "%s", alone)
	}
	if isTrue(d.Adaptive) {
		c.add("dispatch.adaptive", true, "%s", alone)
	}
}
