package calinix_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quic-go/quic-go/http3"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// noticeWithin is how soon a pod must see that the client has left. On an idle
// machine it takes some milliseconds; the tests log how long it took.
const noticeWithin = time.Second

// cancelSite is a site with two pods of each role, and a gate.
type cancelSite struct {
	*site
	all   fakepod.Pods
	roles [3]fakepod.Pods // by ofSingle, ofPrefill, ofDecode
}

// Indices of cancelSite.roles.
const (
	ofSingle = iota
	ofPrefill
	ofDecode
	nobody // whose the request is when the client leaves
)

func serveCancel(t *testing.T) *cancelSite {
	t.Helper()
	all := pods(t, "s1", "s2", "p1", "p2", "d1", "d2")
	s := &cancelSite{all: all, roles: [3]fakepod.Pods{all[:2], all[2:4], all[4:]}}
	s.site = serveBehind(t, "gate", "retries 3\nretry_budget 1\nretry_status 500\nheader_up X-Leg {gate.leg}\n"+
		single(s.roles[ofSingle])+dispatch(s.roles[ofPrefill], s.roles[ofDecode], "on_prefill_failure decode_only"))
	return s
}

// busy waits until the pods have got n requests, of which the last has been read
// and is not answered, and returns the pod that has it.
func busy(t testing.TB, ps fakepod.Pods, n int) *fakepod.Pod {
	t.Helper()
	for deadline := time.Now().Add(testcaddy.Patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		var last fakepod.Request
		for _, q := range ps.Received() {
			if q.Time.After(last.Time) {
				last = q
			}
		}
		if ps.Total() >= n && last.BodyRead && last.End == fakepod.Running {
			return ps.Pod(last.Pod)
		}
	}
	t.Fatalf("none of the pods has request %d: %v", n, ps.Counts())
	return nil
}

// phase is a moment of a request at which its client leaves.
type phase struct {
	name string
	mode string
	// at is the role of the pod that has the request when the client leaves;
	// or nobody: then the gate holds it at the place.
	at    int
	place int32
	// replies are what the pods of a role do.
	replies [3]fakepod.Script
	// events is how much of the answer the client has read; -1: it has no
	// answer; 0: it has one and leaves it until everything between it and the pod is
	// full.
	events int
	// contacted is how many requests single, prefill and decode pods have got in
	// the end.
	contacted [3]int
	retries   float64
}

var (
	silent = fakepod.Reply{Silent: true}
	// Made once: the pods compose other answers anew for each request.
	endless = fakepod.Reply{Events: slices.Repeat([]string{"data: {\"n\":1}\n\n"}, 5000), Gap: 5 * time.Millisecond}
	large   = fakepod.Reply{Events: slices.Repeat([]string{"data: " + strings.Repeat("x", 256<<10) + "\n\n"}, 128), Gap: fakepod.NoGap}
	paused  = fakepod.Reply{Stream: fakepod.Always, PauseAfter: 2, Pause: time.Hour}
	failed  = fakepod.Reply{Status: 500}
	// firstFails: the first request of a chat fails, the second one waits.
	firstFails = fakepod.Func(func(q fakepod.Request) fakepod.Reply {
		if q.Header.Get("X-Leg") == firstLeg(q) {
			return failed
		}
		return silent
	})
)

// firstLeg is the number of the first leg at a pod of that role.
func firstLeg(q fakepod.Request) string {
	if strings.HasPrefix(q.Pod, "d") {
		return "2"
	}
	return "1"
}

var phases = []phase{
	{name: "before the pick", mode: "single", at: nobody, place: 0, events: -1},
	{name: "before the pick", mode: "dispatch", at: nobody, place: 0, events: -1},
	{name: "before the leg is sent", mode: "single", at: nobody, place: 1, events: -1},
	{name: "waiting for headers", mode: "single", at: ofSingle, replies: [3]fakepod.Script{silent, nil, nil}, events: -1, contacted: [3]int{1, 0, 0}},
	{name: "waiting for headers", mode: "dispatch", at: ofDecode, replies: [3]fakepod.Script{nil, nil, silent}, events: -1, contacted: [3]int{0, 1, 1}},
	{name: "prefill leg", mode: "dispatch", at: ofPrefill, replies: [3]fakepod.Script{nil, silent, nil}, events: -1, contacted: [3]int{0, 1, 0}},
	{name: "in the prefill pod's answer", mode: "dispatch", at: ofPrefill, replies: [3]fakepod.Script{nil, paused, nil}, events: -1, contacted: [3]int{0, 1, 0}},
	{name: "between the legs", mode: "dispatch", at: nobody, place: 2, events: -1, contacted: [3]int{0, 1, 0}},
	{name: "in a busy stream", mode: "single", at: ofSingle, replies: [3]fakepod.Script{endless, nil, nil}, events: 2, contacted: [3]int{1, 0, 0}},
	{name: "in a silent stream", mode: "single", at: ofSingle, replies: [3]fakepod.Script{paused, nil, nil}, events: 2, contacted: [3]int{1, 0, 0}},
	{name: "in a silent stream", mode: "dispatch", at: ofDecode, replies: [3]fakepod.Script{nil, nil, paused}, events: 2, contacted: [3]int{0, 1, 1}},
	{name: "while it does not read", mode: "single", at: ofSingle, replies: [3]fakepod.Script{large, nil, nil}, events: 0, contacted: [3]int{1, 0, 0}},
	{name: "before a retry is sent", mode: "single", at: nobody, place: 2, replies: [3]fakepod.Script{failed, nil, nil}, events: -1, contacted: [3]int{1, 0, 0}, retries: 1},
	{name: "during a retry", mode: "single", at: ofSingle, replies: [3]fakepod.Script{firstFails, nil, nil}, events: -1, contacted: [3]int{2, 0, 0}, retries: 1},
	{name: "before a prefill leg is repeated", mode: "dispatch", at: nobody, place: 2, replies: [3]fakepod.Script{nil, failed, nil}, events: -1, contacted: [3]int{0, 1, 0}, retries: 1},
	{name: "during a repeated prefill leg", mode: "dispatch", at: ofPrefill, replies: [3]fakepod.Script{nil, firstFails, nil}, events: -1, contacted: [3]int{0, 2, 0}, retries: 1},
	{name: "during a retry", mode: "dispatch", at: ofDecode, replies: [3]fakepod.Script{nil, nil, firstFails}, events: -1, contacted: [3]int{0, 2, 2}, retries: 1},
}

