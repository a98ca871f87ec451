package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// podState is what the admin API tells of a pod and a reload may not change.
type podState struct {
	ID, URL, Role, Node string
	Up, Draining        bool
	MaxConns            *int
	Blocks              int
}

// running is everything that a running configuration shows of itself.
type running struct {
	pods    map[string]podState
	blocks  int
	explain map[string]int // pod → depth of a known prompt
	pick    string
}

// look asks the admin API.
func (s *site) look(t *testing.T, body string) running {
	t.Helper()
	r := running{pods: map[string]podState{}, explain: map[string]int{}}
	get := func(a *testcaddy.Answer, to any) {
		t.Helper()
		if err := json.Unmarshal(a.Body, to); err != nil || a.Status != http.StatusOK {
			t.Fatalf("the admin API: %v, %v", err, a)
		}
	}
	var pods []podState
	get(s.AdminGet(t, "/calinix/pods"), &pods)
	for _, p := range pods {
		r.pods[p.ID] = p
	}
	var index struct{ Blocks int }
	get(s.AdminGet(t, "/calinix/index"), &index)
	r.blocks = index.Blocks
	var explained struct {
		Candidates []struct {
			Pod   string
			Depth int
		}
		Pick struct{ Pod string }
	}
	get(s.AdminPost(t, "/calinix/explain", body), &explained)
	for _, c := range explained.Candidates {
		r.explain[c.Pod] = c.Depth
	}
	r.pick = explained.Pick.Pod
	return r
}

