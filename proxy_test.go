package calinix_test

import (
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// threeLegs is a site with a pod for each leg, and a function that sends a
// request in each mode and returns what the pods have got: of single, prefill
// and decode.
func threeLegs(t *testing.T, keys string) (*site, func(cl *testcaddy.Client, headers ...string) []fakepod.Request) {
	t.Helper()
	ps, pre, dec := pods(t, "s1"), pods(t, "p1"), pods(t, "d1")
	s := serve(t, keys+"\n"+single(ps)+dispatch(pre, dec))
	return s, func(cl *testcaddy.Client, headers ...string) []fakepod.Request {
		t.Helper()
		for _, mode := range []string{"single", "dispatch"} {
			if a := cl.Post(t, chatPath+"?q=1", chat("hi", `"max_tokens":3`), append([]string{"x-calinix-mode", mode}, headers...)...); a.Status != 200 {
				t.Fatal(a)
			}
		}
		return []fakepod.Request{ps[0].Last(t), pre[0].Last(t), dec[0].Last(t)}
	}
}

// TestProxyHeaderUp: header_up changes what every leg carries, as it does for
// reverse_proxy; probes are no requests.
func TestProxyHeaderUp(t *testing.T) {
	s, legs := threeLegs(t, `
		header_up X-Set "{http.calinix.mode} {http.reverse_proxy.upstream.hostport}"
		header_up +X-Added more
		header_up -X-Removed
		header_up X-Changed secret public
		header_up -X-Calinix-Request-Id
		health {
			interval 20ms
		}`)
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		for k, q := range legs(cl, "X-Added", "one", "X-Removed", "x", "X-Changed", "a secret word", "X-Other", "kept") {
			mode := []string{"single", "disaggregated", "disaggregated"}[k]
			host := strings.TrimPrefix(entry(t, s.Caddy, q.Pod).URL, "http://")
			if got := q.Header.Get("X-Set"); got != mode+" "+host {
				t.Errorf("%s: X-Set %q", q.Pod, got)
			}
			if got := q.Header.Values("X-Added"); !slices.Equal(got, []string{"one", "more"}) {
				t.Errorf("%s: X-Added %q", q.Pod, got)
			}
			if q.Header.Get("X-Changed") != "a public word" || q.Header.Get("X-Removed") != "" || q.Header.Get("X-Other") != "kept" || q.Header.Get("X-Calinix-Request-Id") != "" {
				t.Errorf("%s: %v", q.Pod, q.Header)
			}
		}
	})
	for _, e := range entries(t, s.Caddy, "") {
		if !e.Up {
			t.Errorf("%+v", e)
		}
	}
}

// TestProxyHost: pods behind http get the client's Host and pods behind https
// their own; header_up decides otherwise for both.
func TestProxyHost(t *testing.T) {
	plain := fakepod.New(t, fakepod.Options{Name: "plain"})
	secure := fakepod.New(t, fakepod.Options{Name: "secure", Cert: fakepod.NewCert(t)})
	for keys, want := range map[string][]string{
		"":                                     {"client.example.test", secure.Addr},
		"header_up Host engine.example.test\n": {"engine.example.test", "engine.example.test"},
		"header_up Host {http.reverse_proxy.upstream.hostport}\n": {plain.Addr, secure.Addr},
		"header_up host {http.request.host}\n":                    {"client.example.test", "client.example.test"},
		"header_up X-Forwarded-Host other.example.test\n":         {"client.example.test", secure.Addr},
	} {
		s := &site{balancer: "proxy-host"}
		s.Caddy = testcaddy.Serve(t, s.body(keys+"strategy round_robin\ntransport http {\ntls_insecure_skip_verify\n}\n"+single(fakepod.Pods{plain, secure})), testcaddy.Plain())
		cl := s.Client(t, testcaddy.H1)
		for range 2 {
			if a := cl.Post(t, chatPath, chat("hi"), "Host", "client.example.test"); a.Status != 200 {
				t.Fatal(a)
			}
		}
		for k, p := range []*fakepod.Pod{plain, secure} {
			if got := p.Last(t).Host; got != want[k] {
				t.Errorf("%q: Host at %s is %q, want %q", keys, p.Name, got, want[k])
			}
		}
		s.Stop()
	}
}

