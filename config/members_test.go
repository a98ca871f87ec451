package config

import (
	"slices"
	"testing"
)

// TestMembers checks which roles a pod has from its list and its capabilities.
func TestMembers(t *testing.T) {
	b := mustLoad(t, `
version: 1
upstreams:
  single: {pods: [{id: s, url: "http://s"}, {id: all, url: "http://all", capabilities: {single: true, prefill: true, decode: true}}]}
  dispatch:
    prefill: {pods: [{id: p, url: "http://p", capabilities: {prefill: true, decode: false}}]}
    decode: {pods: [{id: d, url: "http://d", capabilities: {prefill: true}}]}
`)
	want := []struct {
		id, path                string
		single, prefill, decode bool
	}{
		{"s", "single.pods[0]", true, false, false},
		{"all", "single.pods[1]", true, true, true},
		{"p", "dispatch.prefill.pods[0]", false, true, false},
		{"d", "dispatch.decode.pods[0]", false, true, true},
	}
	got := b.Members()
	if len(got) != len(want) {
		t.Fatalf("%d members, want %d", len(got), len(want))
	}
	for i, w := range want {
		if g := got[i]; g.ID != w.id || g.Path != w.path || g.Single != w.single || g.Prefill != w.prefill || g.Decode != w.decode {
			t.Errorf("got %+v, want %+v", g, w)
		}
	}
}

// TestModes checks which modes a configuration can serve.
func TestModes(t *testing.T) {
	pod := func(id string, c *Capabilities) []Pod {
		return []Pod{{ID: id, URL: "http://" + id, Capabilities: c}}
	}
	both := &Capabilities{Prefill: new(true), Decode: new(true)}
	for _, c := range []struct {
		name             string
		b                Balancer
		single, dispatch bool
		mode             string
	}{
		{"single", Balancer{Single: &Single{Pods: pod("a", nil)}}, true, false, "single"},
		{"legs", Balancer{Dispatch: &Dispatch{Prefill: &Pods{Pods: pod("p", nil)}, Decode: &Pods{Pods: pod("d", nil)}}}, false, true, "dispatch"},
		{"one pod for both legs", Balancer{Dispatch: &Dispatch{Prefill: &Pods{Pods: pod("p", both)}}}, false, true, "dispatch"},
		{"capabilities without a section", Balancer{Single: &Single{Pods: pod("a", both)}}, true, false, "single"},
		{"capabilities with a section", Balancer{Single: &Single{Pods: pod("a", both)}, Dispatch: &Dispatch{}}, true, true, "single"},
		{"an empty list", Balancer{Single: &Single{}, Dispatch: &Dispatch{Prefill: &Pods{Pods: pod("p", both)}}}, false, true, "dispatch"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := c.b.Validate(); err != nil {
				t.Fatal(err)
			}
			e := c.b.Defaults()
			if e.HasSingle() != c.single || e.HasDispatch() != c.dispatch || e.Mode != c.mode {
				t.Errorf("single %v, dispatch %v, mode %s; want %v, %v, %s", e.HasSingle(), e.HasDispatch(), e.Mode, c.single, c.dispatch, c.mode)
			}
		})
	}
}

