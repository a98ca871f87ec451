package testcaddy

import (
	"context"
	"iter"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/cases"
)

// Sent is a request of a case and the answer to it.
type Sent struct {
	cases.Request
	*Answer
}

// SendCase sends a request of a case and returns the whole answer. If the case
// says so (AbortAfter), the client leaves then; Err is context.DeadlineExceeded.
func (c *Client) SendCase(tb testing.TB, r cases.Request) *Answer {
	tb.Helper()
	return c.sendFor(c.caseRequest(tb.Context(), tb, &r), r.AbortAfter)
}

// sendFor sends the request and leaves after that long, if it is not 0.
func (c *Client) sendFor(req *http.Request, patience time.Duration) *Answer {
	if patience > 0 {
		ctx, cancel := context.WithTimeout(req.Context(), patience)
		defer cancel()
		req = req.WithContext(ctx)
	}
	return c.Send(req)
}

// StreamCase sends a request of a case and returns when the answer's headers are
// there. When to leave is the test's business.
func (c *Client) StreamCase(tb testing.TB, r cases.Request) *Stream {
	tb.Helper()
	ctx, leave := context.WithCancel(tb.Context())
	s, err := c.open(tb, c.caseRequest(ctx, tb, &r), leave)
	if err != nil {
		tb.Fatalf("opening a stream: %v", err)
	}
	return s
}

// SendCases sends requests in order, as many at once as each says (Concurrency;
// one after another by default), and returns the answers in the same order.
func (c *Client) SendCases(tb testing.TB, requests iter.Seq[cases.Request]) []Sent {
	tb.Helper()
	var mu sync.Mutex
	var all []*Sent
	var wg sync.WaitGroup
	running := 0
	slot := sync.NewCond(&mu)
	for r := range requests {
		mu.Lock()
		for running >= max(1, r.Concurrency) {
			slot.Wait()
		}
		running++
		s := &Sent{Request: r}
		all = append(all, s)
		mu.Unlock()
		req := c.caseRequest(tb.Context(), tb, &r) // here: it may end the test
		wg.Go(func() {
			a := c.sendFor(req, r.AbortAfter)
			mu.Lock()
			s.Answer = a
			running--
			slot.Signal()
			mu.Unlock()
		})
	}
	wg.Wait()
	done := make([]Sent, len(all))
	for k, s := range all {
		done[k] = *s
	}
	return done
}

// Pods counts the answers by the fake pod that they came from; "" counts those
// from no pod.
func Pods(sent []Sent) map[string]int {
	n := map[string]int{}
	for _, s := range sent {
		n[s.Pod()]++
	}
	return n
}

// caseRequest makes the request. Headers that speak of an HTTP/1.1 connection
// cannot be sent over HTTP/2 and HTTP/3 and are left out there.
func (c *Client) caseRequest(ctx context.Context, tb testing.TB, r *cases.Request) *http.Request {
	tb.Helper()
	req, err := r.HTTP(ctx, c.Base)
	if err != nil {
		tb.Fatal(err)
	}
	if c.Protocol != H1 {
		req.Header.Del("Connection")
	}
	return req
}
