package calinix_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

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
