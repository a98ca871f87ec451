package calinix_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// bothModes is a site with one pod in single mode and a pair in dispatch mode.
func bothModes(t *testing.T, keys ...string) (s *site, one, prefill, decode *fakepod.Pod) {
	t.Helper()
	all := pods(t, "s1", "p1", "d1")
	s = serve(t, single(all[:1])+dispatch(all[1:2], all[2:])+strings.Join(keys, "\n"))
	return s, all[0], all[1], all[2]
}

// ours are the names of all routing headers, and of one that does not exist.
var ours = []string{
	"X-Calinix-Mode", "X-Calinix-Session-Key", "X-Calinix-Request-Id", "X-Calinix-Target-Pod-Id", "X-Calinix-Prefill-Pod-Id",
	"X-Calinix-Decode-Pod-Id", "X-Calinix-Cache-Hit", "X-Calinix-Cache-Prefix-Depth", "X-Calinix-Cache-Namespace",
	"X-Calinix-Route-Policy", "X-Calinix-Anything",
}

// routing picks the routing headers out of h, each of which may be there once.
func routing(t testing.TB, h http.Header) map[string]string {
	t.Helper()
	got := map[string]string{}
	for name, values := range h {
		if strings.HasPrefix(name, "X-Calinix-") {
			if len(values) != 1 {
				t.Errorf("%s is there %d times: %q", name, len(values), values)
			}
			got[name] = values[0]
		}
	}
	return got
}

// wantRouting fails the test unless h has exactly these routing headers; the
// request id may be any if want has "any".
func wantRouting(t testing.TB, where string, h http.Header, want map[string]string) {
	t.Helper()
	got := routing(t, h)
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s: %s: %q, want none", where, name, got[name])
		}
	}
	for name, v := range want {
		if got[name] != v && (v != "any" || got[name] == "") {
			t.Errorf("%s: %s: %q, want %q", where, name, got[name], v)
		}
	}
}

// TestHeaderMode: x-calinix-mode is honoured whatever its case, told to the pods
// and on the answer; anything else is 400 and reaches no pod.
func TestHeaderMode(t *testing.T) {
	s, one, prefill, decode := bothModes(t)
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		for sent, want := range map[string]string{
			"single": "single", "SINGLE": "single", "Single": "single", "sInGlE": "single",
			"disaggregated": "disaggregated", "DisAggregated": "disaggregated",
			"dispatch": "disaggregated", "DISPATCH": "disaggregated",
		} {
			a := cl.Post(t, chatPath, question, "x-calinix-mode", sent)
			if got := a.Header.Get("X-Calinix-Mode"); a.Status != 200 || got != want {
				t.Fatalf("mode %q: the answer says %q: %v", sent, got, a)
			}
			told := []*fakepod.Pod{prefill, decode}
			if want == "single" {
				told = []*fakepod.Pod{one}
			}
			for _, p := range told {
				q := p.Last(t)
				if got := q.Header.Values("X-Calinix-Mode"); !slices.Equal(got, []string{want}) {
					t.Errorf("mode %q: pod %s is told %q", sent, q.Pod, got)
				}
				if q.Header.Get("X-Calinix-Request-Id") != a.Header.Get("X-Calinix-Request-Id") {
					t.Errorf("mode %q: pod %s was not asked for this request", sent, q.Pod)
				}
			}
		}
		before := one.Count() + prefill.Count() + decode.Count()
		for _, sent := range []string{"", "auto", "singles", "single,dispatch", "disaggregate", "prefill", "0", "sin gle", "ſingle"} {
			a := cl.Post(t, chatPath, question, "x-calinix-mode", sent)
			if code := wantError(t, a, http.StatusBadRequest); code != "invalid_routing_mode" {
				t.Errorf("mode %q: code %q", sent, code)
			}
			wantRouting(t, "the answer", a.Header, map[string]string{"X-Calinix-Request-Id": "any"})
		}
		if n := one.Count() + prefill.Count() + decode.Count() - before; n != 0 {
			t.Errorf("%d requests of an unknown mode have reached a pod", n)
		}
	})
}

