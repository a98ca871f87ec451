package calinix_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// prefillFaults are the ways in which a prefill leg fails, with the reason under
// which it is counted and the status that the client gets if no pod is better.
var prefillFaults = []struct {
	name, reason string
	status       int
	fail         func(*fakepod.Pod)
}{
	{"500", "refused_5xx", 502, func(p *fakepod.Pod) { p.Set(fakepod.Reply{Status: 500}) }},
	{"503", "refused_5xx", 503, func(p *fakepod.Pod) { p.Set(fakepod.Reply{Status: 503}) }},
	{"refused", "unreachable", 502, func(p *fakepod.Pod) { p.Refuse() }},
	{"reset", "lost_waiting", 502, func(p *fakepod.Pod) { p.Set(fakepod.Reply{Cut: fakepod.Reset, Delay: 120 * time.Millisecond}) }},
	{"reset in the answer", "cut", 502, func(p *fakepod.Pod) { p.Set(fakepod.Reply{Cut: fakepod.Reset, At: fakepod.HalfBody}) }},
	{"silent", "timed_out", 504, func(p *fakepod.Pod) { p.Set(fakepod.Reply{Silent: true}) }},
	{"no JSON", "unusable", 502, func(p *fakepod.Pod) { p.Set(fakepod.Reply{Body: []byte("<html>")}) }},
	{"half JSON", "unusable", 502, func(p *fakepod.Pod) { p.Set(fakepod.Reply{Body: []byte(`{"kv_transfer_params":{"a":1}`)}) }},
	{"a stream", "unusable", 502, func(p *fakepod.Pod) { p.Set(fakepod.Reply{Stream: fakepod.Always, Gap: fakepod.NoGap}) }},
	{"a redirect", "unusable", 502, func(p *fakepod.Pod) {
		p.Set(fakepod.Reply{Status: 307, Header: http.Header{"Location": {"http://127.0.0.1:1/"}}})
	}},
	{"odd gzip", "unusable", 502, func(p *fakepod.Pod) {
		p.Set(fakepod.Reply{Body: []byte("{}"), Header: http.Header{"Content-Encoding": {"gzip"}}})
	}},
	{"unknown encoding", "unusable", 502, func(p *fakepod.Pod) {
		p.Set(fakepod.Reply{Body: []byte("{}"), Header: http.Header{"Content-Encoding": {"br"}}})
	}},
	{"a longer answer than there is", "unusable", 502, func(p *fakepod.Pod) {
		p.Set(fakepod.Reply{Body: []byte(`{"x":"` + strings.Repeat("y", 17<<20) + `"}`)})
	}},
}

// headerTimeout are keys that make a silent pod a timeout; for any other fault
// they are none, for on a busy machine a pod that is well may be late, too.
func headerTimeout(reason string) string {
	if reason != "timed_out" {
		return ""
	}
	return "transport http {\nresponse_header_timeout 500ms\n}\n"
}

// TestPrefillElsewhere: a prefill leg that fails by 5xx, connection or timeout
// is tried once at another prefill pod, whatever retries and budget say, which is
// counted as a retry; if that fails too the client gets an error and no decode pod
// is asked.
func TestPrefillElsewhere(t *testing.T) {
	for _, c := range prefillFaults {
		prefill, decode := pods(t, "p1", "p2", "p3"), pods(t, "d1")
		s := serve(t, "retries 0\nretry_budget 0\n"+headerTimeout(c.reason)+inOrder+dispatch(prefill, decode))
		cl := s.Client(t, testcaddy.H2)
		c.fail(prefill[0])
		a := cl.Post(t, chatPath, question)
		if a.Status != 200 || a.Pod() != "d1" || a.Header.Get("X-Calinix-Prefill-Pod-Id") != "p2" {
			t.Errorf("%s: %v", c.name, a)
		}
		if p, d := prefill.Counts(), decode.Total(); p["p1"] > 1 || p["p2"] != 1 || p["p3"] != 0 || d != 1 {
			t.Errorf("%s: the prefill pods got %v, the decode pod %d", c.name, p, d)
		}
		s.waitCount(t, 1, "calinix_prefill_failures_total", "reason", c.reason)

		c.fail(prefill[1])
		all := prefill.Total()
		a = cl.Post(t, chatPath, chat("again"))
		wantError(t, a, c.status)
		if c.status == 503 {
			wantRetryAfter(t, a)
		}
		if n := prefill.Total() - all; n > 2 || prefill[2].Count() != 0 || decode.Total() != 1 {
			t.Errorf("%s twice: the prefill pods got %v, the decode pod %d", c.name, prefill.Counts(), decode.Total())
		}
		s.waitCount(t, 3, "calinix_prefill_failures_total", "reason", c.reason)
		s.waitCount(t, 2, "calinix_retries_total", "reason", c.reason)
		s.waitIdle(t, decode)
		s.Stop()
	}
}