// TestDefaultStrategy: who names no strategy gets expectedTTFT, but for a file.
func TestDefaultStrategy(t *testing.T) {
	b := Balancer{Weights: new(RoleWeights)}
	if got := b.Defaults().Strategy; got != "expectedTTFT" {
		t.Errorf("without a strategy it is %s", got)
	}
	if got := mustLoad(t, "version: 1\nupstreams: {single: {pods: [{id: a, url: 'http://a'}]}}").Strategy; got != "cacheAware" {
		t.Errorf("in a file without a strategy it is %s", got)
	}
	const want = "weights: without effect: strategy expectedTTFT weighs nothing, cacheAware does"
	if got := b.Warnings().Error(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	b.Strategy = "cache_aware"
	if w := b.Warnings(); len(w) != 0 {
		t.Errorf("with cache_aware: %v", w)
	}
}

// TestWarningsWithoutPrefill: keys that send requests to decode pods alone are remarked
// on with the connectors whose decode engines cannot serve them.
func TestWarningsWithoutPrefill(t *testing.T) {
	keys := []string{"dispatch.on_prefill_failure", "dispatch.min_uncached_tokens", "dispatch.adaptive"}
	for connector, want := range map[string][]string{"nixl": nil, "mooncake": nil, "sglang": keys, "p2pnccl": keys} {
		b := Balancer{Dispatch: &Dispatch{Connector: connector, OnPrefillFailure: "decode_only", MinUncachedTokens: new(100), Adaptive: new(true)}}
		var got []string
		for _, w := range b.Warnings() {
			got = append(got, w.Path)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: warned of %v, want %v", connector, got, want)
		}
		b.Dispatch.OnPrefillFailure, b.Dispatch.MinUncachedTokens, b.Dispatch.Adaptive = "fail", nil, nil
		if w := b.Warnings(); len(w) != 0 {
			t.Errorf("%s: warned of %v", connector, w)
		}
	}
}

// TestWarnings checks what is allowed but remarked on.
func TestWarnings(t *testing.T) {
	const pod = "\nupstreams: {single: {pods: [{id: a, url: 'http://a'}]}}"
	const ttl = "a block is forgotten so soon that most of the cache's use is lost: in a published trace of chats 95 % of the reuses of a block come later than 30 s after its last use; leave this key out, or give at least 10 minutes"
	for _, c := range []struct{ yaml, want string }{
		{"version: 1" + pod, ""},
		{"version: 1\ncacheRegistry: {staleTtlMs: 0}" + pod, ""},
		{"version: 1\ncacheRegistry: {staleTtlMs: 1}" + pod, "c.yaml:2: cacheRegistry.staleTtlMs 1: " + ttl},
		{"version: 1\ncacheRegistry: {staleTtlMs: 599999}" + pod, "c.yaml:2: cacheRegistry.staleTtlMs 599999: " + ttl},
		{"version: 1\ncacheRegistry: {staleTtlMs: 600000}" + pod, ""},
		{"version: 1\ncacheRegistry: {shardsCount: 64}" + pod, "c.yaml:2: cacheRegistry.shardsCount 64: without effect: the index always has 256 shards"},
		{"version: 1\ngateway: {maxBodyBytes: 100, bodyMemoryBytes: 99}" + pod, "c.yaml:2: gateway.bodyMemoryBytes 99: a body of the largest size allowed, 100, can never be read"},
		{"version: 1\ngateway: {bodyMemoryBytes: 1000}" + pod, "c.yaml:2: gateway.bodyMemoryBytes 1000: a body of the largest size allowed, 67108864, can never be read"},
		{"version: 1\ngateway: {maxBodyBytes: 1073741825}" + pod, "c.yaml:2: gateway.maxBodyBytes 1073741825: more than all bodies together may take, 1073741824: so large a body can never be read"},
		{"version: 1\ngateway: {weights: {single: {cache: 1}}}" + pod, ""},
		{"version: 1\ngateway: {strategy: random, weights: {single: {cache: 1}}}" + pod, "c.yaml:2: gateway.weights: without effect: strategy random weighs nothing, cacheAware does"},
		{
			"version: 1\nupstreams:\n  single: {pods: [{id: a, url: 'http://a', capabilities: {single: true, prefill: true, decode: false}}]}",
			`c.yaml:3: upstreams.single.pods[0] ("a"): capabilities.prefill true: without effect: there is no section dispatch`,
		},
		{
			"version: 1\nupstreams:\n  dispatch:\n    prefill: {pods: [{id: b, url: 'http://b', capabilities: {decode: true}}]}\n    decode: {pods: [{id: c, url: 'http://c', capabilities: {single: true}}]}",
			`c.yaml:5: upstreams.dispatch.decode.pods[0] ("c"): capabilities.single true: without effect: there is no section single`,
		},
		{
			"version: 1\nupstreams:\n  single: {pods: [{id: a, url: 'http://a:80'}]}\n  dispatch:\n    prefill: {pods: [{id: b, url: 'http://A/'}]}\n    decode: {pods: [{id: c, url: 'http://c'}]}",
			`c.yaml:5: upstreams.dispatch.prefill.pods[0] ("b"): url "http://A/": two pods at one address count their load and their cache apart; this is also the address of upstreams.single.pods[0] (line 3)`,
		},
	} {
		_, warnings, err := Load("c.yaml", []byte(c.yaml))
		if err != nil {
			t.Fatal(err)
		}
		if warnings.Error() != c.want {
			t.Errorf("got  %s\nwant %s", warnings, c.want)
		}
	}
}