// TestHeaderModeDefault: requests that name no mode get that of the key mode,
// else single if it has pods.
func TestHeaderModeDefault(t *testing.T) {
	s, _, _, _ := bothModes(t)
	cl := s.Client(t, testcaddy.H2)
	if a := cl.Post(t, chatPath, question); a.Header.Get("X-Calinix-Mode") != "single" || a.Pod() != "s1" {
		t.Errorf("with pods for both: %v", a)
	}
	s.Stop()
	s, _, _, _ = bothModes(t, "mode dispatch")
	cl = s.Client(t, testcaddy.H2)
	if a := cl.Post(t, chatPath, question); a.Header.Get("X-Calinix-Mode") != "disaggregated" || a.Pod() != "d1" {
		t.Errorf("with mode dispatch: %v", a)
	}
}

// TestHeaderModeWithoutPods: a known mode for which there are no pods is
// ignored; an unknown one is refused all the same.
func TestHeaderModeWithoutPods(t *testing.T) {
	all := pods(t, "s1", "p1", "d1")
	for _, c := range []struct{ keys, sent, want, pod string }{
		{single(all[:1]), "dispatch", "single", "s1"},
		{single(all[:1]), "disaggregated", "single", "s1"},
		{dispatch(all[1:2], all[2:]), "single", "disaggregated", "d1"},
	} {
		s := serve(t, c.keys)
		cl := s.Client(t, testcaddy.H1)
		a := cl.Post(t, chatPath, question, "x-calinix-mode", c.sent)
		if got := a.Header.Get("X-Calinix-Mode"); a.Status != 200 || got != c.want || a.Pod() != c.pod {
			t.Errorf("%s without pods: %v", c.sent, a)
		}
		wantError(t, cl.Post(t, chatPath, question, "x-calinix-mode", "other"), http.StatusBadRequest)
		s.Stop()
	}
}

// TestHeaderSessionKey: x-calinix-session-key goes no further; the headers that
// other routers use for sessions pass.
func TestHeaderSessionKey(t *testing.T) {
	s, one, prefill, decode := bothModes(t)
	cl := s.Client(t, testcaddy.H1)
	for _, mode := range []string{"single", "dispatch"} {
		a := cl.Post(t, chatPath, question, "x-calinix-mode", mode,
			"x-calinix-session-key", "secret-key", "X-Session-ID", "sid", "X-Conversation-ID", "cid")
		legs := []fakepod.Request{one.Last(t)}
		if mode == "dispatch" {
			legs = []fakepod.Request{prefill.Last(t), decode.Last(t)}
		}
		for _, q := range legs {
			if q.Header.Get("X-Session-Id") != "sid" || q.Header.Get("X-Conversation-Id") != "cid" || strings.Contains(q.Head, "secret-key") {
				t.Errorf("pod %s gets %q", q.Pod, q.Head)
			}
		}
		if a.Status != 200 || strings.Contains(fmt.Sprint(a.Header), "secret-key") {
			t.Errorf("the key is on the answer: %v", a)
		}
	}
}

// TestHeaderRequestID: x-calinix-request-id is honoured if it has 1 to 128
// characters from ! to ~, else replaced; it is the same on the answer and on
// both legs.
func TestHeaderRequestID(t *testing.T) {
	s, one, prefill, decode := bothModes(t)
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		seen := map[string]bool{}
		for _, c := range []struct {
			sent     string
			honoured bool
		}{
			{"!", true},
			{"~", true},
			{"req-1", true},
			{strings.Repeat("~", 128), true},
			{`!"#$%&'()*+,-./:;<=>?@[\]^_{|}`, true},
			{strings.Repeat("x", 129), false},
			{"", false},
			{"two words", false},
			{"tab\tinside", false},
			{"idé", false},
			{"\x80", false},
		} {
			for _, mode := range []string{"single", "dispatch"} {
				a := cl.Post(t, chatPath, question, "x-calinix-mode", mode, "x-calinix-request-id", c.sent)
				got := a.Header.Get("X-Calinix-Request-Id")
				switch {
				case a.Status != 200:
					t.Fatalf("%q: %v", c.sent, a)
				case c.honoured && got != c.sent:
					t.Errorf("%q became %q", c.sent, got)
				case !c.honoured && (got == c.sent || got == "" || len(got) > 128 || seen[got]):
					t.Errorf("%q became %q, want a new id", c.sent, got)
				}
				seen[got] = true
				legs := []fakepod.Request{one.Last(t)}
				if mode == "dispatch" {
					legs = []fakepod.Request{prefill.Last(t), decode.Last(t)}
				}
				for _, q := range legs {
					if v := q.Header.Values("X-Calinix-Request-Id"); !slices.Equal(v, []string{got}) {
						t.Errorf("%q: pod %s is told %q, the client %q", c.sent, q.Pod, v, got)
					}
				}
			}
		}
	})
}

