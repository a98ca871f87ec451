package cases_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/cases"
	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// TestBR02: prefill fails: answer soon, never hang.
func TestBR02(t *testing.T) {
	c := begin(t)
	s := serveDispatch(t, "prefill_timeout 2s")
	s.all(t)
	cl := s.Client(t, testcaddy.H1)
	half := fakepod.Reply{Cut: fakepod.Reset, At: fakepod.HalfBody}
	for _, fault := range []struct {
		n     int
		words string
		on    func(p *fakepod.Pod)
		most  time.Duration // until the answer if both prefill pods have the fault
	}{
		{1, "p1 answers 500 or 503", func(p *fakepod.Pod) { p.Set(fakepod.Reply{Status: 500}) }, time.Second},
		{1, "p1 answers 500 or 503", func(p *fakepod.Pod) { p.Set(fakepod.Reply{Status: 503}) }, time.Second},
		{2, "p1 refuses the connection", func(p *fakepod.Pod) { p.Refuse() }, time.Second},
		{3, "p1 accepts and is silent", func(p *fakepod.Pod) { p.Set(fakepod.Reply{Silent: true}) }, 2500 * time.Millisecond},
		{4, "p1 resets after half of its JSON", func(p *fakepod.Pod) { p.Set(half) }, time.Second},
	} {
		c.expect(t, fault.n, fault.words, func(t *testing.T) {
			tried := map[string]bool{}
			for r := range c.Requests() {
				if fault.n == 3 && tried[r.Name] {
					continue // two seconds each; the next one is no different
				}
				tried[r.Name] = true
				p1 := s.pick(t, r) // whichever is asked first is the case's p1
				s.pods.Forget()
				fault.on(p1)
				a := cl.SendCase(t, r)
				took := a.Ended.Sub(a.Began)
				if fault.n == 3 { // within the time limit of both tries nothing else can be tried
					wantJSONError(t, a, 504)
					if took > fault.most {
						t.Errorf("%s: answered after %v", r.Name, took)
					}
				} else if a.Status != 200 || s.decode.Total() != 1 || other(s.prefill, p1).Count() != 1 {
					t.Errorf("%s: received: %v: %v", r.Name, s.pods.Counts(), a)
				}
				s.repair(t)
			}
			for r := range c.Requests() {
				s.pods.Forget()
				for _, p := range s.prefill {
					fault.on(p)
				}
				a := cl.SendCase(t, r)
				wantJSONError(t, a, 502, 503, 504)
				if took := a.Ended.Sub(a.Began); took > fault.most || a.Status == 504 && fault.n != 3 {
					t.Errorf("%s: %v after %v", r.Name, a, took)
				}
				if s.decode.Total() != 0 || s.prefill[0].Count() > 1 || s.prefill[1].Count() > 1 {
					t.Errorf("%s: received: %v", r.Name, s.pods.Counts())
				}
				s.repair(t)
				if fault.n == 3 {
					break
				}
			}
		})
	}
	c.expect(t, 6, "in-flight of p1, p2, d1, d2 returns to 0", func(t *testing.T) { s.waitIdle(t) })

	s.reload(t, s.keys("prefill_timeout 2s", "on_prefill_failure decode_only"))
	c.expect(t, 5, "decode without prefill happens only if", func(t *testing.T) {
		s.prefill.Set(half)
		for r := range c.Requests() {
			s.pods.Forget()
			failed := s.count(t, "calinix_prefill_failures_total")
			a := cl.SendCase(t, r)
			if a.Status != 200 || s.decode.Total() != 1 || !strings.HasSuffix(a.Header.Get("X-Calinix-Route-Policy"), ";decode-only") {
				t.Errorf("%s: received: %v: %v", r.Name, s.pods.Counts(), a)
			}
			s.wantCount(t, failed+2, "calinix_prefill_failures_total")
		}
	})
	c.expect(t, 6, "in-flight of p1, p2, d1, d2 returns to 0", func(t *testing.T) { s.waitIdle(t) })
}

// repair takes faults of the prefill pods back and waits until they are up.
func (s *pd) repair(t testing.TB) {
	t.Helper()
	s.waitIdle(t)
	for _, p := range s.prefill {
		p.Clear()
		if err := p.Listen(); err != nil {
			t.Fatal(err)
		}
	}
	s.all(t)
}

