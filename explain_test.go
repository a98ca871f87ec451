package calinix_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// explained is the answer of POST /calinix/explain.
type explained struct {
	Mode       string         `json:"mode"`
	Unread     string         `json:"unread"`
	Chain      []string       `json:"chain"`
	Candidates []explainedPod `json:"candidates"`
	Pick       struct{ Pod, Prefill, Decode string }
}

type explainedPod struct {
	Pod      string  `json:"pod"`
	Role     string  `json:"role"`
	Depth    int     `json:"depth"`
	Cache    float64 `json:"cache"`
	Load     float64 `json:"load"`
	Sticky   float64 `json:"sticky"`
	Locality float64 `json:"locality"`
	Score    float64 `json:"score"`
	Filtered string  `json:"filtered"`
}

// of is the candidate of that id; with a role that too must fit.
func (e explained) of(t testing.TB, id string, role ...string) explainedPod {
	t.Helper()
	for _, c := range e.Candidates {
		if c.Pod == id && (len(role) == 0 || c.Role == role[0]) {
			return c
		}
	}
	t.Fatalf("no candidate %q %v: %+v", id, role, e)
	return explainedPod{}
}

// explain asks how a request would go.
func (s *site) explain(t testing.TB, query, body string, headers ...string) (e explained) {
	t.Helper()
	adminJSON(t, s.AdminPost(t, "/calinix/explain"+query, body, headers...), &e)
	return e
}

// TestExplainShape: the members by name, and their kinds.
func TestExplainShape(t *testing.T) {
	s := serve(t, "block_size 4\n"+single(pods(t, "a", "b"))+dispatch(pods(t, "p"), pods(t, "d")), testcaddy.Plain())
	for mode, picks := range map[string][]string{"single": {"pod"}, "dispatch": {"decode", "prefill"}} {
		a := s.AdminPost(t, "/calinix/explain", chat(words("w", 20)), "x-calinix-mode", mode)
		all := a.JSON(t)
		if got := slices.Sorted(maps.Keys(all)); !slices.Equal(got, []string{"candidates", "chain", "mode", "pick"}) {
			t.Errorf("%s: members %q", mode, got)
		}
		chain, _ := all["chain"].([]any)
		if len(chain) < 5 {
			t.Errorf("%s: %d blocks of 20 words, 4 a block", mode, len(chain))
		}
		for _, h := range chain {
			if text, ok := h.(string); !ok || !regexp.MustCompile(`^[0-9a-f]{16}$`).MatchString(text) {
				t.Errorf("%s: block %v", mode, h)
			}
		}
		candidates, _ := all["candidates"].([]any)
		if len(candidates) != 2 {
			t.Fatalf("%s: candidates %v", mode, all["candidates"])
		}
		for _, c := range candidates {
			got := c.(map[string]any)
			if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, []string{"cache", "depth", "filtered", "load", "locality", "pod", "role", "score", "sticky"}) {
				t.Errorf("%s: members of a candidate %q", mode, names)
			}
			for name, v := range got {
				_, number := v.(json.Number)
				if text := name == "pod" || name == "role" || name == "filtered"; number == text {
					t.Errorf("%s: %s is %v", mode, name, v)
				}
			}
		}
		pick, _ := all["pick"].(map[string]any)
		if got := slices.Sorted(maps.Keys(pick)); !slices.Equal(got, picks) {
			t.Errorf("%s: pick has %q, want %q", mode, got, picks)
		}
	}
}