// leavings are how a client can go: it gives up one request, or its connection
// ends with everything on it.
var leavings = map[string]func(cl *testcaddy.Client) (leave func(cancel context.CancelFunc)){
	"cancelled":         func(*testcaddy.Client) func(context.CancelFunc) { return func(cancel context.CancelFunc) { cancel() } },
	"connection broken": breaking,
}

// breaking makes the client one whose connection can be broken.
func breaking(cl *testcaddy.Client) func(context.CancelFunc) {
	if tr, ok := cl.HTTP.Transport.(*http3.Transport); ok {
		return func(context.CancelFunc) { tr.Close() }
	}
	var mu sync.Mutex
	var open []*net.TCPConn
	cl.HTTP.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			open = append(open, c.(*net.TCPConn))
		}
		return c, err
	}
	return func(context.CancelFunc) {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range open {
			c.SetLinger(0)
			c.Close()
		}
	}
}

// TestCancel: in every phase of a request, over every protocol, a client that
// leaves is noticed: the leg that runs is broken off at its pod, no load and no
// goroutine is left behind, and nothing else is sent to anybody.
func TestCancel(t *testing.T) {
	s := serveCancel(t)
	for _, ph := range phases {
		for how, leaving := range leavings {
			t.Run(strings.ReplaceAll(ph.mode+", "+ph.name+", "+how, " ", "_"), func(t *testing.T) {
				s.Each(t, func(t *testing.T, cl *testcaddy.Client) { s.leaveIn(t, &ph, cl, leaving(cl)) })
			})
		}
	}
	s.waitIdle(t, s.all)
}

// leaveIn is one request whose client leaves in the phase.
func (s *cancelSite) leaveIn(t *testing.T, ph *phase, cl *testcaddy.Client, leave func(context.CancelFunc)) {
	t.Helper()
	s.all.Forget()
	for _, p := range s.all {
		p.Clear()
	}
	for role, reply := range ph.replies {
		if reply != nil {
			s.roles[role].Set(reply)
		}
	}
	var g *gate
	if ph.at == nobody {
		g = newGate(t, ph.place)
	}
	retries := s.count(t, "calinix_retries_total")
	ctx, cancel := testContext(t)
	id := fmt.Sprintf("cancel-%d", balancers.Add(1))
	req := cl.Request(ctx, t, http.MethodPost, chatPath, chat(words(id, 40), `"stream":true`), "x-calinix-mode", ph.mode, "x-calinix-request-id", id)
	read, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		readEvents(cl, req, ph.events, read)
	}()

	var p *fakepod.Pod
	switch {
	case g != nil:
		g.wait(t)
	default:
		if ph.events >= 0 {
			await(t, read, "the answer's beginning")
		}
		p = busy(t, s.roles[ph.at], ph.contacted[ph.at])
		if ph.events == 0 {
			untilStuck(t, p)
		}
	}
	left := time.Now()
	leave(cancel)
	var noticed time.Time
	if g != nil {
		noticed = g.noticed(t)
	} else {
		noticed = p.WaitClosed(t, p.Count()).ClosedAt
	}
	if took := noticed.Sub(left); took > noticeWithin {
		t.Errorf("noticed after %v", took)
	} else {
		t.Logf("noticed after %v", took.Round(10*time.Microsecond))
	}

	e := s.logged(t, id)
	if !e.Has("calinix_outcome", "client_gone") {
		t.Errorf("logged as %s", e.Line)
	}
	if ph.events < 0 && !e.Has("status", "499") {
		t.Errorf("logged with status %v", e.Fields["status"])
	}
	cancel()
	await(t, gone, "the client's end")
	s.waitIdle(t, s.all)
	waitParted(t)
	if got := [3]int{s.roles[ofSingle].Total(), s.roles[ofPrefill].Total(), s.roles[ofDecode].Total()}; got != ph.contacted {
		t.Errorf("single, prefill and decode pods got %v requests, want %v", got, ph.contacted)
	}
	if got := s.count(t, "calinix_retries_total") - retries; got != ph.retries {
		t.Errorf("%v retries, want %v", got, ph.retries)
	}
	if n := s.count(t, "calinix_prefill_failures_total"); n > 0 && ph.mode == "single" {
		t.Errorf("%v prefill failures", n)
	}
}