// limits are the members that bound the output, and the paths that each is
// proper to.
var limits = map[string][]string{
	"max_tokens":            {"/v1/completions", "/v1/chat/completions"},
	"max_completion_tokens": {"/v1/chat/completions"},
	"max_output_tokens":     {"/v1/responses"},
}

// TestBR10: the prefill leg must stop after one token.
func TestBR10(t *testing.T) {
	c := begin(t)
	s := serveDispatch(t)
	const lateEnd = 50 * time.Millisecond // from the last byte of the prefill pod's answer to its end
	s.prefill.Set(fakepod.Reply{Content: "text of the prefill leg", Framing: fakepod.Chunked, LateEnd: lateEnd})
	s.all(t)
	cl := s.Client(t, testcaddy.H1)
	for r := range c.Requests() {
		s.pods.Forget()
		a := cl.SendCase(t, r)
		if a.Status != 200 || s.prefill.Total() != 1 || s.decode.Total() != 1 {
			t.Fatalf("%s: received: %v: %v", r.Name, s.pods.Counts(), a)
		}
		p, d := s.prefill.Received()[0], s.decode.Received()[0]
		oneToken := func(t *testing.T) {
			proper := false
			for name, paths := range limits {
				if v, there := p.Member(name); there {
					proper = proper || slices.Contains(paths, r.Path)
					if string(v) != "1" {
						t.Errorf("%s: %s is %s on the prefill leg", r.Name, name, v)
					}
				}
			}
			if v, _ := p.Member("stream"); !proper || string(v) == "true" {
				t.Errorf("%s: the prefill leg is not bounded: %s", r.Name, p.Body)
			}
		}
		c.expect(t, 1, "on the prefill leg every output limit", oneToken)
		c.expect(t, 2, "on the decode leg limits are the client's", func(t *testing.T) {
			var sent map[string]json.RawMessage
			if err := json.Unmarshal(r.Body, &sent); err != nil {
				t.Fatal(err)
			}
			for name := range limits {
				v, there := d.Member(name)
				if want, given := sent[name]; there != given || string(v) != string(want) {
					t.Errorf("%s: %s is %s on the decode leg, want %s", r.Name, name, v, want)
				}
			}
		})
		c.expect(t, 3, "the prefill leg's answer text never reaches", func(t *testing.T) {
			if a.Pod() != d.Pod || bytes.Contains(a.Body, []byte("text of the prefill leg")) {
				t.Errorf("%s: %v", r.Name, a)
			}
		})
		c.expect(t, 4, "order: the prefill pod's answer is complete", func(t *testing.T) {
			if len(p.Sent) != 1 || d.Time.Sub(p.Sent[0]) < lateEnd {
				t.Errorf("%s: the prefill pod had sent all at %v, the decode pod was asked at %v", r.Name, p.Sent, d.Time)
			}
		})
		if r.Name == "responses" {
			c.expect(t, 5, "'responses': disaggregated in the same way", oneToken)
		}
	}
}

// TestBR29: no prefill pod is ready.
func TestBR29(t *testing.T) {
	c := begin(t)
	s := &pd{prefill: pods(t, []string{"p1", "p2"}), decode: pods(t, []string{"d1", "d2"})}
	for _, p := range s.prefill {
		p.Crash()
	}
	s.site = serve(t, slices.Concat(s.prefill, s.decode), s.keys())
	s.waitUp(t, "d1", "d2")
	cl := s.Client(t, testcaddy.H1)
	ask := c.One(t, "ask")
	c.expect(t, 1, "default: 503 with a JSON error", func(t *testing.T) {
		a := cl.SendCase(t, ask)
		if message := wantJSONError(t, a, 503); !strings.Contains(message, "prefill") {
			t.Errorf("the missing role is not named: %s", message)
		}
		if took := a.Ended.Sub(a.Began); took > 500*time.Millisecond || a.Header.Get("Retry-After") == "" {
			t.Errorf("after %v: %v", took, a)
		}
		if n := s.decode.Total(); n != 0 {
			t.Errorf("received: %v", s.pods.Counts())
		}
	})
	s.reload(t, s.keys("on_prefill_failure decode_only"))
	cl = s.Client(t, testcaddy.H1) // a reload closes idle connections
	c.expect(t, 2, "with the documented fallback on", func(t *testing.T) {
		a := cl.SendCase(t, ask)
		if a.Status != 200 || s.decode.Total() != 1 {
			t.Fatalf("received: %v: %v", s.pods.Counts(), a)
		}
		if q := s.decode.Received()[0]; !bytes.Equal(q.Body, ask.Body) {
			t.Errorf("the decode pod got %s", q.Body)
		}
		if policy := a.Header.Get("X-Calinix-Route-Policy"); !strings.HasSuffix(policy, ";decode-only") {
			t.Errorf("the route policy is %q", policy)
		}
		s.wantCount(t, 1, "calinix_prefill_failures_total", "reason", "no_pod")
	})
	if err := s.prefill[0].Listen(); err != nil {
		t.Fatal(err)
	}
	s.waitUp(t, "p1", "d1", "d2")
	c.expect(t, 3, "as soon as p1 is healthy again", func(t *testing.T) {
		a := cl.SendCase(t, ask)
		if a.Status != 200 || s.prefill[0].Count() != 1 || a.Header.Get("X-Calinix-Prefill-Pod-Id") != "p1" {
			t.Errorf("received: %v: %v", s.pods.Counts(), a)
		}
	})
}