// TestPrefillAlone: without another prefill pod to try the first fault counts.
func TestPrefillAlone(t *testing.T) {
	prefill, decode := pods(t, "p1"), pods(t, "d1")
	for _, c := range prefillFaults {
		prefill[0].Clear()
		if err := prefill[0].Listen(); err != nil {
			t.Fatal(err)
		}
		s := serve(t, headerTimeout(c.reason)+dispatch(prefill, decode))
		cl := s.Client(t, testcaddy.H1)
		if a := cl.Post(t, chatPath, question); a.Status != 200 {
			t.Fatalf("before %s: %v", c.name, a)
		}
		n := decode.Total()
		c.fail(prefill[0])
		wantError(t, cl.Post(t, chatPath, question), c.status)
		if decode.Total() != n {
			t.Errorf("%s: the decode pod was asked", c.name)
		}
		s.waitIdle(t, decode)
		s.Stop()
	}
}

// TestPrefillTimeoutOfBothTries: prefillTimeoutMs is for the leg as a whole.
func TestPrefillTimeoutOfBothTries(t *testing.T) {
	const limit = 400 * time.Millisecond
	prefill, decode := pods(t, "p1", "p2"), pods(t, "d1")
	s := serve(t, inOrder+dispatch(prefill, decode, "prefill_timeout "+limit.String()))
	cl := s.Client(t, testcaddy.H2)
	prefill[0].Set(fakepod.Reply{Delay: limit * 3 / 4, Status: 500})
	prefill[1].Set(fakepod.Reply{Silent: true})
	a := cl.Post(t, chatPath, question)
	wantError(t, a, http.StatusGatewayTimeout)
	q := prefill[1].WaitClosed(t, 1)
	if took := q.ClosedAt.Sub(prefill[0].WaitHead(t, 1).Time); took < limit*9/10 || took > 2*limit {
		t.Errorf("the leg was given up after %v, want %v for both tries", took, limit)
	}
	if decode.Total() != 0 {
		t.Error("the decode pod was asked")
	}
	s.waitIdle(t, prefill, decode)
}

// TestPrefillRefused4xx: a 4xx of the prefill pod is the client's; it is not
// tried elsewhere, also where decodeOnly is on.
func TestPrefillRefused4xx(t *testing.T) {
	for _, on := range []string{"fail", "decode_only"} {
		prefill, decode := pods(t, "p1", "p2"), pods(t, "d1")
		s := serve(t, "retry_status 400 429\n"+dispatch(prefill, decode, "on_prefill_failure "+on))
		prefill.Set(fakepod.Reply{Status: 429, Body: []byte(`{"object":"error"}`)})
		a := s.Client(t, testcaddy.H1).Post(t, chatPath, question)
		if a.Status != 429 || string(a.Body) != `{"object":"error"}` || prefill.Total() != 1 || decode.Total() != 0 {
			t.Errorf("%s: prefill pods got %v: %v", on, prefill.Counts(), a)
		}
		if n := s.count(t, "calinix_prefill_failures_total"); n != 0 {
			t.Errorf("%s: %v failures are counted", on, n)
		}
		s.Stop()
	}
}