// TestProxyHeaderDown: header_down changes answers, also that of a prefill pod
// where it reaches the client, and what is ours.
func TestProxyHeaderDown(t *testing.T) {
	ps, pre, dec := pods(t, "s1"), pods(t, "p1"), pods(t, "d1")
	for _, all := range []fakepod.Pods{ps, pre, dec} {
		all.Set(fakepod.Reply{Header: http.Header{"X-Changed": {"a secret word"}, "X-Removed": {"x"}, "X-Other": {"kept"}}})
	}
	s := serve(t, `
		header_down X-Set "{http.calinix.mode} {http.reverse_proxy.status_code}"
		header_down -X-Removed
		header_down X-Changed secret public
		`+single(ps)+dispatch(pre, dec))
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		check := func(what, set string, a *testcaddy.Answer) {
			t.Helper()
			if got := a.Header.Values("X-Set"); !slices.Equal(got, []string{set}) {
				t.Errorf("%s: X-Set %q, want %q", what, got, set)
			}
			if a.Header.Get("X-Changed") != "a public word" || a.Header.Get("X-Removed") != "" || a.Header.Get("X-Other") != "kept" {
				t.Errorf("%s: %v", what, a)
			}
			if len(a.Header.Values("X-Calinix-Request-Id")) != 1 || len(a.Header.Values("Via")) != 1 {
				t.Errorf("%s: %v", what, a)
			}
		}
		check("single", "single 200", cl.Post(t, chatPath, chat("hi"), "x-calinix-mode", "single"))
		check("dispatch", "disaggregated 200", cl.Post(t, chatPath, chat("hi", `"max_tokens":3`), "x-calinix-mode", "dispatch"))
		refusal := fakepod.Reply{Status: 422, Header: http.Header{"X-Changed": {"a secret word"}, "X-Removed": {"x"}, "X-Other": {"kept"}}}
		pre[0].Next(refusal)
		check("refused by the prefill pod", "disaggregated 422", cl.Post(t, chatPath, chat("hi", `"max_tokens":3`), "x-calinix-mode", "dispatch"))
	})
}

// TestProxyRewrite: rewrite changes the path and query that pods get, on every
// leg; what the request is follows from the client's path.
func TestProxyRewrite(t *testing.T) {
	s, legs := threeLegs(t, "rewrite /engine{http.request.uri}&more=2")
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		for _, q := range legs(cl) {
			if q.Target != "/engine"+chatPath+"?q=1&more=2" || q.Method != http.MethodPost {
				t.Errorf("%s: %s %s", q.Pod, q.Method, q.Target)
			}
		}
	})
	if e := s.explain(t, "", chat("hi")); len(e.Chain) == 0 {
		t.Errorf("%+v", e)
	}
}

// TestProxyHandleResponse: answers that reach the client go through
// handle_response; a prefill pod's success does not.
func TestProxyHandleResponse(t *testing.T) {
	ps, pre, dec := pods(t, "s1"), pods(t, "p1"), pods(t, "d1")
	s := serve(t, `
		@teapot status 418
		handle_response @teapot {
			respond "{http.calinix.pod}{http.calinix.decode_pod} is no kettle" 200
		}
		@limit status 429
		replace_status @limit 503
		@fine {
			status 2xx
			header X-Wrap yes
		}
		handle_response @fine {
			header X-Wrapped {http.calinix.mode}
			copy_response
		}
		`+single(ps)+dispatch(pre, dec))
	legs := map[string]struct {
		mode string
		pod  *fakepod.Pod
	}{"single": {"single", ps[0]}, "decode": {"dispatch", dec[0]}}
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		for name, leg := range legs {
			post := func(reply fakepod.Reply, members ...string) *testcaddy.Answer {
				t.Helper()
				leg.pod.Next(reply)
				return cl.Post(t, chatPath, chat("hi", append(members, `"max_tokens":3`)...), "x-calinix-mode", leg.mode)
			}
			if a := post(fakepod.Reply{Status: 418}); a.Status != 200 || string(a.Body) != leg.pod.Name+" is no kettle" {
				t.Errorf("%s: a route: %v", name, a)
			}
			if a := post(fakepod.Reply{Status: 429}); a.Status != 503 || a.Pod() != leg.pod.Name {
				t.Errorf("%s: replace_status: %v", name, a)
			}
			a := post(fakepod.Reply{Header: http.Header{"X-Wrap": {"yes"}}}, `"stream":true`)
			if a.Status != 200 || a.Header.Get("X-Wrapped") == "" || !strings.HasSuffix(string(a.Body), "data: [DONE]\n\n") {
				t.Errorf("%s: copy_response: %v", name, a)
			}
			if a := post(fakepod.Reply{}); a.Status != 200 || a.Header.Get("X-Wrapped") != "" || a.Pod() != leg.pod.Name {
				t.Errorf("%s: no matcher: %v", name, a)
			}
		}
		// The prefill pod's own answer: a success goes to Calinix alone.
		pre[0].Next(fakepod.Reply{Header: http.Header{"X-Wrap": {"yes"}}})
		if a := cl.Post(t, chatPath, chat("hi", `"max_tokens":3`), "x-calinix-mode", "dispatch"); a.Status != 200 || a.Pod() != "d1" || a.Header.Get("X-Wrapped") != "" {
			t.Errorf("a prefill leg: %v", a)
		}
	})
	// the metrics know the pods' own statuses
	s.waitCount(t, 6, "calinix_requests_total", "code", "418")
	s.waitCount(t, 6, "calinix_requests_total", "code", "429")
}

