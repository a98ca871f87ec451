package calinix_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// logged waits for the access log's line about the request with this id.
func (s *site) logged(t testing.TB, requestID string) testcaddy.Entry {
	t.Helper()
	return s.Log.Wait(t, 0, "request "+requestID, func(e testcaddy.Entry) bool {
		return strings.HasPrefix(e.Logger, "http.log.access") && e.Has("calinix_request_id", requestID)
	})
}

// TestBrokenAnswer: when a pod breaks off after its answer began, the client
// gets what was sent and then sees, over every protocol, that this is not the
// end; it is counted as cut and no other pod is asked.
func TestBrokenAnswer(t *testing.T) {
	all := pods(t, "a", "p1", "d1", "b")
	one, prefill, decode, spare := all[:1], all[1:2], all[2:3], all[3:]
	for _, c := range []struct {
		name, keys string
		pod        *fakepod.Pod
	}{
		{"single", "retry_status 500\n" + single(one) + dispatch(prefill, spare), one[0]},
		{"decode", dispatch(prefill, decode), decode[0]},
	} {
		s := serve(t, c.keys)
		n := 0.0
		for name, reply := range map[string]fakepod.Reply{
			"stream, reset":         {Stream: fakepod.Always, Cut: fakepod.Reset, At: fakepod.AfterChunks(3)},
			"stream, closed":        {Stream: fakepod.Always, Cut: fakepod.Close, At: fakepod.AfterChunks(3)},
			"stream, in a chunk":    {Stream: fakepod.Always, Cut: fakepod.Reset, At: fakepod.AfterBytes(300)},
			"after the headers":     {Stream: fakepod.Always, Cut: fakepod.Close, At: fakepod.AfterHeaders},
			"half of a length":      {Cut: fakepod.Close, At: fakepod.HalfBody},
			"half of a length, RST": {Cut: fakepod.Reset, At: fakepod.HalfBody},
			"half of the chunks":    {Framing: fakepod.Chunked, Cut: fakepod.Close, At: fakepod.HalfBody},
			"a long answer":         {Body: make([]byte, 1<<20), Cut: fakepod.Close, At: fakepod.AfterBytes(1 << 19)},
			"an error's body":       {Status: 500, Body: make([]byte, 5000), Cut: fakepod.Close, At: fakepod.HalfBody},
		} {
			c.pod.Set(reply)
			s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
				id := fmt.Sprintf("%s/%s/%v", strings.ReplaceAll(name, " ", "_"), c.name, cl.Protocol)
				a := cl.Post(t, chatPath, question, "x-calinix-request-id", id)
				status := max(reply.Status, 200)
				body := string(a.Body)
				if a.Err == nil {
					t.Errorf("%s, %s: the client takes a broken answer for a whole one: %v", c.name, name, a)
				}
				// The reset of a stream overtakes what was sent before, on HTTP/3
				// the headers too.
				if a.Status != status && !(a.Status == 0 && cl.Protocol == testcaddy.H3) {
					t.Errorf("%s, %s: %v", c.name, name, a)
				}
				if chunks := strings.Count(body, "\n\n"); strings.HasPrefix(name, "stream, ") &&
					(chunks < 1 || cl.Protocol == testcaddy.H1 && chunks != len(c.pod.Last(t).Sent)) {
					t.Errorf("%s, %s: what was sent did not come through: %v", c.name, name, a)
				}
				if reply.Stream == fakepod.Always && (strings.Contains(body, "[DONE]") || strings.Contains(body, `"stop"`)) {
					t.Errorf("%s, %s: an end was made up: %v", c.name, name, a)
				}
				if e := s.logged(t, id); !e.Has("calinix_outcome", "cut") {
					t.Errorf("%s, %s: logged as %s", c.name, name, e.Line)
				}
			})
			n += 3
		}
		s.waitCount(t, n, "calinix_requests_total", "pod", c.pod.Name, "code", "cut")
		if got := s.count(t, "calinix_requests_total", "role", c.name); got != n {
			t.Errorf("%s: %v legs are counted, want %v", c.name, got, n)
		}
		if c.pod.Count() != int(n) || spare.Total() != 0 || s.count(t, "calinix_retries_total") != 0 {
			t.Errorf("%s: the pod got %d of %v requests, another one %d", c.name, c.pod.Count(), n, spare.Total())
		}
		s.waitIdle(t, all)
		s.Stop()
	}
}

// TestBrokenPrefillAnswer: a prefill leg that breaks off in its answer has
// failed: it is tried at another pod, and is a 502 if that fails too.
func TestBrokenPrefillAnswer(t *testing.T) {
	prefill, decode := pods(t, "p1", "p2"), pods(t, "d1")
	s := serve(t, dispatch(prefill, decode))
	cl := s.Client(t, testcaddy.H2)
	cut := fakepod.Reply{Cut: fakepod.Reset, At: fakepod.HalfBody}
	prefill.Set(cut)
	wantError(t, cl.Post(t, chatPath, question), http.StatusBadGateway)
	if decode.Total() != 0 || prefill[0].Count() != 1 || prefill[1].Count() != 1 {
		t.Errorf("the decode pod got %d requests, the prefill pods %v", decode.Total(), prefill.Counts())
	}
	prefill[1].Clear()
	for range 2 {
		if a := cl.Post(t, chatPath, chat("again")); a.Status != 200 {
			t.Error(a)
		}
	}
	s.waitCount(t, float64(prefill[0].Count()), "calinix_requests_total", "pod", "p1", "code", "cut")
	s.waitIdle(t, prefill, decode)
}