// TestRefusedReload: a configuration that fails, wherever it does, leaves the
// one that runs as it was: pods, drained pods, marks, index, streams.
func TestRefusedReload(t *testing.T) {
	testcaddy.NoLeaks(t)
	set := fastSettings()
	set.DecodeTokensPerSecond = 200
	p := &plan{port: testcaddy.Port(t)}
	for _, id := range []string{"a", "b", "c", "d"} {
		_, url := newEngine(t, set)
		p.single = append(p.single, pod{id, url})
	}
	s := p.run(t)
	known := conversation{}
	known.add("user", prose("a prompt that stays known", 100))
	question := known.body()
	home := known.say(t, s.client(t, testcaddy.H2), nil).pod
	known.messages = known.messages[:1]
	drained := map[bool]string{true: "b", false: "a"}[home == "a"]
	if a := s.AdminPost(t, "/calinix/pods/"+drained+"/drain", ""); a.Status != http.StatusNoContent {
		t.Fatal(a)
	}
	s.WaitMetric(t, 4, "calinix_pod_up")
	s.WaitMetric(t, 0, "calinix_pod_inflight")
	before := s.look(t, question)
	if before.pick != home || before.explain[home] < 6 || !before.pods[drained].Draining || before.blocks == 0 {
		t.Fatalf("before: %+v", before)
	}

	// The next configuration: the pod that knows the prompt and the drained one
	// go, another comes, blocks are of another size. It is sound but for what
	// breaks it.
	next := *p
	next.calinix = "block_size 32\nweights {\nsingle {\ncache 0.1\nload 0.9\n}\n}\ncache_registry {\nmax_blocks 2\n}\nsessions {\nmax 1\n}"
	_, url := newEngine(t, set)
	next.single = []pod{{"e", url}}
	for _, pod := range p.single {
		if pod.id != home && pod.id != drained {
			next.single = append(next.single, pod)
		}
	}
	held, err := net.Listen("tcp", "127.0.0.1:0") // without SO_REUSEPORT: nobody else gets it
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	taken := held.Addr().(*net.TCPAddr).Port
	adapted := func(change func(c map[string]any)) string {
		config, _, err := testcaddy.Adapt(next.caddyfile())
		if err != nil {
			t.Fatal(err)
		}
		var c map[string]any
		if err := json.Unmarshal(config, &c); err != nil {
			t.Fatal(err)
		}
		change(c)
		config, err = json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		return string(config)
	}
	handler := func(c map[string]any) map[string]any {
		text, err := json.Marshal(c["apps"])
		if err != nil || strings.Count(string(text), `"handler":"calinix"`) != 1 {
			t.Fatalf("%v: %s", err, text)
		}
		return find(c, "calinix")
	}
	other := next
	other.more = fmt.Sprintf("https://:%d {\ntls %s\ncalinix {\nblock_size 8\nsingle {\npod e %s\n}\n}\n}\n", testcaddy.Port(t), certFiles(), url)
	conflict := next
	conflict.more = fmt.Sprintf("http://:%d {\nbind 127.0.0.1\nrespond hi\n}\n", taken)
	unreadable := next
	unreadable.more = fmt.Sprintf("https://:%d {\ntls /no/such.crt /no/such.key\n}\n", testcaddy.Port(t))
	for _, c := range []struct {
		name  string
		text  string
		json  bool
		want  []string
		times int
	}{
		{"unknown strategy", strings.Replace(next.caddyfile(), "strategy cache_aware", "strategy by_guess", 1), false, []string{"by_guess"}, 1},
		{"unknown key", adapted(func(c map[string]any) { handler(c)["blok_size"] = 8 }), true, []string{"blok_size"}, 1},
		{"a value out of range", adapted(func(c map[string]any) { handler(c)["block_size"] = 0 }), true, []string{"block_size 0"}, 1},
		{"two places disagree", other.caddyfile(), false, []string{"another place of balancer"}, 1},
		{"a certificate that cannot be read", unreadable.caddyfile(), false, []string{"/no/such.crt"}, 4},
		// Apps start in any order, so ours has been started before or not.
		{"a port that is taken", conflict.caddyfile(), false, []string{strconv.Itoa(taken), "address already in use"}, 12},
	} {
		t.Run(c.name, func(t *testing.T) {
			cl := s.client(t, testcaddy.H2)
			stream := cl.Stream(t, "/v1/chat/completions", streamBody(prose(c.name, 20), 60))
			opts := []testcaddy.Option(nil)
			if c.json {
				opts = append(opts, testcaddy.Adapter("json"))
			}
			for range c.times {
				err := s.TryReload(c.text, opts...)
				if err == nil {
					t.Fatal("the configuration was loaded")
				}
				for _, want := range c.want {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("the error does not tell of %q: %v", want, err)
					}
				}
			}
			if got, err := hear(stream.Unread()); err != nil || got.tokens != 60 || len(strings.Fields(got.text)) != 60 {
				t.Errorf("the stream that ran: %v, %+v", err, got)
			}
			s.WaitMetric(t, 0, "calinix_pod_inflight")
			after := s.look(t, question)
			after.blocks = before.blocks // the stream added its own
			for id, state := range after.pods {
				state.Blocks = before.pods[id].Blocks
				after.pods[id] = state
			}
			if fmt.Sprint(after) != fmt.Sprint(before) {
				t.Errorf("before %+v\nafter  %+v", before, after)
			}
			if seen := known.say(t, s.client(t, testcaddy.H2), nil); seen.pod != home || seen.depth < before.explain[home] {
				t.Errorf("the known prompt went to %s with depth %d, want %s and %d", seen.pod, seen.depth, home, before.explain[home])
			}
			s.WaitMetric(t, 0, "calinix_pod_inflight")
			known.messages = known.messages[:1]
		})
	}

	t.Run("then a sound one", func(t *testing.T) {
		held.Close()
		s.Reload(t, conflict.caddyfile())
		after := s.look(t, question)
		if len(after.pods) != 3 || after.pods["e"].URL != url || after.explain["e"] != 0 {
			t.Errorf("%+v", after)
		}
		// A connection may still be accepted by the server of the configuration
		// before, which Caddy ends on a goroutine of its own.
		eventually(t, "an answer of the new configuration", func() bool {
			a := s.client(t, testcaddy.H1).Post(t, "/v1/chat/completions", question)
			return a.Status == http.StatusOK && header(a.Header, "Cache-Namespace") == "openai:m:whitespace-v1:block-32"
		})
	})
}

// find returns the first JSON object whose member "handler" is name.
func find(v any, name string) map[string]any {
	switch v := v.(type) {
	case map[string]any:
		if v["handler"] == name {
			return v
		}
		for _, member := range v {
			if o := find(member, name); o != nil {
				return o
			}
		}
	case []any:
		for _, element := range v {
			if o := find(element, name); o != nil {
				return o
			}
		}
	}
	return nil
}

func certFiles() string {
	cert, key := testcaddy.CertFiles()
	return cert + " " + key
}
