package calinix_test

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/calinix/caddy-calinix/index"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
	"github.com/calinix/caddy-calinix/selection"
)

// TestSessionAffinity: every source of a session key leads to one pod, whatever
// the prompt, in both modes, and the metric says which source it was.
func TestSessionAffinity(t *testing.T) {
	ps, pre, dec := pods(t, "a", "b", "c", "d", "e"), pods(t, "p", "q"), pods(t, "x", "y")
	s := serve(t, "strategy session_affinity\n"+single(ps)+dispatch(pre, dec, "connector plain"))
	cl := s.Client(t, testcaddy.H2)
	spread := map[string]int{}
	for i, source := range sessionSources {
		for k := range 8 {
			home := ""
			for turn := range 3 {
				body, headers := named(words(fmt.Sprintf("%d-%d-%d", i, k, turn), 40), map[string]string{source: fmt.Sprintf("%s %d", source, k)})
				a := cl.Post(t, chatPath, body, headers...)
				if a.Status != 200 || a.Header.Get("X-Calinix-Route-Policy") != "sessionAffinity" {
					t.Fatal(a, a.Header)
				}
				if home != "" && a.Pod() != home {
					t.Errorf("%s %d: turn %d at %s, before at %s", source, k, turn, a.Pod(), home)
				}
				home = a.Pod()
			}
			spread[home]++
		}
		s.waitCount(t, 24, "calinix_routing_keys_total", "strategy", "sessionAffinity", "source", strings.ToLower(source))
	}
	if len(spread) != len(ps) {
		t.Errorf("56 sessions went to %v", spread)
	}
	s.waitCount(t, 7*24, "calinix_ring_picks_total", "result", "home")
	legs := map[string]string{}
	for range 4 {
		a := cl.Post(t, chatPath, chat("x", `"max_tokens":3`, `"user":"one of them"`), "x-calinix-mode", "dispatch")
		for _, leg := range []string{"Prefill", "Decode"} {
			pod := a.Header.Get("X-Calinix-" + leg + "-Pod-Id")
			if was, ok := legs[leg]; pod == "" || ok && pod != was {
				t.Errorf("%s leg at %q, before at %q", leg, pod, was)
			}
			legs[leg] = pod
		}
	}
	s.Log.AssertAbsent(t, "one of them")
}

// TestSessionOfAConversation: without a key a conversation is its own session. It
// stays at its pod while it grows, in every API, also when tools come in another
// order; others with the same system prompt go elsewhere.
func TestSessionOfAConversation(t *testing.T) {
	tools := func(turn int, form string) string {
		first, second := fmt.Sprintf(form, "f"), fmt.Sprintf(form, "g")
		if turn%2 == 1 {
			first, second = second, first
		}
		return `"tools":[` + first + "," + second + "]"
	}
	// said are the turns of conversation k up to a further one, in the words of an API.
	said := func(k, turn int, user, assistant string) string {
		turns := fmt.Sprintf(user, fmt.Sprint("question ", k))
		for i := range turn {
			turns += "," + fmt.Sprintf(assistant, fmt.Sprint("answer ", i)) + "," + fmt.Sprintf(user, fmt.Sprint("go on ", i))
		}
		return turns
	}
	const user, assistant = `{"role":"user","content":%q}`, `{"role":"assistant","content":%q}`
	for name, api := range map[string]struct {
		path string
		body func(k, turn int) string
	}{
		"chat": {chatPath, func(k, turn int) string {
			return `{"model":"m",` + tools(turn, `{"type":"function","function":{"name":%q}}`) +
				`,"messages":[{"role":"system","content":[{"type":"text","text":"You are"},{"type":"text","text":"kind."}]},` + said(k, turn, user, assistant) + `]}`
		}},
		"chat with a developer message": {chatPath, func(k, turn int) string {
			return `{"model":"m","messages":[{"role":"developer","content":"Be brief."},` + said(k, turn, user, assistant) + `]}`
		}},
		"messages": {"/v1/messages", func(k, turn int) string {
			return `{"model":"m","max_tokens":9,"system":[{"type":"text","text":"You are kind."}],` + tools(turn, `{"name":%q,"input_schema":{}}`) +
				`,"messages":[` + said(k, turn, user, `{"role":"assistant","content":[{"type":"text","text":%q}]}`) + `]}`
		}},
		"responses": {"/v1/responses", func(k, turn int) string {
			input := fmt.Sprintf(`"question %d"`, k)
			if turn > 0 {
				input = "[" + said(k, turn, user, `{"role":"assistant","content":[{"type":"output_text","text":%q}]}`) + "]"
			}
			return `{"model":"m","instructions":"You are kind.",` + tools(turn, `{"type":"function","name":%q}`) + `,"input":` + input + `}`
		}},
	} {
		t.Run(name, func(t *testing.T) {
			ps := pods(t, "a", "b", "c", "d", "e")
			s := serve(t, "strategy session_affinity\n"+single(ps))
			cl := s.Client(t, testcaddy.H1)
			spread, n := map[string]int{}, 0
			for k := range 20 {
				home := ""
				for turn := range 6 {
					s.waitNone(t)
					a := cl.Post(t, api.path, api.body(k, turn))
					if a.Status != 200 {
						t.Fatal(a)
					}
					if home != "" && a.Pod() != home {
						t.Errorf("conversation %d: turn %d at %s, before at %s", k, turn, a.Pod(), home)
					}
					home = a.Pod()
					n++
				}
				spread[home]++
			}
			if len(spread) < 4 {
				t.Errorf("20 conversations went to %v", spread)
			}
			s.waitCount(t, float64(n), "calinix_routing_keys_total", "source", "opening")
		})
	}
}