// TestBR35: numbers survive the rewrite.
func TestBR35(t *testing.T) {
	c := begin(t)
	r := c.One(t, "big-numbers")
	s := serveDispatch(t)
	s.prefill.Set(fakepod.Reply{KV: json.RawMessage(`{"id":9007199254740993}`)})
	s.all(t)
	if a := s.Client(t, testcaddy.H1).SendCase(t, r); a.Status != 200 || s.prefill.Total() != 1 || s.decode.Total() != 1 {
		t.Fatalf("received: %v: %v", s.pods.Counts(), a)
	}
	c.expect(t, 1, "the body at the prefill pod contains", func(t *testing.T) {
		if q := s.prefill.Received()[0]; !bytes.Contains(q.Body, []byte("9007199254740993")) {
			t.Errorf("the prefill pod got %s", q.Body)
		}
	})
	c.expect(t, 2, "the body at the decode pod is the client's body", func(t *testing.T) {
		q := s.decode.Received()[0]
		want := string(bytes.TrimSuffix(r.Body, []byte("}"))) + `,"kv_transfer_params":{"id":9007199254740993}}`
		if string(q.Body) != want {
			t.Errorf("the decode pod got\n%s\nwant\n%s", q.Body, want)
		}
		for _, literal := range []string{"9007199254740993", "1.0", "0.10", "1e-7"} {
			if !bytes.Contains(r.Body, []byte(literal)) {
				t.Errorf("the client's body has no %s", literal)
			}
		}
	})
	s.Stop()

	one := serve(t, s.pods, probes+single(s.pods))
	one.all(t)
	one.pods.Forget()
	sent := one.Client(t, testcaddy.H1).SendCases(t, c.Requests())
	c.expect(t, 3, "in single mode the same request", func(t *testing.T) {
		wantStatus(t, 200, sent...)
		one.wantBytes(t, sent...)
	})
}

// TestBR45: Content-Length after a rewrite.
func TestBR45(t *testing.T) {
	c := begin(t)
	s := serveDispatch(t)
	s.prefill.Set(fakepod.Reply{KV: json.RawMessage(`{"id":"` + strings.Repeat("k", 100) + `"}`)})
	s.all(t)
	refusal := []byte(`{"error":{"message":"` + strings.Repeat("x", 200-len(`{"error":{"message":""}}`)) + `"}}`)
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		lengths := func(t *testing.T, legs int) {
			t.Helper()
			got := s.pods.Received()
			for _, q := range got {
				if q.ContentLength != int64(len(q.Body)) || q.BodyErr != nil || len(q.TransferEncoding) > 0 {
					t.Errorf("%v: Content-Length %d, Transfer-Encoding %q, %v", q, q.ContentLength, q.TransferEncoding, q.BodyErr)
				}
			}
			if len(got) != legs {
				t.Errorf("received: %v, want %d", s.pods.Counts(), legs)
			}
		}
		framed := func(t *testing.T, r cases.Request, a *testcaddy.Answer) {
			t.Helper()
			chunked := len(a.TransferEncoding) > 0
			told := a.Header.Get("Content-Length") != ""
			if a.Err != nil || chunked && told || told && a.ContentLength != int64(len(a.Body)) {
				t.Errorf("%s: %d bytes, Content-Length %d, Transfer-Encoding %q: %v", r.Name, len(a.Body), a.ContentLength, a.TransferEncoding, a)
			}
		}
		for r := range c.Requests("plain", "stream") {
			s.pods.Forget()
			a := cl.SendCase(t, r)
			if a.Status != 200 {
				t.Errorf("%s: %v", r.Name, a)
			}
			c.expect(t, 1, "on both legs Content-Length equals", func(t *testing.T) { lengths(t, 2) })
			c.expect(t, 2, "client side: the response body length", func(t *testing.T) { framed(t, r, a) })
		}
		bad := c.One(t, "bad-field")
		for _, refusing := range []fakepod.Pods{s.prefill, s.decode} { // with either leg
			s.pods.Forget()
			before := fakepod.Reply{KV: json.RawMessage(`{"id":1}`)}
			refusing.Set(fakepod.Reply{Status: 400, Body: refusal})
			a := cl.SendCase(t, bad)
			refusing.Set(before)
			c.expect(t, 3, "for 'bad-field'", func(t *testing.T) {
				if a.Status != 400 || !bytes.Equal(a.Body, refusal) || len(a.Body) != 200 {
					t.Errorf("%v", a)
				}
				framed(t, bad, a)
			})
		}
	})
}

