package calinix_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
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

// legsOf are the sites on which an error of a leg's is shown: one pod that
// answers alone, and a decode pod behind a prefill pod that answers well.
type legsOf struct {
	name    string
	pod     *fakepod.Pod // the one that is to fail
	prefill *fakepod.Pod // of the decode site
	keys    string
}

func singleAndDecode(t *testing.T) []legsOf {
	t.Helper()
	all := pods(t, "s1", "p1", "d1")
	return []legsOf{
		{"single", all[0], nil, single(all[:1])},
		{"decode", all[2], all[1], dispatch(all[1:2], all[2:])},
	}
}

// TestErrorUnreadableBody: what is not JSON, or has the wrong shape for its
// path, is passed on by load alone, and the pod's own answer comes back.
func TestErrorUnreadableBody(t *testing.T) {
	for _, c := range singleAndDecode(t) {
		s := serve(t, c.keys)
		c.pod.SetStrict(fakepod.VLLM)
		s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
			for _, body := range []string{
				"", "x", "{", "null", "[]", `"x"`, `{"model":"m"}`, `{"model":"m","messages":7}`, `{"model":"m","messages":[]} x`,
				"\xff\xfe{\x00}\x00",
			} {
				a := cl.Post(t, chatPath, body)
				if a.Err != nil || a.Status != 400 || !strings.Contains(string(a.Body), "BadRequestError") {
					t.Errorf("%s, %q: want the pod's 400: %v", c.name, body, a)
				}
				if got := c.pod.Last(t); string(got.Body) != body {
					t.Errorf("%s, %q: the pod gets %q", c.name, body, got.Body)
				}
			}
		})
		if c.prefill != nil && c.prefill.Count() > 0 {
			t.Errorf("%d requests at the prefill pod", c.prefill.Count())
		}
		s.Stop()
	}
}

// TestErrorBodyTooLarge: a body over maxBodyBytes is a 413 and reaches no pod,
// be it announced, chunked, or small until it is decompressed.
func TestErrorBodyTooLarge(t *testing.T) {
	const limit = 20_000
	at := chat(strings.Repeat("x", limit))
	at = chat(strings.Repeat("x", limit-(len(at)-limit)))
	zipped := func(plain string) string {
		var z bytes.Buffer
		w := gzip.NewWriter(&z)
		io.WriteString(w, plain)
		w.Close()
		return z.String()
	}
	bomb := zipped(strings.Repeat("0", 4<<20))
	ps, prefill, decode := pods(t, "a"), pods(t, "p1"), pods(t, "d1")
	s := serve(t, "max_body_bytes "+strconv.Itoa(limit)+"\nbody_memory_bytes 90000\n"+single(ps)+dispatch(prefill, decode))
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		for _, mode := range []string{"single", "dispatch"} {
			send := func(body string, chunked bool, headers ...string) *testcaddy.Answer {
				req := cl.Request(t.Context(), t, http.MethodPost, chatPath, body, append(headers, "x-calinix-mode", mode)...)
				if chunked {
					req.ContentLength = -1
					req.Body = io.NopCloser(strings.NewReader(body))
				}
				return cl.Send(req)
			}
			total := func() int { return ps.Total() + prefill.Total() + decode.Total() }
			for _, chunked := range []bool{false, true} {
				if a := send(at, chunked); a.Status != 200 {
					t.Fatalf("%d bytes: %v", len(at), a)
				}
				before := total()
				// Each is sent more often than bodyMemoryBytes would bear, were it not given back.
				for range 10 {
					if code := wantError(t, send(at+" ", chunked), http.StatusRequestEntityTooLarge); code != "body_too_large" {
						t.Errorf("code %q", code)
					}
					wantError(t, send(bomb, chunked, "Content-Encoding", "gzip"), http.StatusRequestEntityTooLarge)
				}
				if n := total() - before; n != 0 {
					t.Errorf("%d requests reached a pod", n)
				}
				if a := send(zipped(at), chunked, "Content-Encoding", "gzip"); a.Status != 200 {
					t.Errorf("%d bytes in gzip: %v", len(at), a)
				}
			}
		}
	})
	if got := s.count(t, "calinix_requests_total", "code", "413", "pod", ""); got != 3*2*2*20 {
		t.Errorf("%v requests are counted as 413", got)
	}
}

