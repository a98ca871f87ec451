package fakepod

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Patience is how long the Wait functions wait before they end the test. It
// only matters for tests that fail.
var Patience = 10 * time.Second

// State is what a pod has seen, at one moment.
type State struct {
	Requests    []Request // without probes, in order of arrival
	Probes      []Request
	Conns       []Conn
	InFlight    int // requests, not probes, whose exchange runs
	MaxInFlight int // the most at once since the last Forget
}

// State returns a copy of what the pod has seen.
func (p *Pod) State() State {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state()
}

func (p *Pod) state() State {
	s := State{InFlight: p.inFlight, MaxInFlight: p.maxSeen}
	for _, q := range p.requests.list {
		s.Requests = append(s.Requests, *q)
	}
	for _, q := range p.probes.list {
		s.Probes = append(s.Probes, *q)
	}
	for _, c := range p.connLog {
		s.Conns = append(s.Conns, *c)
	}
	return s
}

// Requests returns what the pod has received, without probes.
func (p *Pod) Requests() []Request { return p.State().Requests }

// Probes returns the GETs of the health path.
func (p *Pod) Probes() []Request { return p.State().Probes }

// Conns returns every connection that was ever accepted.
func (p *Pod) Conns() []Conn { return p.State().Conns }

// Count is the number of requests received since the last Forget, without
// probes and also of those whose record Keep has dropped.
func (p *Pod) Count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests.begun
}

// InFlight is the number of requests whose exchange runs.
func (p *Pod) InFlight() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.inFlight
}

// MaxInFlight is the most requests that ran at once since the last Forget.
func (p *Pod) MaxInFlight() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.maxSeen
}

// Last returns the latest request and ends the test if there is none.
func (p *Pod) Last(tb testing.TB) Request {
	tb.Helper()
	all := p.Requests()
	if len(all) == 0 {
		tb.Fatalf("pod %s has received nothing", p.Name)
	}
	return all[len(all)-1]
}

// Forget drops the records of requests and probes, so that numbers start again
// from 1. Connections are kept, as are scripts.
func (p *Pod) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests.forget()
	p.probes.forget()
	p.maxSeen = p.inFlight
	p.notify()
}

// Wait waits until cond is true of the pod's state and returns that state. what
// completes the sentence "pod a: timed out waiting for …". cond runs under the
// pod's lock at every change and must not call its methods.
func (p *Pod) Wait(tb testing.TB, what string, cond func(State) bool) State {
	tb.Helper()
	var s State
	p.await(tb, what, func() bool {
		s = p.state()
		return cond(s)
	})
	return s
}

// await is Wait for conditions that look at the pod itself, without a copy.
func (p *Pod) await(tb testing.TB, what string, cond func() bool) {
	tb.Helper()
	timeout := time.NewTimer(Patience)
	defer timeout.Stop()
	for {
		p.mu.Lock()
		ok, changed := cond(), p.changed
		p.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-timeout.C:
			tb.Fatalf("pod %s: timed out after %v waiting for %s; it has seen\n%v", p.Name, Patience, what, p.State())
		}
	}
}

// awaitRequest waits until the n-th request is there and cond is true of it.
func (p *Pod) awaitRequest(tb testing.TB, n int, what string, cond func(*Request) bool) Request {
	tb.Helper()
	var found Request
	p.await(tb, fmt.Sprintf(what, n), func() bool {
		q := p.requests.find(n)
		if q == nil || !cond(q) {
			return false
		}
		found = *q
		return true
	})
	return found
}

// WaitRequests waits until n requests have come and their bodies have been
// read (as far as they will be) and returns all that are there.
func (p *Pod) WaitRequests(tb testing.TB, n int) []Request {
	tb.Helper()
	p.await(tb, fmt.Sprintf("%d requests", n), func() bool { return p.requests.read >= n })
	return p.Requests()
}

// WaitHead waits until the head of the n-th request has been read; its body may
// still be on its way.
func (p *Pod) WaitHead(tb testing.TB, n int) Request {
	tb.Helper()
	return p.awaitRequest(tb, n, "the head of request %d", func(*Request) bool { return true })
}

// WaitEnded waits until the exchange of the n-th request is over.
func (p *Pod) WaitEnded(tb testing.TB, n int) Request {
	tb.Helper()
	return p.awaitRequest(tb, n, "the end of request %d", func(q *Request) bool { return q.End != Running })
}

// WaitClosed waits until the peer has left before the end of the n-th
// request's answer.
func (p *Pod) WaitClosed(tb testing.TB, n int) Request {
	tb.Helper()
	return p.awaitRequest(tb, n, "the peer of request %d to leave early", func(q *Request) bool { return q.ClosedEarly })
}

// WaitSent waits until k pieces of the n-th request's answer have been sent.
func (p *Pod) WaitSent(tb testing.TB, n, k int) Request {
	tb.Helper()
	return p.awaitRequest(tb, n, fmt.Sprintf("%d pieces of the answer to request %%d", k), func(q *Request) bool {
		return len(q.Sent) >= k
	})
}

// WaitInFlight waits until exactly n exchanges run, probes not counted.
func (p *Pod) WaitInFlight(tb testing.TB, n int) {
	tb.Helper()
	p.await(tb, fmt.Sprintf("%d requests in flight", n), func() bool { return p.inFlight == n })
}

// WaitOpen waits until exactly n connections are open.
func (p *Pod) WaitOpen(tb testing.TB, n int) {
	tb.Helper()
	p.await(tb, fmt.Sprintf("%d open connections", n), func() bool { return len(p.conns) == n })
}

// WaitProbes waits until n more probes than now have been answered, whatever
// the answer.
func (p *Pod) WaitProbes(tb testing.TB, n int) {
	tb.Helper()
	p.waitProbes(tb, p.probesEnded()+n)
}

// waitProbes waits until n probes in all have been answered.
func (p *Pod) waitProbes(tb testing.TB, n int) {
	tb.Helper()
	p.await(tb, fmt.Sprintf("%d answered probes", n), func() bool { return p.probes.ended >= n })
}

func (p *Pod) probesEnded() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.probes.ended
}

// Open is the number of open connections.
func (s State) Open() int {
	n := 0
	for k := range s.Conns {
		if s.Conns[k].Closed.IsZero() {
			n++
		}
	}
	return n
}

// String lists what has been seen, for a test's output.
func (s State) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "  %d requests (%d in flight), %d probes, %d connections (%d open)\n",
		len(s.Requests), s.InFlight, len(s.Probes), len(s.Conns), s.Open())
	for k := max(0, len(s.Requests)-20); k < len(s.Requests); k++ {
		fmt.Fprintf(&b, "  %v\n", s.Requests[k])
	}
	return b.String()
}
