package calinix

import (
	"net/http"
	"slices"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"
)

// TestRoutingHeadersByTheirBeginning: what the first look at a name leaves out is
// no routing header, however it is spelled.
func TestRoutingHeadersByTheirBeginning(t *testing.T) {
	names := append([]string{headerMode, headerTarget, ownHeaderPrefix, "X-Calinix", "X-Session-Id"}, foreignRoutingHeaders...)
	rapid.Check(t, func(t *rapid.T) {
		name := []byte(rapid.SampledFrom(names).Draw(t, "name"))
		for i := range name {
			if change := rapid.SampledFrom([]byte("\x00\x00\x00\x00_.-xX ")).Draw(t, "byte"); change != 0 {
				name[i] = change
			} else if rapid.Bool().Draw(t, "case") {
				name[i] ^= 0x20 & -(name[i] >> 6) // letters alone
			}
		}
		name = name[:rapid.IntRange(0, len(name)).Draw(t, "length")]
		if isRoutingHeader(string(name)) && !beginsLikeRouting(string(name)) {
			t.Errorf("%q is left out", name)
		}
	})
}

// TestHeaderSetsStandAlone: whoever rewrites a value of one header, in place or by
// adding to it, changes no other, nor those of another header map.
func TestHeaderSetsStandAlone(t *testing.T) {
	rt := route{mode: modeSingle, requestID: "id", target: "pod", depth: 3, namespace: "ns", policy: "random"}
	a, b := http.Header{}, http.Header{}
	rt.set(a)
	rt.set(b)
	if len(a) != 7 {
		t.Fatalf("%d headers: %v", len(a), a)
	}
	want := b.Clone()
	for name := range a {
		a[name][0] = "rewritten"
		a.Add(name, "added")
	}
	for name := range b {
		if !slices.Equal(b[name], want[name]) {
			t.Errorf("%s: %q, want %q", name, b[name], want[name])
		}
		if !slices.Equal(a[name], []string{"rewritten", "added"}) {
			t.Errorf("%s: %q", name, a[name])
		}
	}
}

func TestNewRequestIDs(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		id := newRequestID()
		parsed, err := uuid.Parse(id)
		if err != nil || parsed.Version() != 4 || parsed.Variant() != uuid.RFC4122 || !usableRequestID(id) {
			t.Fatalf("%q: %v", id, err)
		}
		if seen[id] {
			t.Fatalf("%q twice", id)
		}
		seen[id] = true
	}
}

// TestNamespacesAreRemembered: a remembered namespace is that of the model, also of
// one that shares its place with others.
func TestNamespacesAreRemembered(t *testing.T) {
	var n namespaces
	for range 2 {
		for i := range 200 {
			model := []byte("model/" + string(rune('a'+i)))
			for range 2 {
				if got, want := n.of(model, 16), cacheNamespace(model, 16); got != want {
					t.Fatalf("%q, want %q", got, want)
				}
			}
		}
	}
	if n.of(nil, 16) != cacheNamespace(nil, 16) {
		t.Error("no model")
	}
	model := []byte("acme")
	_ = n.of(model, 16)
	if a := testing.AllocsPerRun(100, func() { _ = n.of(model, 16) }); a != 0 {
		t.Errorf("%v allocations", a)
	}
}
