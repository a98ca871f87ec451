package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
)

const discovering = `version: 1
upstreams:
  single:
    pods:
      - {id: a, url: "http://a:1"}
    discover:
      - {source: dns, name: engines.local, port: 8000, minTtl: 2s}
  dispatch:
    prefill: {discover: [{source: file, path: prefill.yaml}]}
    decode: {discover: [{source: file, path: decode.yaml}]}
`

func TestSources(t *testing.T) {
	b := mustLoad(t, discovering)
	var got []string
	for _, s := range b.Sources() {
		got = append(got, s.Path+" "+s.Name+" "+string(s.Raw))
	}
	want := `single dns {"min_ttl":"2s","name":"engines.local","port":8000}
dispatch.prefill file {"path":"prefill.yaml"}
dispatch.decode file {"path":"decode.yaml"}`
	if strings.Join(got, "\n") != want {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), want)
	}
	if !b.HasSingle() || !b.HasDispatch() {
		t.Error("a list with a source may have pods")
	}
}

// The key of a source does not depend on how its JSON is written, but on the list.
func TestSourceKeys(t *testing.T) {
	key := func(path, raw string) string {
		s, err := parseSource(path, json.RawMessage(raw))
		if err != nil {
			t.Fatal(err)
		}
		return s.Key
	}
	if key("single", `{"source":"dns","port":1}`) != key("single", `{ "port": 1, "source": "dns" }`) {
		t.Error("the order of the keys matters")
	}
	if key("single", `{"source":"dns"}`) == key("dispatch.decode", `{"source":"dns"}`) {
		t.Error("sources of two lists have one key")
	}
}

// keyOfSource returns the key of the only source of the list at path.
func keyOfSource(t *testing.T, b *Balancer, path string) string {
	t.Helper()
	for _, s := range b.Sources() {
		if s.Path == path {
			return s.Key
		}
	}
	t.Fatalf("no source for %s", path)
	return ""
}

func TestFoundPodsJoinTheListed(t *testing.T) {
	b := mustLoad(t, discovering)
	single, prefill, decode := keyOfSource(t, b, "single"), keyOfSource(t, b, "dispatch.prefill"), keyOfSource(t, b, "dispatch.decode")
	e, problems := b.With(map[string][]Pod{
		single:  {{ID: "b", URL: "http://b:1"}, {ID: "a", URL: "http://other:1"}, {ID: "bad", URL: "ftp://x"}},
		prefill: {{ID: "both", URL: "http://both:1"}},
		decode:  {{ID: "both", URL: "http://both:1"}, {ID: "d", URL: "http://d:1"}},
		"gone":  {{ID: "z", URL: "http://z:1"}},
	})
	var got []string
	for _, m := range e.Members() {
		roles := ""
		for _, r := range []struct {
			has  bool
			name string
		}{{m.Single, "s"}, {m.Prefill, "p"}, {m.Decode, "d"}} {
			if r.has {
				roles += r.name
			}
		}
		got = append(got, m.ID+":"+roles)
	}
	if s := strings.Join(got, " "); s != "a:s b:s both:pd d:d" {
		t.Errorf("members: %s", s)
	}
	if len(problems) != 2 {
		t.Fatalf("want the pod with a's id and the one with a bad URL refused, got: %v", problems)
	}
	if len(b.Single.Pods) != 1 {
		t.Error("the configuration itself has changed")
	}
	if d := e.Members()[1].Draining; d == nil || *d {
		t.Error("a found pod has no defaults")
	}
}

// A pod that two sources find, of two Kubernetes Services for example, serves the
// models of both.
func TestFoundTwice(t *testing.T) {
	b := &Balancer{Single: &Single{
		Pods:     []Pod{{ID: "listed", URL: "http://listed:1", Models: []string{"own"}}},
		Discover: []json.RawMessage{json.RawMessage(`{"source":"one"}`), json.RawMessage(`{"source":"two"}`)},
	}}
	at := func(id string, models ...string) Pod { return Pod{ID: id, URL: "http://" + id + ":1", Models: models} }
	first, second := at("a", "llama", "qwen"), at("a", "adapter", "llama")
	first.Strategies = map[string]string{"llama": "prefix"}
	second.Strategies = map[string]string{"llama": "random", "adapter": "leastLoaded"}
	found := map[string][]Pod{
		`single {"source":"one"}`: {first, at("any", "llama"), at("listed", "llama")},
		`single {"source":"two"}`: {second, at("any")},
	}
	for range 2 { // what was found stays as it is
		e, problems := b.With(found)
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		got := map[string]string{}
		for _, m := range e.Members() {
			got[m.ID] = fmt.Sprint(m.Models, m.Strategies)
		}
		want := map[string]string{
			"listed": "[own] map[]", "any": "[] map[]",
			"a": "[adapter llama qwen] map[adapter:leastLoaded llama:prefix]",
		}
		if !maps.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
}

func TestOneFoundPodTooMany(t *testing.T) {
	b := mustLoad(t, strings.Replace(discovering, "version: 1", "version: 1\ncacheRegistry: {maxPods: 2}", 1))
	e, problems := b.With(map[string][]Pod{keyOfSource(t, b, "single"): {{ID: "b", URL: "http://b:1"}, {ID: "c", URL: "http://c:1"}}})
	if n := len(e.Members()); n != 2 || len(problems) != 1 {
		t.Errorf("%d pods, problems %v", n, problems)
	}
}

func TestBadSources(t *testing.T) {
	for raw, want := range map[string]string{
		`[]`:                `want an object with the member "source"`,
		`{}`:                `want the name of a source in "source"`,
		`{"source":"a.b"}`:  `want the name of a source in "source"`,
		`{"source": 3}`:     `want the name of a source in "source"`,
		`{"source":"dns"} `: "",
	} {
		b := &Balancer{Single: &Single{Discover: []json.RawMessage{json.RawMessage(raw)}}}
		err := b.Validate()
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", raw, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "single.discover[0]")):
			t.Errorf("%s: %v, want %s", raw, err, want)
		}
	}
}

func TestAgreeOnSources(t *testing.T) {
	a, b := mustLoad(t, discovering), mustLoad(t, strings.Replace(discovering, "8000", "8001", 1))
	if err := Agree(a, a); err != nil {
		t.Error(err)
	}
	if err := Agree(a, b); err == nil || !strings.Contains(err.Error(), "single.discover") {
		t.Errorf("got %v", err)
	}
}