// TestHeaderRouting: every other routing header that a client sends is removed
// and ours take their place, to the pods and on the answer; what a pod answers
// under these names does not come through.
func TestHeaderRouting(t *testing.T) {
	s, one, prefill, decode := bothModes(t)
	forged := http.Header{}
	for _, name := range ours {
		forged.Set(name, "forged")
	}
	for _, p := range []*fakepod.Pod{one, prefill, decode} {
		p.Set(fakepod.Reply{Header: forged})
	}
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		for n, mode := range []string{"single", "dispatch"} {
			text := words(fmt.Sprintf("%v%d", cl.Protocol, n), 64) // with its marker and the empty rest: 5 blocks of 16
			body := chat(text)
			headers := []string{"x-calinix-mode", mode, "x-calinix-request-id", "r1"}
			for _, name := range ours {
				if name != "X-Calinix-Mode" && name != "X-Calinix-Request-Id" {
					headers = append(headers, name, "forged")
				}
			}
			for depth, hit := range []bool{false, true} {
				a := cl.Post(t, chatPath, body, headers...)
				want := map[string]string{
					"X-Calinix-Request-Id": "r1", "X-Calinix-Cache-Hit": strconv.FormatBool(hit),
					"X-Calinix-Cache-Prefix-Depth": strconv.Itoa(depth * 5),
					"X-Calinix-Cache-Namespace":    "openai:m:whitespace-v1:block-16", "X-Calinix-Route-Policy": "cacheAware",
				}
				legs := []fakepod.Request{one.Last(t)}
				if mode == "single" {
					want["X-Calinix-Mode"], want["X-Calinix-Target-Pod-Id"] = "single", "s1"
				} else {
					legs = []fakepod.Request{prefill.Last(t), decode.Last(t)}
					want["X-Calinix-Mode"], want["X-Calinix-Prefill-Pod-Id"], want["X-Calinix-Decode-Pod-Id"] = "disaggregated", "p1", "d1"
				}
				if a.Status != 200 {
					t.Fatal(a)
				}
				wantRouting(t, mode+", the answer", a.Header, want)
				for _, q := range legs {
					wantRouting(t, mode+", pod "+q.Pod, q.Header, want)
				}
			}
		}
	})
}

// TestHeaderConnectionCannotRemoveOurs: a client that lists our headers as
// hop-by-hop ones does not keep them from the pods.
func TestHeaderConnectionCannotRemoveOurs(t *testing.T) {
	s, one, _, _ := bothModes(t)
	a := s.Client(t, testcaddy.H1).Post(t, chatPath, question,
		"Connection", "keep-alive, x-calinix-target-pod-id, X-Calinix-Mode,x-hop", "X-Hop", "1")
	q := one.Last(t)
	if got := routing(t, q.Header); a.Status != 200 || got["X-Calinix-Target-Pod-Id"] != "s1" || got["X-Calinix-Mode"] != "single" {
		t.Errorf("the pod is told %v", got)
	}
	if q.Header.Get("X-Hop") != "" {
		t.Error("a hop-by-hop header reached the pod")
	}
}

// TestHeaderResponseHeadersOff: with responseHeaders off the pods are told and
// the client is not, on no kind of answer.
func TestHeaderResponseHeadersOff(t *testing.T) {
	s, one, prefill, _ := bothModes(t, "response_headers off")
	cl := s.Client(t, testcaddy.H2)
	for _, mode := range []string{"single", "dispatch", "unknown"} {
		wantRouting(t, mode, cl.Post(t, chatPath, question, "x-calinix-mode", mode).Header, nil)
	}
	if got := routing(t, one.Last(t).Header); got["X-Calinix-Target-Pod-Id"] != "s1" {
		t.Errorf("the pod is told %v", got)
	}
	prefill.Set(fakepod.Reply{Status: 422})
	wantRouting(t, "a 4xx of the prefill pod", cl.Post(t, chatPath, question, "x-calinix-mode", "dispatch").Header, nil)
	one.Refuse()
	wantRouting(t, "our own error", cl.Post(t, chatPath, question).Header, nil)
}