// TestProxyFlushInterval: with flush_interval -1 every piece goes on at once,
// also of an answer that is no stream and tells its length.
func TestProxyFlushInterval(t *testing.T) {
	ps, pre, dec := pods(t, "s1"), pods(t, "p1"), pods(t, "d1")
	s := serve(t, "flush_interval -1\n"+single(ps)+dispatch(pre, dec))
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		for mode, p := range map[string]*fakepod.Pod{"single": ps[0], "dispatch": dec[0]} {
			p.Set(fakepod.Reply{
				Events: []string{"first piece", "second piece"}, Header: http.Header{"Content-Type": {"text/plain"}},
				Framing: fakepod.Length, Gap: time.Hour,
			})
			req := cl.Request(t.Context(), t, http.MethodPost, chatPath, chat("hi", `"max_tokens":3`), "x-calinix-mode", mode)
			resp, err := cl.HTTP.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			got := make([]byte, len("first piece"))
			if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != "first piece" || resp.ContentLength != 23 {
				t.Errorf("%s: %q, error %v, length %d", mode, got, err, resp.ContentLength)
			}
			resp.Body.Close()
			p.WaitClosed(t, p.Count())
		}
	})
}

// TestProxyTrustedProxies: X-Forwarded-For of a proxy that is trusted is kept.
func TestProxyTrustedProxies(t *testing.T) {
	for keys, want := range map[string]string{"": "127.0.0.1", "trusted_proxies 127.0.0.1/8 ::1/128": "192.0.2.7, 127.0.0.1"} {
		t.Run(want, func(t *testing.T) {
			s, legs := threeLegs(t, keys)
			for _, q := range legs(s.Client(t, testcaddy.H1), "X-Forwarded-For", "192.0.2.7") {
				got := strings.Replace(q.Header.Get("X-Forwarded-For"), "::1", "127.0.0.1", 1)
				if got != want {
					t.Errorf("%s: %q, want %q", q.Pod, got, want)
				}
			}
		})
	}
}

// TestProxyRefused: what Calinix does itself is refused by name, in JSON too.
func TestProxyRefused(t *testing.T) {
	for _, tc := range []struct{ proxy, want string }{
		{`{"upstreams":[{"dial":"127.0.0.1:1"}]}`, "reverse_proxy.upstreams: pods are listed under single and dispatch"},
		{`{"load_balancing":{"retries":3}}`, "reverse_proxy.load_balancing: use strategy"},
		{`{"health_checks":{"active":{"uri":"/"}}}`, "reverse_proxy.health_checks: use health"},
		{`{"request_buffers":4096}`, "reverse_proxy.request_buffers"},
		{`{"rewrite":{"method":"GET"}}`, "reverse_proxy.rewrite.method"},
		{`{"transport":{"protocol":"fastcgi"}}`, `transport "fastcgi"`},
		{`{"headers":{"request":{"sett":{}}}}`, "unknown field"},
	} {
		config := `{"apps":{"http":{"servers":{"s":{"listen":[":0"],"routes":[{"handle":[{"handler":"calinix","single":{"pods":[{"id":"a","url":"http://127.0.0.1:1"}]},"reverse_proxy":` + tc.proxy + `}]}]}}}}}`
		if err := testcaddy.LoadError(t, config, testcaddy.Adapter("json")); !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.proxy, err, tc.want)
		}
	}
}

// TestProxyHostInJSON: a header rule for Host counts in any case.
func TestProxyHostInJSON(t *testing.T) {
	secure := fakepod.New(t, fakepod.Options{Name: "secure", Cert: fakepod.NewCert(t)})
	port := testcaddy.Port(t)
	for _, name := range []string{"Host", "host"} {
		c := testcaddy.Load(t, `{"apps":{"http":{"servers":{"s":{"listen":[":`+strconv.Itoa(port)+`"],"routes":[{"handle":[{"handler":"calinix","single":{"pods":[{"id":"a","url":"`+secure.URL+`"}]},
			"reverse_proxy":{"transport":{"protocol":"http","tls":{"insecure_skip_verify":true}},"headers":{"request":{"set":{"`+name+`":["engine.example.test"]}}}}}]}]}}}}}`, testcaddy.Adapter("json"))
		if a := testcaddy.NewClient(t, testcaddy.H1, "http://127.0.0.1:"+strconv.Itoa(port)).Post(t, chatPath, chat("hi")); a.Status != 200 || secure.Last(t).Host != "engine.example.test" {
			t.Errorf("%s: %v, host %s", name, a, secure.Last(t).Host)
		}
		c.Stop()
	}
}