// TestExplainFactors: what the four factors are, and why a pod is left out.
func TestExplainFactors(t *testing.T) {
	ps := pods(t, "warm", "full", "down", "draining", "cold")
	s := serve(t, fmt.Sprintf(`block_size 4
		single {
			pod warm %s {
				max_conns 4
			}
			pod full %s {
				max_conns 1
			}
			pod down %s {
				healthy off
			}
			pod draining %s {
				draining
			}
			pod cold %s {
				max_conns 2
			}
		}
		health {
			healthy_threshold 1000000
		}`, ps[0].URL, ps[1].URL, ps[2].URL, ps[3].URL, ps[4].URL), testcaddy.Plain())
	cl := s.Client(t, testcaddy.H1)
	for _, id := range []string{"warm", "cold"} { // fill full
		drain(t, s.Caddy, id, "drain")
	}
	hold := make(chan struct{})
	ps.Pod("full").Set(fakepod.Reply{Hold: hold})
	ps.Pod("warm").Set(fakepod.Reply{Hold: hold})
	done := make(chan *testcaddy.Answer, 2)
	go func() { done <- cl.Post(t, chatPath, chat("something else")) }()
	ps.Pod("full").WaitRequests(t, 1)
	drain(t, s.Caddy, "warm", "undrain")
	prompt := words("shared", 40)
	go func() { done <- cl.Post(t, chatPath, chat(prompt), "X-Session-ID", "one") }()
	ps.Pod("warm").WaitRequests(t, 1)
	drain(t, s.Caddy, "cold", "undrain")

	e := s.explain(t, "", chat(prompt+words("more", 40)), "X-Session-ID", "one")
	for id, want := range map[string]string{"warm": "", "full": "at maxConns", "down": "down", "draining": "draining", "cold": ""} {
		if c := e.of(t, id); c.Filtered != want || c.Role != "single" || c.Locality != 0 {
			t.Errorf("%s is filtered for %q, want %q: %+v", id, c.Filtered, want, c)
		}
	}
	warm, cold, full := e.of(t, "warm"), e.of(t, "cold"), e.of(t, "full")
	if share := 100 * float64(warm.Depth) / float64(len(e.Chain)); warm.Depth < 9 || warm.Cache != share {
		t.Errorf("warm holds %d of %d blocks: cache %v, want %v", warm.Depth, len(e.Chain), warm.Cache, share)
	}
	if warm.Load != 75 || cold.Load != 100 || full.Load != 0 {
		t.Errorf("loads %v, %v, %v; want 75 (1 of 4), 100, 0 (1 of 1)", warm.Load, cold.Load, full.Load)
	}
	if warm.Sticky != 100 || cold.Sticky != 0 || cold.Depth != 0 || cold.Cache != 0 {
		t.Errorf("warm %+v, cold %+v", warm, cold)
	}
	for _, c := range e.Candidates {
		if want := 0.6*c.Cache + 0.3*c.Load + 0.1*c.Sticky; c.Score < want-1e-9 || c.Score > want+1e-9 {
			t.Errorf("score %v, want %v: %+v", c.Score, want, c)
		}
	}
	if e.Mode != "single" || e.Pick.Pod != "warm" || e.Pick.Prefill+e.Pick.Decode != "" {
		t.Errorf("%+v", e)
	}
	close(hold)
	for range 2 {
		if a := <-done; a.Status != 200 {
			t.Error(a)
		}
	}
}

// TestExplainPath: ?path= says which API the body is of; the chain is that of
// the prompt and grows with it.
func TestExplainPath(t *testing.T) {
	s := serve(t, "block_size 4\n"+single(pods(t, "a")), testcaddy.Plain())
	prompt := words("w", 30)
	completion := fmt.Sprintf(`{"model":"m","prompt":%q}`, prompt)
	asChat := s.explain(t, "", chat(prompt))
	if again := s.explain(t, "?path=/v1/chat/completions", chat(prompt)); len(asChat.Chain) < 8 || !slices.Equal(again.Chain, asChat.Chain) {
		t.Errorf("the default path: %d blocks, named: %d", len(asChat.Chain), len(again.Chain))
	}
	if e := s.explain(t, "?path=/v1/completions", completion); len(e.Chain) != 8 {
		t.Errorf("30 words make %d blocks, 4 a block", len(e.Chain))
	}
	if e := s.explain(t, "", completion); len(e.Chain) != 0 || e.Pick.Pod != "a" {
		t.Errorf("a completion taken for a chat has a chain or no pick: %+v", e)
	}
	longer := s.explain(t, "", chat(prompt+words("x", 30)))
	if n := len(asChat.Chain) - 1; !slices.Equal(longer.Chain[:n], asChat.Chain[:n]) || len(longer.Chain) <= len(asChat.Chain) {
		t.Errorf("the chain of the longer prompt does not begin with that of the shorter:\n%q\n%q", longer.Chain, asChat.Chain)
	}
	if asChat.Unread != "" {
		t.Errorf("a prompt that was read is said not to be: %q", asChat.Unread)
	}
	for body, why := range map[string]string{
		"": "no JSON object", "not JSON": "no JSON object", "[]": "no JSON object", "{}": "no prompt of the shape",
	} {
		if e := s.explain(t, "", body); len(e.Chain) != 0 || e.Chain == nil || e.Pick.Pod != "a" || !strings.Contains(e.Unread, why) {
			t.Errorf("body %q: %+v", body, e)
		}
	}
	if e := s.explain(t, "?path=/v1/audio", chat("hi")); !strings.Contains(e.Unread, "/v1/audio have no prompt") {
		t.Errorf("another path: %+v", e)
	}
	if e := s.explain(t, "", chat("hi"), "Content-Encoding", "zip"); !strings.Contains(e.Unread, "cannot be decoded") {
		t.Errorf("an unknown coding: %+v", e)
	}
}