// TestHeaderCacheNamespace: openai:MODEL:whitespace-v1:block-N, the model
// escaped and then cut at 128 bytes, never inside an escape.
func TestHeaderCacheNamespace(t *testing.T) {
	ps := pods(t, "a")
	s := serve(t, "block_size 7\n"+single(ps))
	cl := s.Client(t, testcaddy.H1)
	for _, c := range []struct{ model, want string }{
		{"m", "m"},
		{"AZaz09-_.~", "AZaz09-_.~"},
		{"meta-llama/Llama-3.1-8B", "meta-llama%2FLlama-3.1-8B"},
		{"a:b", "a%3Ab"},
		{"100%", "100%25"},
		{"a b+c", "a%20b%2Bc"},
		{"é", "%C3%A9"},
		{"x\r\nX-Evil: 1", "x%0D%0AX-Evil%3A%201"},
		{strings.Repeat("a", 128), strings.Repeat("a", 128)},
		{strings.Repeat("a", 129), strings.Repeat("a", 128)},
		{strings.Repeat("a", 125) + "/b", strings.Repeat("a", 125) + "%2F"},
		{strings.Repeat("a", 126) + "/b", strings.Repeat("a", 126)},
		{strings.Repeat("a", 127) + "/b", strings.Repeat("a", 127)},
		{strings.Repeat("/", 50), strings.Repeat("%2F", 42)},
	} {
		body := `{"model":` + strconv.QuoteToASCII(c.model) + `,"messages":[{"role":"user","content":"x"}]}`
		want := "openai:" + c.want + ":whitespace-v1:block-7"
		a := cl.Post(t, chatPath, body)
		if got := a.Header.Get("X-Calinix-Cache-Namespace"); a.Status != 200 || got != want {
			t.Errorf("model %q: namespace %q, want %q", c.model, got, want)
		}
		if got := ps[0].Last(t).Header.Get("X-Calinix-Cache-Namespace"); got != want {
			t.Errorf("model %q: the pod is told %q, want %q", c.model, got, want)
		}
	}
}

// TestHeaderRoutePolicy: the strategy that decided, spelled as in YAML.
func TestHeaderRoutePolicy(t *testing.T) {
	all := pods(t, "a", "p1", "d1")
	for spelled, want := range map[string]string{
		"cache_aware": "cacheAware", "least_loaded": "leastLoaded", "round_robin": "roundRobin", "random": "random", "expected_ttft": "expectedTTFT",
		"session_affinity": "sessionAffinity", "power_of_two": "powerOfTwo",
		"prefix": "roundRobin", // there is no system message: see docs/routing.md
	} {
		s := serve(t, "strategy "+spelled+"\n"+single(all[:1])+dispatch(all[1:2], all[2:]))
		cl := s.Client(t, testcaddy.H1)
		for mode, p := range map[string]*fakepod.Pod{"single": all[0], "dispatch": all[1]} {
			a := cl.Post(t, chatPath, question, "x-calinix-mode", mode)
			if got, told := a.Header.Get("X-Calinix-Route-Policy"), p.Last(t).Header.Get("X-Calinix-Route-Policy"); got != want || told != want {
				t.Errorf("strategy %s, %s: the answer says %q, the pod is told %q, want %q", spelled, mode, got, told, want)
			}
		}
		s.Stop()
	}
}

// TestDefaultStrategy: a Caddyfile and JSON that name no strategy mean
// expectedTTFT, a config.yaml cacheAware.
func TestDefaultStrategy(t *testing.T) {
	all := pods(t, "a")
	file := filepath.Join(t.TempDir(), "config.yaml")
	yaml := "version: 1\ngateway: {name: of-a-file}\nupstreams: {single: {pods: [{id: a, url: '" + all[0].URL + "'}]}}\n"
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	for keys, want := range map[string]string{
		"name unsaid\n" + single(all):                     "expectedTTFT",
		"name said\nstrategy cache_aware\n" + single(all): "cacheAware",
		"config " + file:                                  "cacheAware",
	} {
		c := testcaddy.Serve(t, "calinix {\n"+keys+"\n}", testcaddy.Plain())
		if a := c.Client(t, testcaddy.H1).Post(t, chatPath, question); a.Header.Get("X-Calinix-Route-Policy") != want {
			t.Errorf("%s: %v, want %s", keys, a, want)
		}
		c.Stop()
	}
}