// TestBR47: kv_transfer_params travel from prefill reply to decode request.
func TestBR47(t *testing.T) {
	c := begin(t)
	const params = `{"remote_engine_id":"e-1","remote_block_ids":[1,2,9007199254740993],"remote_host":"127.0.0.1","remote_port":5600}`
	if !strings.Contains(c.Given.Pods, params) {
		t.Fatalf("the case's parameters are other ones: %s", c.Given.Pods)
	}
	s := serveDispatch(t)
	s.all(t)
	cl := s.Client(t, testcaddy.H1)
	ask, smuggle := c.One(t, "ask"), c.One(t, "smuggle")
	// both sends a request and returns what both legs got.
	both := func(t *testing.T, r cases.Request, reply fakepod.Reply) (a *testcaddy.Answer, p, d fakepod.Request) {
		t.Helper()
		s.pods.Forget()
		s.prefill.Set(reply)
		a = cl.SendCase(t, r)
		if a.Status != 200 || s.prefill.Total() != 1 || s.decode.Total() != 1 {
			t.Fatalf("%s: received: %v: %v", r.Name, s.pods.Counts(), a)
		}
		return a, s.prefill.Received()[0], s.decode.Received()[0]
	}
	plain := fakepod.Reply{KV: json.RawMessage(params)}
	c.expect(t, 1, "decode leg's body holds exactly", func(t *testing.T) {
		_, _, d := both(t, ask, plain)
		if got, _ := d.Member("kv_transfer_params"); string(got) != params {
			t.Errorf("the decode pod got %s", d.Body)
		}
	})
	chunked, zipped := plain, plain
	chunked.Framing, zipped.Gzip = fakepod.Chunked, true
	for name, reply := range map[string]fakepod.Reply{
		"chunked": chunked, "gzip": zipped, "null": {KV: fakepod.Null}, "missing": {},
	} {
		c.expect(t, 2, "prefill reply sent chunked, gzip-encoded", func(t *testing.T) {
			_, _, d := both(t, ask, reply)
			got, there := d.Member("kv_transfer_params")
			if len(reply.KV) > len("null") && string(got) != params || len(reply.KV) <= len("null") && there {
				t.Errorf("%s: the decode pod got %s", name, d.Body)
			}
		})
	}
	for name, reply := range map[string]fakepod.Reply{"with": plain, "without": {}} {
		c.expect(t, 3, "'smuggle': the client's value reaches neither leg", func(t *testing.T) {
			_, p, d := both(t, smuggle, reply)
			for _, q := range []fakepod.Request{p, d} {
				if bytes.Contains(q.Body, []byte("192.0.2.9")) {
					t.Errorf("%s parameters: pod %s got %s", name, q.Pod, q.Body)
				}
			}
		})
	}
	s.decode.Set(fakepod.Reply{Body: []byte(`{ "x" : 1.0, "kv_transfer_params":{"mine":"d"} }`), Header: http.Header{"X-Engine": {"e"}}})
	c.expect(t, 4, "client receives the decode pod's reply unchanged", func(t *testing.T) {
		a, _, d := both(t, ask, plain)
		if got := string(a.Body); got != `{ "x" : 1.0, "kv_transfer_params":{"mine":"d"} }` || a.Header.Get("X-Engine") != "e" || a.Pod() != d.Pod {
			t.Errorf("%v", a)
		}
	})
}