// TestErrorBodyMemory: when the bodies that are held reach bodyMemoryBytes, the
// next one is a 503 with Retry-After, until one of them is done with.
func TestErrorBodyMemory(t *testing.T) {
	ps := pods(t, "a")
	s := serve(t, "body_memory_bytes 100000\n"+single(ps))
	cl := s.Client(t, testcaddy.H2)
	large, small := chat(strings.Repeat("x", 80_000)), chat("small")
	for _, end := range []string{"whole", "client gone"} {
		hold := make(chan struct{})
		ps.Set(fakepod.Reply{Hold: hold})
		ps.Forget()
		done := make(chan *testcaddy.Answer, 1)
		ctx, cancel := testContext(t)
		go func() { done <- cl.Send(cl.Request(ctx, t, http.MethodPost, chatPath, large)) }()
		ps[0].WaitRequests(t, 1)
		a := cl.Post(t, chatPath, large)
		if code := wantError(t, a, http.StatusServiceUnavailable); code != "no_memory_for_body" {
			t.Errorf("code %q", code)
		}
		wantRetryAfter(t, a)
		ps.Set(fakepod.Reply{})
		if a := cl.Post(t, chatPath, small); a.Status != 200 {
			t.Errorf("a small body: %v", a)
		}
		if end == "whole" {
			close(hold)
		} else {
			cancel()
		}
		<-done
		s.waitIdle(t)
		if a := cl.Post(t, chatPath, large); a.Status != 200 {
			t.Errorf("afterwards (%s): %v", end, a)
		}
		cancel()
	}
	if n := ps[0].Count(); n != 3 { // since the second round began
		t.Errorf("%d requests at the pod, want 3", n)
	}
}

// wantRetryAfter fails the test unless the answer says when to come again.
func wantRetryAfter(t testing.TB, a *testcaddy.Answer) {
	t.Helper()
	if n, err := strconv.Atoi(a.Header.Get("Retry-After")); err != nil || n < 1 {
		t.Errorf("Retry-After is %q: %v", a.Header.Get("Retry-After"), a)
	}
}

// TestErrorNoPod: no pod of a needed role up, or all at maxConns, is a 503 with
// Retry-After before any leg is sent.
func TestErrorNoPod(t *testing.T) {
	all := pods(t, "s1", "p1", "d1")
	one, prefill, decode := all[:1], all[1:2], all[2:]
	for _, why := range []string{"healthy off", "draining"} {
		for _, c := range []struct{ role, mode, keys string }{
			{"single", "single", "single {\n" + podList(one, why) + "}\n"},
			{"prefill", "disaggregated", "dispatch {\nprefill {\n" + podList(prefill, why) + "}\ndecode {\n" + podList(decode) + "}\n}\n"},
			{"decode", "disaggregated", "dispatch {\nprefill {\n" + podList(prefill) + "}\ndecode {\n" + podList(decode, why) + "}\n}\n"},
		} {
			s := serve(t, "health {\nhealthy_threshold 1000\n}\n"+c.keys)
			s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
				before := all.Total()
				a := cl.Post(t, chatPath, question)
				if code := wantError(t, a, http.StatusServiceUnavailable); code != "no_pod_available" {
					t.Errorf("code %q", code)
				}
				wantRetryAfter(t, a)
				if a.Header.Get("X-Calinix-Mode") != c.mode || a.Pod() != "" {
					t.Errorf("%s %s: %v", c.role, why, a)
				}
				if n := all.Total() - before; n != 0 {
					t.Errorf("%s %s: %d requests reached a pod", c.role, why, n)
				}
			})
			s.waitCount(t, 3, "calinix_requests_total", "mode", c.mode, "role", c.role, "pod", "", "code", "503")
			s.waitIdle(t)
			s.Stop()
		}
	}
}

// TestErrorAllFull: pods at their maxConns are full until one has an answer
// through; the request that is refused has cost no pod anything, and leaves no
// load behind at the other role's.
func TestErrorAllFull(t *testing.T) {
	all := pods(t, "a", "b", "other")
	two, other := all[:2], all[2:]
	limited := podList(two, "max_conns 2")
	for role, keys := range map[string]string{
		"single":  "single {\n" + limited + "}\n",
		"prefill": "dispatch {\nprefill {\n" + limited + "}\ndecode {\n" + podList(other) + "}\n}\n",
		"decode":  "dispatch {\nprefill {\n" + podList(other) + "}\ndecode {\n" + limited + "}\n}\n",
	} {
		all.Forget()
		hold := make(chan struct{})
		two.Set(fakepod.Reply{Hold: hold})
		s := serve(t, keys)
		cl := s.Client(t, testcaddy.H2)
		done := make(chan *testcaddy.Answer, 4)
		for i := range cap(done) {
			go func() { done <- cl.Post(t, chatPath, chat("q"+strconv.Itoa(i))) }()
		}
		two[0].WaitRequests(t, 2)
		two[1].WaitRequests(t, 2)
		before := all.Total()
		for range 3 {
			a := cl.Post(t, chatPath, question)
			if code := wantError(t, a, http.StatusServiceUnavailable); code != "no_pod_available" {
				t.Errorf("%s: code %q", role, code)
			}
			wantRetryAfter(t, a)
		}
		if n := all.Total() - before; n != 0 {
			t.Errorf("%s: %d requests reached a pod", role, n)
		}
		s.waitCount(t, 3, "calinix_requests_total", "role", role, "pod", "", "code", "503")
		close(hold)
		for range cap(done) {
			if a := <-done; a.Status != 200 {
				t.Errorf("%s: %v", role, a)
			}
		}
		if counts := all.Counts(); counts["a"] != 2 || counts["b"] != 2 {
			t.Errorf("%s: the pods got %v", role, counts)
		}
		s.waitIdle(t, all)
		if a := cl.Post(t, chatPath, question); a.Status != 200 {
			t.Errorf("%s: afterwards: %v", role, a)
		}
		s.Stop()
	}
}