// TestExplainIsWhatHappens: for each strategy and mode, the pick, the depth and
// the mode that are told are those of the request that follows.
func TestExplainIsWhatHappens(t *testing.T) {
	ps, pre, dec := pods(t, "a", "b", "c"), pods(t, "p", "q"), pods(t, "d", "e")
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, strategy := range []string{"cache_aware", "least_loaded", "round_robin", "random", "expected_ttft", "session_affinity", "prefix", "power_of_two"} {
		t.Run(strategy, func(t *testing.T) {
			// Popularity decays between question and request: eta 0 leaves it out.
			s := serve(t, "strategy "+strategy+"\nexpected_ttft {\neta 0\n}\nblock_size 4\n"+single(ps)+"dispatch {\nconnector plain\nprefill {\n"+
				podList(pre, "capabilities decode single", "max_conns 3")+"}\ndecode {\n"+podList(dec)+"}\n}\n", testcaddy.Plain())
			cl := s.Client(t, testcaddy.H1)
			for i := range 30 {
				mode := []string{"single", "dispatch"}[rnd.IntN(2)]
				prompt := words(fmt.Sprintf("s%d-", rnd.IntN(3)), 20) + words(fmt.Sprintf("t%d-", rnd.IntN(4)), rnd.IntN(30))
				path, body := chatPath, chat(prompt, `"max_tokens":5`)
				switch rnd.IntN(8) {
				case 0:
					path, body = "/v1/completions", fmt.Sprintf(`{"model":"m","prompt":%q}`, prompt)
				case 1:
					path, body = "/v1/embeddings", fmt.Sprintf(`{"model":"m","input":%q}`, prompt)
				case 2:
					body = "no JSON"
				}
				headers := []string{"x-calinix-mode", mode, "X-Session-ID", fmt.Sprint(rnd.IntN(5))}
				e := s.explain(t, "?path="+path, body, headers...)
				a := cl.Post(t, path, body, headers...)
				h := a.Header
				got := []string{h.Get("X-Calinix-Target-Pod-Id"), h.Get("X-Calinix-Prefill-Pod-Id"), h.Get("X-Calinix-Decode-Pod-Id"), h.Get("X-Calinix-Mode")}
				if want := []string{e.Pick.Pod, e.Pick.Prefill, e.Pick.Decode, e.Mode}; a.Status != 200 || !slices.Equal(got, want) {
					t.Fatalf("request %d: happened %q, explained %q: %+v, %v", i, got, want, e, a)
				}
				first := e.Pick.Pod + e.Pick.Prefill
				if first == "" {
					first = e.Pick.Decode
				}
				if depth := strconv.Itoa(e.of(t, first).Depth); h.Get("X-Calinix-Cache-Prefix-Depth") != depth {
					t.Fatalf("request %d: depth %s, explained %s", i, h.Get("X-Calinix-Cache-Prefix-Depth"), depth)
				}
				s.waitNone(t)
			}
		})
	}
}

// TestExplainLearnsNothing: however often it is asked, the index, the sessions,
// the turn among equals, the metrics and the pods stay as they were.
func TestExplainLearnsNothing(t *testing.T) {
	ps := pods(t, "a", "b", "c")
	s := serve(t, "body_memory_bytes 5000\nmax_body_bytes 5000\nblock_size 4\n"+single(ps), testcaddy.Plain())
	before := s.Metrics(t)
	first := s.explain(t, "", chat(words("w", 40)), "X-Session-ID", "one")
	for range 20 {
		e := s.explain(t, "", chat(words("w", 40)), "X-Session-ID", "one")
		if fmt.Sprint(e) != fmt.Sprint(first) {
			t.Fatalf("the answer changes: %+v, then %+v", first, e)
		}
	}
	for _, c := range first.Candidates {
		if c.Depth != 0 || c.Sticky != 0 || c.Load != 100 {
			t.Errorf("%+v", c)
		}
	}
	turn := s.explain(t, "", "no prompt").Pick
	for range 4 {
		if again := s.explain(t, "", "no prompt").Pick; again != turn {
			t.Errorf("the turn moves on: %v, then %v", turn, again)
		}
	}
	after := s.Metrics(t)
	for key, v := range after {
		if strings.HasPrefix(key, "calinix_") && strings.Contains(key, s.balancer) && before[key] != v {
			t.Errorf("%s was %v, is %v", key, before[key], v)
		}
	}
	if n := ps.Total(); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}

