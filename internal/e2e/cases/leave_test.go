package cases_test

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/cases"
	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// leaver is a client that goes away before it has got an answer.
type leaver struct {
	began time.Time
	leave context.CancelFunc
	gone  chan struct{} // closed when the client's call has returned
}

// sendAndLeave sends the request of a case and returns at once.
func sendAndLeave(t *testing.T, cl *testcaddy.Client, r cases.Request) *leaver {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	req, err := r.HTTP(ctx, cl.Base)
	if err != nil {
		t.Fatal(err)
	}
	l := &leaver{began: time.Now(), leave: leave, gone: make(chan struct{})}
	go func() {
		defer close(l.gone)
		if a := cl.Send(req); a.Err == nil {
			t.Errorf("%s %d was answered: %v", r.Name, r.N, a)
		}
	}()
	return l
}

// leaveAfter leaves when so long has passed since the request began, and returns
// when that was.
func (l *leaver) leaveAfter(d time.Duration) time.Time {
	time.Sleep(time.Until(l.began.Add(d)))
	left := time.Now()
	l.leave()
	<-l.gone
	return left
}

// TestBR03: a client gives up before the first byte.
func TestBR03(t *testing.T) {
	c := begin(t)
	// without TLS: of 40 handshakes at once none would be done within 100 ms
	s := serveOnly(t, "a", ab, testcaddy.Plain())
	a := s.pods.Pod("a")
	cl := s.Client(t, testcaddy.H1)
	a.Set(fakepod.Reply{Delay: 5 * time.Second})
	for _, stream := range []string{"true", "false"} {
		s.pods.Forget()
		var requests []cases.Request
		for r := range c.Requests("abandoned") {
			r.Body = bytes.Replace(r.Body, []byte(`"stream":true`), []byte(`"stream":`+stream), 1)
			requests = append(requests, r)
		}
		var wg sync.WaitGroup
		for _, r := range requests {
			wg.Go(func() {
				if got := cl.SendCase(t, r); got.Err == nil {
					t.Errorf("abandoned %d was answered: %v", r.N, got)
				}
			})
		}
		wg.Wait()
		left := time.Now()
		c.expect(t, 1, "after the aborts any in-flight gauge", func(t *testing.T) {
			s.waitCount(t, 0, "calinix_pod_inflight", "pod", "a")
			if took := time.Since(left); took > time.Second {
				t.Errorf("the gauge returned to 0 after %v", took)
			}
			a.WaitInFlight(t, 0)
			if n := a.Count(); n == 0 {
				t.Error("no request reached the pod: nothing was tried")
			}
		})
	}

	s.pods.Set(fakepod.Reply{Delay: 300 * time.Millisecond})
	s.all(t)
	s.pods.Forget()
	after := cl.SendCases(t, c.Requests("after"))
	c.expect(t, 2, "'after' (20 at once", func(t *testing.T) {
		wantStatus(t, 200, after...)
		if n := a.Count(); n < 6 || n > 14 {
			t.Errorf("received: %v", s.pods.Counts())
		}
	})
}

// TestBR06: a client leaves during a silent prefill.
func TestBR06(t *testing.T) {
	c := begin(t)
	s := serveSingle(t, ab)
	s.pods.Set(fakepod.Reply{Delay: 10 * time.Second})
	s.all(t)
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		for r := range c.Requests() {
			s.pods.Forget()
			pod := s.pick(t, r)
			l := sendAndLeave(t, cl, r)
			pod.WaitRequests(t, 1)
			left := l.leaveAfter(300 * time.Millisecond)
			c.expect(t, 1, "for each: the pod sees its connection closed", func(t *testing.T) {
				took := pod.WaitClosed(t, 1).ClosedAt.Sub(left)
				t.Logf("%s over %v: the pod saw it after %v", r.Name, cl.Protocol, took)
				if took > time.Second {
					t.Errorf("%s: the pod saw it after %v", r.Name, took)
				}
			})
			s.waitIdle(t)
			c.expect(t, 2, "the pod is not marked unhealthy", func(t *testing.T) {
				s.wantUp(t, "a", "b")
				if n := pod.Count(); n != 1 {
					t.Errorf("%s: the pod received %d requests", r.Name, n)
				}
			})
			c.expect(t, 3, "nothing is retried at the other pod", func(t *testing.T) {
				if n := s.pods.Total(); n != 1 {
					t.Errorf("%s: received: %v", r.Name, s.pods.Counts())
				}
				s.wantCount(t, 0, "calinix_retries_total")
			})
		}
	})
}

// TestBR48: a client leaves between the legs.
func TestBR48(t *testing.T) {
	c := begin(t)
	s := serveDispatch(t)
	s.prefill.Set(fakepod.Reply{Delay: 3 * time.Second})
	s.all(t)
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		s.pods.Forget()
		requests := c.Named(t, "leave")
		var leavers []*leaver
		for _, r := range requests {
			leavers = append(leavers, sendAndLeave(t, cl, r))
		}
		s.waitCount(t, float64(len(requests)), "calinix_pod_inflight", "role", "prefill")
		var left time.Time
		for _, l := range leavers {
			left = l.leaveAfter(500 * time.Millisecond)
		}
		c.expect(t, 1, "the prefill pod sees its connection closed", func(t *testing.T) {
			for _, p := range s.prefill {
				for n := range p.Count() {
					if q := p.WaitClosed(t, n+1); q.ClosedAt.Sub(left) > time.Second {
						t.Errorf("%v, %v after the abort", q, q.ClosedAt.Sub(left))
					}
				}
			}
		})
		c.expect(t, 3, "in-flight of all pods is 0 after 1 s", func(t *testing.T) {
			s.waitIdle(t)
			if took := time.Since(left); took > time.Second {
				t.Errorf("in-flight returned to 0 after %v", took)
			}
		})
		c.expect(t, 2, "no decode pod receives anything", func(t *testing.T) {
			if n := s.decode.Total(); n != 0 {
				t.Errorf("received: %v", s.pods.Counts())
			}
		})
	})
}