// TestErrorLost: a failed dial, or a connection lost before the answer, is a
// 502 if there is no other pod to try.
func TestErrorLost(t *testing.T) {
	for _, c := range singleAndDecode(t) {
		s := serve(t, c.keys)
		s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
			for name, fail := range map[string]func(){
				"refused":             func() { c.pod.Refuse() },
				"reset":               func() { c.pod.Set(fakepod.Reply{Cut: fakepod.Reset}) },
				"closed":              func() { c.pod.Set(fakepod.Reply{Cut: fakepod.Close}) },
				"reset in the body":   func() { c.pod.Set(fakepod.Unread{Bytes: 1000, Reply: fakepod.Reply{Cut: fakepod.Reset}}) },
				"no HTTP":             func() { c.pod.Set(fakepod.Reply{Raw: []byte("SSH-2.0-x\r\n"), Close: true}) },
				"half a status line":  func() { c.pod.Set(fakepod.Reply{Raw: []byte("HTTP/1.1 2"), Cut: fakepod.Close}) },
				"half of the headers": func() { c.pod.Set(fakepod.Reply{Raw: []byte("HTTP/1.1 200 OK\r\nContent-Le"), Cut: fakepod.Reset}) },
			} {
				fail()
				a := cl.Post(t, chatPath, chat(strings.Repeat("long ", 1<<12)))
				code := wantError(t, a, http.StatusBadGateway)
				if a.Header.Get("X-Calinix-Mode") == "" || !strings.Contains(string(a.Body), `\"`+c.pod.Name+`\"`) {
					t.Errorf("%s, %s: code %s: the error does not name the pod: %v", c.name, name, code, a)
				}
				c.pod.Clear()
				if err := c.pod.Listen(); err != nil {
					t.Fatal(err)
				}
				if a := cl.Post(t, chatPath, question); a.Status != 200 {
					t.Errorf("%s, %s: afterwards: %v", c.name, name, a)
				}
			}
		})
		s.waitIdle(t)
		s.waitCount(t, 3*7, "calinix_requests_total", "pod", c.pod.Name, "code", "502")
		s.Stop()
	}
}

// TestErrorOwnStatus: a pod's own 4xx and 5xx is passed on whole, also to a
// client that asked for a stream; of a prefill leg only the 4xx.
func TestErrorOwnStatus(t *testing.T) {
	all := pods(t, "s1", "p1", "d1")
	s := serve(t, single(all[:1])+dispatch(all[1:2], all[2:]))
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		for leg, p := range map[string]*fakepod.Pod{"single": all[0], "prefill": all[1], "decode": all[2]} {
			mode := map[bool]string{true: "single", false: "dispatch"}[leg == "single"]
			for _, status := range []int{400, 401, 404, 413, 422, 429, 499, 500, 501, 503, 504, 529} {
				if leg == "prefill" && status >= 500 {
					continue
				}
				body := fmt.Sprintf("<b>the pod's own %d</b>\x00\xff", status)
				p.Set(fakepod.Reply{Status: status, Body: []byte(body), Header: http.Header{
					"Content-Type": {"text/html; x=1"}, "Retry-After": {"17"}, "X-Ratelimit-Limit": {"5"}, "Set-Cookie": {"a=1", "b=2"},
				}})
				for _, stream := range []string{`"stream":false`, `"stream":true`} {
					a := cl.Post(t, chatPath, chat("status", stream), "x-calinix-mode", mode)
					h := a.Header
					if a.Err != nil || a.Status != status || string(a.Body) != body || h.Get("Content-Type") != "text/html; x=1" ||
						h.Get("Retry-After") != "17" || h.Get("X-Ratelimit-Limit") != "5" || !slices.Equal(h["Set-Cookie"], []string{"a=1", "b=2"}) ||
						a.ContentLength != int64(len(body)) || a.Pod() != p.Name {
						t.Errorf("%s, %d, %s: %v", leg, status, stream, a)
					}
					if h.Get("X-Calinix-Request-Id") == "" || leg == "prefill" && h.Get("X-Calinix-Decode-Pod-Id") != "" {
						t.Errorf("%s, %d: routing headers %v", leg, status, routing(t, h))
					}
				}
				if leg == "prefill" && all[2].Count() != 0 {
					t.Errorf("%d: the decode pod was asked", status)
				}
			}
			p.Clear()
			all.Forget()
		}
	})
	s.waitIdle(t, all)
	for _, want := range []struct{ role, pod string }{{"single", "s1"}, {"prefill", "p1"}, {"decode", "d1"}} {
		s.waitCount(t, 6, "calinix_requests_total", "role", want.role, "pod", want.pod, "code", "429")
	}
}