// TestExplainWithoutPick: nothing is picked where nothing would be sent.
func TestExplainWithoutPick(t *testing.T) {
	for name, tc := range map[string]struct {
		section, drained, prefill, decode string
	}{
		"all there":                   {"", "", "p", "d"},
		"no prefill pod":              {"", "p", "", ""},
		"no decode pod":               {"", "d", "", ""},
		"neither":                     {"", "p d", "", ""},
		"no prefill pod, decode only": {"on_prefill_failure decode_only", "p", "", "d"},
		"no decode pod, decode only":  {"on_prefill_failure decode_only", "d", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			pre, dec := pods(t, "p"), pods(t, "d")
			s := serve(t, dispatch(pre, dec, "connector plain", tc.section), testcaddy.Plain())
			for id := range strings.FieldsSeq(tc.drained) {
				drain(t, s.Caddy, id, "drain")
			}
			e := s.explain(t, "", chat("hello", `"max_tokens":5`))
			if e.Mode != "disaggregated" || e.Pick.Pod != "" || e.Pick.Prefill != tc.prefill || e.Pick.Decode != tc.decode {
				t.Errorf("%+v, want %q and %q", e, tc.prefill, tc.decode)
			}
			for _, id := range []string{"p", "d"} {
				if filtered := e.of(t, id).Filtered == "draining"; filtered != strings.Contains(tc.drained, id) {
					t.Errorf("%+v", e.of(t, id))
				}
			}
			a := s.Client(t, testcaddy.H1).Post(t, chatPath, chat("hello", `"max_tokens":5`))
			if (a.Status == 200) != (tc.decode != "") || a.Header.Get("X-Calinix-Prefill-Pod-Id") != tc.prefill || a.Header.Get("X-Calinix-Decode-Pod-Id") != tc.decode {
				t.Errorf("what happened: %v", a)
			}
		})
	}
}

// TestExplainLocality: a decode pod is near to the prefill pod on the same node
// (100), in the same zone (50), or not at all; a node is the URL's host unless
// it is named.
func TestExplainLocality(t *testing.T) {
	p, d := pods(t, "p"), pods(t, "same", "zone", "far", "host", "both")
	s := serve(t, fmt.Sprintf(`dispatch {
			prefill {
				pod p %s {
					node rack1
					zone west
				}
			}
			decode {
				pod same %s {
					node rack1
				}
				pod zone %s {
					node rack2
					zone west
				}
				pod far %s {
					node rack3
					zone east
				}
				pod host %s
				pod both %s {
					node rack1
					zone west
				}
			}
		}`, p[0].URL, d[0].URL, d[1].URL, d[2].URL, d[3].URL, d[4].URL), testcaddy.Plain())
	e := s.explain(t, "", chat("hello"))
	for id, want := range map[string]float64{"same": 100, "zone": 50, "far": 0, "host": 0, "both": 100} {
		c := e.of(t, id, "decode")
		if c.Locality != want {
			t.Errorf("%s: locality %v, want %v", id, c.Locality, want)
		}
		if score := 0.55*100 + 0.25*want; c.Score < score-1e-9 || c.Score > score+1e-9 {
			t.Errorf("%s: score %v, want %v", id, c.Score, score)
		}
	}
	if e.of(t, "p", "prefill").Locality != 0 || e.Pick.Prefill != "p" || e.Pick.Decode != "same" && e.Pick.Decode != "both" {
		t.Errorf("%+v", e)
	}
	// without names all pods of one host are on one node
	s.reload(t, dispatch(p, d))
	for _, c := range s.explain(t, "", chat("hello")).Candidates {
		if want := map[string]float64{"prefill": 0, "decode": 100}[c.Role]; c.Locality != want {
			t.Errorf("without node and zone: %+v", c)
		}
	}
}