// readEvents sends a request and reads its answer to the end, or until the client
// has left. It closes read when it has so many events; with 0 it then reads no more.
func readEvents(cl *testcaddy.Client, req *http.Request, n int, read chan<- struct{}) {
	resp, err := cl.HTTP.Do(req)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	events := testcaddy.NewStream(resp.Body)
	for k := 0; ; k++ {
		if k == n {
			close(read)
		}
		if n == 0 {
			<-req.Context().Done()
		}
		if _, err := events.Next(); err != nil {
			return
		}
	}
}

// untilStuck waits until the pod has not been able to send more for a while.
func untilStuck(t testing.TB, p *fakepod.Pod) {
	t.Helper()
	sent, since := -1, time.Now()
	for deadline := since.Add(testcaddy.Patience); time.Since(since) < 50*time.Millisecond; time.Sleep(time.Millisecond) {
		if n := len(p.Last(t).Sent); n != sent {
			sent, since = n, time.Now()
		}
		if time.Now().After(deadline) {
			t.Fatalf("the pod still sends: %d pieces", sent)
		}
	}
	if p.Last(t).End != fakepod.Running {
		t.Fatalf("all of the answer has fitted between pod and client: %v", p.Last(t))
	}
}

// await waits for a channel to be closed.
func await(t testing.TB, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(testcaddy.Patience):
		t.Fatalf("timed out after %v waiting for %s", testcaddy.Patience, what)
	}
}

// TestCancelDial: a client that leaves while the connection to its pod is not
// made yet takes its load with it, and no other pod is tried.
func TestCancelDial(t *testing.T) {
	other := pods(t, "b")
	s := &site{balancer: fmt.Sprintf("test-%d", balancers.Add(1))}
	// Before its first probe has come to something, a pod counts as up.
	s.Caddy = testcaddy.Serve(t, s.body("tie_break pod_id\nhealth {\ninterval 1h\ntimeout 1h\n}\ntransport http {\ndial_timeout 1h\n}\n"+
		"single {\npod a http://"+fakepod.Blackhole(t)+"\n"+podList(other)+"}\n"))
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		id := fmt.Sprintf("dial-%d", balancers.Add(1))
		ctx, cancel := testContext(t)
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			cl.Send(cl.Request(ctx, t, http.MethodPost, chatPath, question, "x-calinix-request-id", id))
		}()
		s.waitCount(t, 1, "calinix_pod_inflight", "pod", "a")
		left := time.Now()
		cancel()
		if e := s.logged(t, id); !e.Has("calinix_outcome", "client_gone") || !e.Has("status", "499") {
			t.Errorf("logged as %s", e.Line)
		}
		if took := time.Since(left); took > noticeWithin {
			t.Errorf("noticed after %v", took)
		}
		await(t, gone, "the client's end")
		s.waitIdle(t, other)
	})
	if n := other.Total(); n != 0 {
		t.Errorf("the other pod got %d requests", n)
	}
}

// TestCancelUpload: a client that leaves in the middle of its body, announced or
// not, has asked for nothing: no pod hears of it.
func TestCancelUpload(t *testing.T) {
	s := serveCancel(t)
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		for _, length := range []int64{100_000, -1} {
			for how, leaving := range leavings {
				leave := leaving(cl)
				id := fmt.Sprintf("upload-%d", balancers.Add(1))
				g := newGate(t, entered)
				ctx, cancel := testContext(t)
				r, w := io.Pipe()
				req := cl.Request(ctx, t, http.MethodPost, chatPath, "x", "x-calinix-request-id", id)
				req.Body, req.ContentLength = r, length
				gone := make(chan struct{})
				go func() {
					defer close(gone)
					cl.Send(req)
				}()
				io.WriteString(w, strings.Repeat("x", 60_000))
				g.wait(t)
				left := time.Now()
				leave(cancel)
				w.CloseWithError(context.Canceled)
				if e := s.logged(t, id); !e.Has("calinix_outcome", "client_gone") || !e.Has("status", "499") {
					t.Errorf("length %d, %s: logged as %s", length, how, e.Line)
				}
				if took := time.Since(left); took > noticeWithin {
					t.Errorf("length %d, %s: noticed after %v", length, how, took)
				} else {
					t.Logf("length %d, %s: noticed and logged after %v", length, how, took.Round(10*time.Microsecond))
				}
				await(t, gone, "the client's end")
				if how == "connection broken" {
					cl = s.Client(t, cl.Protocol)
				}
			}
		}
	})
	s.waitIdle(t, s.all)
	if n := s.all.Total(); n != 0 {
		t.Errorf("pods got %v", s.all.Counts())
	}
}