// TestErrorPrefill5xx: a prefill leg's 5xx becomes 503 if the last pod said so,
// else 502; the decode pod is not asked.
func TestErrorPrefill5xx(t *testing.T) {
	prefill, decode := pods(t, "p1", "p2"), pods(t, "d1")
	s := serve(t, dispatch(prefill, decode))
	cl := s.Client(t, testcaddy.H2)
	for _, c := range []struct{ first, last, want int }{
		{500, 500, 502}, {503, 500, 502}, {500, 503, 503}, {503, 503, 503}, {504, 504, 502}, {529, 503, 503}, {503, 529, 502},
	} {
		first := true
		reply := fakepod.Func(func(fakepod.Request) fakepod.Reply {
			status := c.last
			if first {
				status = c.first
			}
			first = false
			return fakepod.Reply{Status: status}
		})
		prefill.Set(reply)
		a := cl.Post(t, chatPath, question)
		if code := wantError(t, a, c.want); code != "prefill_failed" {
			t.Errorf("%d, then %d: code %q", c.first, c.last, code)
		}
		if c.want == http.StatusServiceUnavailable {
			wantRetryAfter(t, a)
		}
		if prefill.Total() != 2 || prefill[0].Count() != 1 || decode.Total() != 0 {
			t.Errorf("%d, then %d: prefill pods got %v, decode pods %v", c.first, c.last, prefill.Counts(), decode.Counts())
		}
		prefill.Forget()
	}
	s.waitIdle(t, prefill, decode)
}

// TestErrorTimeout: prefillTimeoutMs and responseHeaderTimeoutMs that have
// passed are a 504.
func TestErrorTimeout(t *testing.T) {
	const limit = 150 * time.Millisecond
	slow := fakepod.Reply{Silent: true}
	header := "transport http {\nresponse_header_timeout " + limit.String() + "\n}\n"
	all := pods(t, "s1", "p1", "d1")
	for _, c := range []struct {
		name, keys string
		pod        *fakepod.Pod
		least      time.Duration
		reply      fakepod.Reply
	}{
		{"single", header + single(all[:1]), all[0], limit, slow},
		{"decode", header + dispatch(all[1:2], all[2:]), all[2], limit, slow},
		{"prefill", header + dispatch(all[1:2], all[2:]), all[1], limit, slow},
		{"prefill_timeout", dispatch(all[1:2], all[2:], "prefill_timeout "+limit.String()), all[1], limit, slow},
		{"prefill_timeout in the body", dispatch(all[1:2], all[2:], "prefill_timeout "+limit.String()), all[1], limit, fakepod.Reply{FirstChunk: time.Minute}},
	} {
		s := serve(t, c.keys)
		all.Forget()
		s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
			c.pod.Set(c.reply)
			a := cl.Post(t, chatPath, question)
			if code := wantError(t, a, http.StatusGatewayTimeout); code != "pod_timed_out" {
				t.Errorf("%s: code %q", c.name, code)
			}
			if took := a.HeadersAt.Sub(a.Began); took < c.least {
				t.Errorf("%s: the answer came after %v", c.name, took)
			}
		})
		for n := range 3 {
			c.pod.WaitClosed(t, n+1)
		}
		if strings.HasPrefix(c.name, "prefill") && all[2].Count() != 0 {
			t.Errorf("%s: the decode pod was asked", c.name)
		}
		s.waitCount(t, 3, "calinix_requests_total", "pod", c.pod.Name, "code", "504")
		c.pod.Clear()
		s.waitIdle(t)
		s.Stop()
	}
}