// TestDecodeOnly: with onPrefillFailure decodeOnly a failed prefill leg is left
// out: the decode pod gets the client's body, and header and metric show it.
func TestDecodeOnly(t *testing.T) {
	for _, c := range prefillFaults {
		prefill, decode := pods(t, "p1", "p2"), pods(t, "d1")
		s := serve(t, headerTimeout(c.reason)+inOrder+dispatch(prefill, decode, "on_prefill_failure decode_only"))
		for _, p := range prefill {
			c.fail(p)
		}
		cl := s.Client(t, testcaddy.H2)
		body := `{ "model" : "m","stream":false, "messages":[{"role":"user","content":"` + c.name + `"}], "max_tokens":7 ,"seed":1e2}`
		a := cl.Post(t, chatPath, body)
		if a.Status != 200 || a.Pod() != "d1" {
			t.Fatalf("%s: %v", c.name, a)
		}
		q := decode[0].Last(t)
		if string(q.Body) != body || decode.Total() != 1 {
			t.Errorf("%s: the decode pod gets %q", c.name, q.Body)
		}
		for where, h := range map[string]http.Header{"the answer": a.Header, "the decode pod": q.Header} {
			wantRouting(t, c.name+", "+where, h, map[string]string{
				"X-Calinix-Mode": "disaggregated", "X-Calinix-Request-Id": "any", "X-Calinix-Decode-Pod-Id": "d1", "X-Calinix-Cache-Hit": "false",
				"X-Calinix-Cache-Prefix-Depth": "0", "X-Calinix-Cache-Namespace": "openai:m:whitespace-v1:block-16",
				"X-Calinix-Route-Policy": "cacheAware;decode-only",
			})
		}
		s.waitCount(t, 2, "calinix_prefill_failures_total", "reason", c.reason)
		s.waitIdle(t, decode)
		s.Stop()
	}
}

// TestDecodeOnlyNoPrefillPod: decodeOnly also covers that no prefill pod is up;
// without a decode pod the answer is 503.
func TestDecodeOnlyNoPrefillPod(t *testing.T) {
	prefill, decode := pods(t, "p1"), pods(t, "d1")
	prefill[0].Healthy(false)
	s := serve(t, quickHealth+dispatch(prefill, decode, "on_prefill_failure decode_only"))
	s.waitUp(t, false, "p1")
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		a := cl.Post(t, chatPath, question)
		if a.Status != 200 || a.Header.Get("X-Calinix-Route-Policy") != "cacheAware;decode-only" || string(decode[0].Last(t).Body) != question {
			t.Errorf("no prefill pod: %v", a)
		}
	})
	s.waitCount(t, 3, "calinix_prefill_failures_total", "reason", "no_pod")
	decode[0].Healthy(false)
	s.waitUp(t, false, "d1")
	a := s.Client(t, testcaddy.H1).Post(t, chatPath, question)
	wantError(t, a, http.StatusServiceUnavailable)
	wantRetryAfter(t, a)
	prefill[0].Healthy(true)
	decode[0].Healthy(true)
	s.waitUp(t, true, "p1", "d1")
	if a := s.Client(t, testcaddy.H1).Post(t, chatPath, question); a.Status != 200 || a.Header.Get("X-Calinix-Route-Policy") != "cacheAware" {
		t.Errorf("afterwards: %v", a)
	}
	if prefill.Total() != 1 {
		t.Errorf("the prefill pod got %d requests, want 1", prefill.Total())
	}
}

