package calinix_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// TestHTTP2Pods: pods that speak HTTP/2 without TLS are served like others: both
// modes, streams, errors, broken answers, clients that leave.
func TestHTTP2Pods(t *testing.T) {
	all := fakepod.NewPods(t, fakepod.Options{Protocol: fakepod.HTTP2}, "s1", "p1", "d1")
	s := serve(t, "transport http {\nversions h2c\n}\n"+single(all[:1])+dispatch(all[1:2], all[2:]))
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		for mode, p := range map[string]*fakepod.Pod{"single": all[0], "dispatch": all[2]} {
			id := fmt.Sprintf("%s/%v", mode, cl.Protocol)
			p.Clear()
			a := cl.Post(t, chatPath, question, "x-calinix-mode", mode, "x-calinix-request-id", id)
			if q := p.Last(t); a.Status != 200 || a.Pod() != p.Name || q.Proto != "HTTP/2.0" || q.ContentLength != int64(len(q.Body)) {
				t.Fatalf("%v; the pod gets %v", a, q)
			}
			if events, err := cl.Stream(t, chatPath, chat("x", `"stream":true`), "x-calinix-mode", mode).All(); err != nil || len(events) != 7 {
				t.Errorf("%s: %d events, %v", mode, len(events), err)
			}
			for _, cut := range []fakepod.Cut{fakepod.Abort, fakepod.Reset} {
				p.Set(fakepod.Reply{Stream: fakepod.Always, Cut: cut, At: fakepod.AfterChunks(2)})
				if a := cl.Post(t, chatPath, question, "x-calinix-mode", mode); a.Err == nil {
					t.Errorf("%s, cut %d: the client takes a broken answer for a whole one: %v", mode, cut, a)
				}
			}
			p.Forget()
			p.Set(fakepod.Reply{Stream: fakepod.Always, PauseAfter: 1, Pause: time.Minute})
			str := cl.Stream(t, chatPath, question, "x-calinix-mode", mode)
			str.Take(t, 1)
			str.Leave()
			p.WaitClosed(t, 1)
		}
	})
	s.waitIdle(t, all)
	s.waitCount(t, 6, "calinix_requests_total", "pod", "d1", "code", "cut")
	s.waitCount(t, 3, "calinix_requests_total", "pod", "d1", "code", "499")
}

// TestHTTP2PodsReuse: on a connection that is shared a stream that the pod
// resets is no closed connection: the pod has the request and may have begun to
// work on it. A connection that is closed is one.
func TestHTTP2PodsReuse(t *testing.T) {
	ps := fakepod.NewPods(t, fakepod.Options{Protocol: fakepod.HTTP2}, "a", "b")
	s := serve(t, "retry_budget 1\ntransport http {\nversions h2c\n}\n"+inOrder+single(ps))
	cl := s.Client(t, testcaddy.H2)
	ps[0].Set(fakepod.Reply{Cut: fakepod.Abort})
	for n := range 3 {
		wantError(t, cl.Post(t, chatPath, chat(fmt.Sprint(n))), http.StatusBadGateway)
	}
	if ps[0].Count() != 3 || ps[1].Count() != 0 {
		t.Errorf("after streams that were reset: the pods got %v", ps.Counts())
	}
	ps[0].Clear()
	for n := range 4 {
		ps[0].ResetConns()
		ps[0].WaitOpen(t, 0)
		if a := cl.Post(t, chatPath, chat(fmt.Sprint("again ", n))); a.Status != 200 || a.Pod() != "a" {
			t.Errorf("after its connection was reset: %v", a)
		}
	}
	s.waitCount(t, 0, "calinix_retries_total")
	ps[0].Refuse()
	if a := cl.Post(t, chatPath, chat("elsewhere")); a.Status != 200 || a.Pod() != "b" {
		t.Errorf("when it is gone: %v", a)
	}
	s.waitCount(t, 1, "calinix_retries_total", "reason", "unreachable")
	s.waitIdle(t, ps)
}