// TestPrefixStrategy: the member prefix, else the system message, leads to one
// pod; what has neither is spread.
func TestPrefixStrategy(t *testing.T) {
	ps := pods(t, "a", "b", "c", "d", "e")
	s := serve(t, "strategy prefix\n"+single(ps))
	cl := s.Client(t, testcaddy.H1)
	for name, body := range map[string]func(k, i int) string{
		"prefix": func(k, i int) string { return chat(words(fmt.Sprint(i), 20), fmt.Sprintf(`"prefix":"tenant %d"`, k)) },
		"system": func(k, i int) string {
			return fmt.Sprintf(`{"messages":[{"role":"developer","content":"team %d"},{"role":"user","content":"question %d"}]}`, k, i)
		},
	} {
		spread := map[string]int{}
		for k := range 12 {
			home := ""
			for i := range 4 {
				a := cl.Post(t, chatPath, body(k, i), "X-Session-ID", fmt.Sprint(i)) // plays no part
				if a.Status != 200 || home != "" && a.Pod() != home {
					t.Errorf("%s %d: %v, before at %s", name, k, a, home)
				}
				home = a.Pod()
			}
			spread[home]++
		}
		if len(spread) < 3 {
			t.Errorf("12 keys of %s went to %v", name, spread)
		}
		s.waitCount(t, 48, "calinix_routing_keys_total", "strategy", "prefix", "source", name)
	}
	got := order(t, 10, func(i int) *testcaddy.Answer {
		return cl.Post(t, chatPath, chat("the same prompt"), "X-Session-ID", "x")
	})
	for pod, n := range tally(got) {
		if n != 2 {
			t.Errorf("10 requests without a prefix: %d at %s", n, pod)
		}
	}
	s.waitCount(t, 10, "calinix_routing_fallbacks_total", "strategy", "prefix", "reason", "no_key")
	s.waitCount(t, 10, "calinix_routing_fallbacks_total", "strategy", "leastLoaded", "reason", "load_unknown")
}