// TestDecodeOnlyBody: the client's body is unchanged but for reserved members,
// and for the compression that it came with.
func TestDecodeOnlyBody(t *testing.T) {
	prefill, decode := pods(t, "p1"), pods(t, "d1")
	prefill.Set(fakepod.Reply{Status: 500})
	s := serve(t, dispatch(prefill, decode, "on_prefill_failure decode_only"))
	cl := s.Client(t, testcaddy.H2)
	plain := `{"model":"m", "messages":[{"role":"user","content":"x"}] ,"stream":false,"stream_options":null}`
	with := strings.Replace(plain, `"model"`, `"kv_transfer_params":{"do_remote_prefill":true},"model"`, 1)
	for _, c := range []struct {
		sent, want string
		gzip       bool
	}{{plain, plain, false}, {with, plain, false}, {plain, plain, true}, {with, plain, true}} {
		body, headers := c.sent, []string(nil)
		if c.gzip {
			body, headers = string(gzipped(c.sent)), []string{"Content-Encoding", "gzip"}
		}
		if a := cl.Post(t, chatPath, body, headers...); a.Status != 200 {
			t.Fatal(a)
		}
		q := decode[0].Last(t)
		if string(q.Body) != c.want || q.Header.Get("Content-Encoding") != "" {
			t.Errorf("sent %q (gzip %v), the decode pod gets %q in encoding %q", c.sent, c.gzip, q.Body, q.Header.Get("Content-Encoding"))
		}
		if q.ContentLength != int64(len(q.Body)) {
			t.Errorf("Content-Length %d of %d bytes", q.ContentLength, len(q.Body))
		}
	}
	if got := prefill[0].Last(t).Header.Values("Content-Encoding"); len(got) > 0 {
		t.Errorf("the prefill leg, whose body is ours, has Content-Encoding %q", got)
	}
}

// TestPrefillUnused: with connector nixl a prefill reply without parameters is no
// failure, but what was computed reaches nobody, and that is counted.
func TestPrefillUnused(t *testing.T) {
	prefill, decode := pods(t, "p1"), pods(t, "d1")
	for _, c := range []struct {
		connector string
		reply     fakepod.Reply
		unused    float64
	}{
		{"nixl", fakepod.Reply{KV: []byte(`{"remote_engine_id":"e"}`)}, 0},
		{"nixl", fakepod.Reply{}, 1},
		{"nixl", fakepod.Reply{Body: []byte(`{"kv_transfer_params":null}`)}, 1},
		{"plain", fakepod.Reply{}, 0},
	} {
		s := serve(t, dispatch(prefill, decode, "connector "+c.connector), testcaddy.Plain())
		prefill[0].Set(c.reply)
		if a := s.Client(t, testcaddy.H1).Post(t, chatPath, question); a.Status != 200 || a.Pod() != "d1" {
			t.Errorf("%s, %+v: %v", c.connector, c.reply, a)
		}
		s.waitIdle(t)
		if got := s.count(t, "calinix_prefill_unused_total", "pod", "p1"); got != c.unused {
			t.Errorf("%s, %+v: %v prefill legs are counted as unused, want %v", c.connector, c.reply, got, c.unused)
		}
		if got := s.count(t, "calinix_prefill_failures_total"); got != 0 {
			t.Errorf("%s, %+v: counted as a failure", c.connector, c.reply)
		}
		s.Stop()
	}
}

// TestStoredConversations: what one engine has stored the other one does not
// know; such a request is not disaggregated.
func TestStoredConversations(t *testing.T) {
	prefill, decode := pods(t, "p1", "p2"), pods(t, "d1", "d2")
	s := serve(t, dispatch(prefill, decode), testcaddy.Plain())
	cl := s.Client(t, testcaddy.H1)
	for member, stored := range map[string]bool{
		``:                             false,
		`,"previous_response_id":null`: false,
		`,"conversation":{}`:           false,
		`,"previous_response_id":"r1"`: true,
		`,"conversation":"c1"`:         true,
		`,"conversation":{"id":"c1"}`:  true,
	} {
		prefill.Forget()
		body := `{"model":"m","input":"and then?"` + member + `}`
		a := cl.Post(t, "/v1/responses", body)
		if a.Status != 200 || !strings.HasPrefix(a.Pod(), "d") {
			t.Errorf("%s: %v", body, a)
		}
		if legs := prefill.Total(); (legs == 0) != stored {
			t.Errorf("%s: %d prefill legs", body, legs)
		}
		if stored && string(decode.Pod(a.Pod()).Last(t).Body) != body {
			t.Errorf("%s: the pod got %s", body, decode.Pod(a.Pod()).Last(t).Body)
		}
	}
}