// TestGoneBeforeHeaders: a client that leaves before the answer cancels the leg
// that runs; log and metrics say 499.
func TestGoneBeforeHeaders(t *testing.T) {
	all := pods(t, "s1", "p1", "d1")
	s := serve(t, single(all[:1])+dispatch(all[1:2], all[2:], "on_prefill_failure decode_only"))
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		for leg, p := range map[string]*fakepod.Pod{"single": all[0], "prefill": all[1], "decode": all[2]} {
			all.Forget()
			p.Set(fakepod.Reply{Silent: true})
			id := fmt.Sprintf("%s/%v", leg, cl.Protocol)
			ctx, leave := testContext(t)
			done := make(chan *testcaddy.Answer, 1)
			mode := map[bool]string{true: "single", false: "dispatch"}[leg == "single"]
			go func() {
				done <- cl.Send(cl.Request(ctx, t, http.MethodPost, chatPath, question, "x-calinix-mode", mode, "x-calinix-request-id", id))
			}()
			p.WaitRequests(t, 1)
			leave()
			left := time.Now()
			if took := p.WaitClosed(t, 1).ClosedAt.Sub(left); took > testcaddy.Patience/2 {
				t.Errorf("%s: the pod's connection ended %v later", leg, took)
			}
			<-done
			e := s.logged(t, id)
			if !e.Has("calinix_outcome", "client_gone") || !e.Has("status", "499") {
				t.Errorf("%s: logged as %s", leg, e.Line)
			}
			if leg == "prefill" && all[2].Count() > 0 {
				t.Error("the decode pod was asked after the client had left")
			}
			p.Clear()
		}
	})
	s.waitIdle(t, all)
	for leg, pod := range map[string]string{"single": "s1", "prefill": "p1", "decode": "d1"} {
		s.waitCount(t, 3, "calinix_requests_total", "role", leg, "pod", pod, "code", "499")
	}
	if n := s.count(t, "calinix_prefill_failures_total"); n != 0 {
		t.Errorf("%v prefill failures are counted", n)
	}
}

// TestGoneInAnswer: after the headers the status stays what it was; log field
// and metric say that the client left.
func TestGoneInAnswer(t *testing.T) {
	all := pods(t, "s1", "p1", "d1")
	s := serve(t, single(all[:1])+dispatch(all[1:2], all[2:]))
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		for mode, p := range map[string]*fakepod.Pod{"single": all[0], "dispatch": all[2]} {
			for name, reply := range map[string]fakepod.Reply{
				"stream":       {Stream: fakepod.Always, Chunks: 1000, Gap: 5 * time.Millisecond},
				"silent":       {Stream: fakepod.Always, PauseAfter: 2, Pause: time.Minute},
				"headers only": {Stream: fakepod.Always, FirstChunk: time.Minute},
			} {
				all.Forget()
				p.Set(reply)
				id := fmt.Sprintf("%s/%s/%v", strings.ReplaceAll(name, " ", "_"), mode, cl.Protocol)
				str := cl.Stream(t, chatPath, chat("x", `"stream":true`), "x-calinix-mode", mode, "x-calinix-request-id", id)
				if name != "headers only" {
					str.Take(t, 2)
				}
				str.Leave()
				p.WaitClosed(t, 1)
				if e := s.logged(t, id); !e.Has("calinix_outcome", "client_gone") {
					t.Errorf("%s, %s: logged as %s", mode, name, e.Line)
				}
			}
		}
	})
	s.waitIdle(t, all)
	s.waitCount(t, 9, "calinix_requests_total", "role", "single", "pod", "s1", "code", "499")
	s.waitCount(t, 9, "calinix_requests_total", "role", "decode", "pod", "d1", "code", "499")
}

// TestGoneInUpload: a client that leaves in the middle of its body has asked for
// nothing: no pod is contacted, the memory is given back, log and metrics say
// 499.
func TestGoneInUpload(t *testing.T) {
	ps := pods(t, "a")
	s := serve(t, "body_memory_bytes 150000\n"+single(ps), testcaddy.Global("metrics"))
	large := chat(strings.Repeat("x", 100_000))
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		for _, length := range []int64{100_000, -1} {
			for n := range 3 {
				id := fmt.Sprintf("%d/%d/%v", length, n, cl.Protocol)
				ctx, leave := testContext(t)
				r, w := io.Pipe()
				req := cl.Request(ctx, t, http.MethodPost, chatPath, "x", "x-calinix-request-id", id)
				req.Body, req.ContentLength = r, length
				done := make(chan *testcaddy.Answer, 1)
				go func() { done <- cl.Send(req) }()
				io.WriteString(w, strings.Repeat("x", 90_000))
				s.WaitMetrics(t, "the request to come", func(m testcaddy.Metrics) bool {
					return m.Sum("caddy_http_requests_in_flight", "handler", "calinix") == 1
				})
				leave()
				w.CloseWithError(context.Canceled)
				<-done
				if e := s.logged(t, id); !e.Has("calinix_outcome", "client_gone") || !e.Has("status", "499") {
					t.Errorf("length %d: logged as %v with status %v", length, e.Fields["calinix_outcome"], e.Fields["status"])
				}
			}
		}
		if a := cl.Post(t, chatPath, large); a.Status != 200 {
			t.Errorf("afterwards: %v", a)
		}
	})
	s.waitCount(t, 18, "calinix_requests_total", "role", "single", "pod", "", "code", "499")
	for _, q := range ps.Received() {
		if string(q.Body) != large {
			t.Errorf("the pod got %v", q)
		}
	}
}