// TestHotSession: one session of which many requests run at once spills over,
// within the bound, and so does everything else.
func TestHotSession(t *testing.T) {
	ps := pods(t, "a", "b", "c", "d", "e")
	s := serve(t, "strategy session_affinity\n"+single(ps))
	h := s.hold(t, ps)
	held := map[string]int{}
	for n := 1; n <= 40; n++ {
		key := "hot"
		if n%4 == 0 {
			key = fmt.Sprint(n)
		}
		held[h.send(t, ps, http.MethodPost, chatPath, question, "X-Session-ID", key)]++
		for pod, legs := range held {
			if most := math.Ceil(1.25 * float64(n) / float64(len(ps))); float64(legs) > most {
				t.Fatalf("%d of %d requests at %s, want at most %.0f", legs, n, pod, most)
			}
		}
	}
	if s.count(t, "calinix_ring_picks_total", "result", "passed") == 0 {
		t.Error("nothing was passed on")
	}
	h.release(t, ps)
}

// TestRingOverReload: when a pod comes, sessions move to it and nowhere else; the
// metrics say how many.
func TestRingOverReload(t *testing.T) {
	const sessions = 300
	ps := pods(t, "a", "b", "c", "d", "e", "f")
	s := serve(t, "strategy session_affinity\n"+single(ps[:5]))
	cl := s.Client(t, testcaddy.H2)
	where := func() []string {
		return order(t, sessions, func(i int) *testcaddy.Answer {
			return cl.Post(t, chatPath, question, "X-Session-ID", fmt.Sprintf("session %d", i))
		})
	}
	before := where()
	s.reload(t, "strategy session_affinity\n"+single(ps))
	moved := 0
	for i, pod := range where() {
		if pod != before[i] {
			moved++
			if pod != "f" {
				t.Errorf("session %d went from %s to %s", i, before[i], pod)
			}
		}
	}
	if moved == 0 || moved > sessions*13/60*2 {
		t.Errorf("%d of %d sessions moved to the sixth pod", moved, sessions)
	}
	s.waitCount(t, 1, "calinix_ring_changes_total", "virtual_nodes", "160")
	if share := s.count(t, "calinix_ring_moved_ratio_total"); math.Abs(share-1.0/6) > 0.05 {
		t.Errorf("%v of the keys have moved", share)
	}
	s.reload(t, "strategy session_affinity\nhashing {\nvirtual_nodes 200\n}\n"+single(ps))
	if len(where()) != sessions || s.count(t, "calinix_routing_fallbacks_total") != 0 {
		t.Error("another ring: some requests fell back")
	}
}

// TestHashingPolicy: the strategies also work as a policy of a stock
// reverse_proxy.
func TestHashingPolicy(t *testing.T) {
	ps := pods(t, "a", "b", "c", "d", "e")
	var places []selection.Place
	for i, p := range ps {
		places = append(places, selection.Place{Slot: uint8(i), ID: selection.IDHash(p.Addr)})
	}
	ring, all := selection.NewRing(places, 160), index.All(len(ps))
	home := func(key uint64) string { return ps[ring.Home(&all, key)].Name }
	for i, strategy := range []string{"session_affinity", "prefix", "power_of_two"} {
		c := testcaddy.Serve(t, stock(ps, "strategy "+strategy+"\n"+only(100+i)))
		cl := c.Client(t, testcaddy.H1)
		spread := map[string]int{}
		for k := range 20 {
			want := map[string]string{
				"session_affinity": home(xxhash.Sum64String(fmt.Sprintf("s%d", k))),
				"prefix":           home(xxhash.Sum64String(fmt.Sprintf("p%d", k))),
			}[strategy]
			// A policy learns of a request's end a moment after the client: until
			// then its pod is at the bound, and the key is passed on.
			for try := 0; ; try++ {
				a := cl.Post(t, chatPath, fmt.Sprintf(`{"session_id":"s%d","prefix":"p%d","messages":[{"role":"user","content":"turn %d"}]}`, k, k, try))
				if a.Status != 200 {
					t.Fatal(a)
				}
				spread[a.Pod()]++
				if want == "" || a.Pod() == want {
					break
				}
				if try == 100 {
					t.Fatalf("%s: key %d never comes to %s", strategy, k, want)
				}
			}
		}
		if len(spread) < 3 {
			t.Errorf("%s: %v", strategy, spread)
		}
		c.Stop()
	}
}
