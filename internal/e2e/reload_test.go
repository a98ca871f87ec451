package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/enginesim"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

const reloads = 50

// TestReloadsUnderLoad: 50 reloads while streams run, half of which change
// something that is not the balancer's, the other half add or remove a pod. No
// stream is cut, no block of a pod that stays is forgotten, no goroutine, leg or
// reference is left over.
//
// The engines are not part of the configuration, so whatever breaks, breaks in
// front of them.
func TestReloadsUnderLoad(t *testing.T) {
	for _, mode := range []string{"single", "dispatch"} {
		t.Run(mode, func(t *testing.T) { reloadUnderLoad(t, mode) })
	}
}

func reloadUnderLoad(t *testing.T, mode string) {
	testcaddy.NoLeaks(t)
	set := fastSettings()
	set.DecodeTokensPerSecond = 120
	peers := enginesim.NewPeers()
	engines := map[string]*enginesim.Engine{}
	pods := func(ids ...string) (list []pod) {
		for _, id := range ids {
			engine, url := servedBy(t, set, peers)
			engines[id] = engine
			list = append(list, pod{id, url})
		}
		return list
	}
	p := &plan{port: testcaddy.Port(t), global: "grace_period 5m"} // HTTP/3 streams end with the grace period of a reload
	var spare plan                                                 // the pods that come and go
	if mode == "single" {
		p.single, spare.single = pods("a", "b", "c"), pods("x")
	} else {
		p.prefill, p.decode = pods("a", "b"), pods("c", "d")
		spare.prefill, spare.decode = pods("x"), pods("y")
	}
	s := p.run(t, testcaddy.LogLevel("INFO")) // less to write, and see TestServesFromTheStart

	l := newLoad(t, s)
	var warm sync.WaitGroup
	for k := range l.bodies { // everything is known once, and every goroutine there
		warm.Go(func() { l.once(t, k, testcaddy.All[k%3]) })
	}
	warm.Wait()
	if t.Failed() {
		return
	}
	s.WaitMetric(t, float64(len(engines)-len(spare.single)-len(spare.prefill)-len(spare.decode)), "calinix_pod_up")
	s.WaitMetric(t, 0, "calinix_pod_inflight")
	known := make([]running, len(l.bodies))
	for k, body := range l.bodies {
		known[k] = s.look(t, body)
		if deepest(known[k].explain) < 4 {
			t.Fatalf("prompt %d is known to a depth of %v", k, known[k].explain)
		}
	}
	mine := ownGoroutines()
	asked := s.Metrics(t).Sum("calinix_requests_total") // counters outlive a Caddy
	l.whole.Store(0)

	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	var long []*longStream // that outlast all reloads, one a protocol
	for _, protocol := range testcaddy.All {
		long = append(long, openLong(t, s.client(t, protocol)))
	}
	for k := range 6 {
		wg.Go(func() {
			for n := k; ctx.Err() == nil; n += 5 {
				l.once(t, n%len(l.bodies), testcaddy.All[k%3])
			}
		})
	}
	began := time.Now()
	for k := 1; k <= reloads; k++ {
		next := *p
		next.site = fmt.Sprintf("respond /generation %d", k)
		next.calinix = fmt.Sprintf("max_body_bytes %d", 1<<20+k)
		if k%4 >= 2 { // comes at every fourth reload, stays for one, and goes
			next.single = append(append([]pod(nil), p.single...), spare.single...)
			next.prefill = append(append([]pod(nil), spare.prefill...), p.prefill...)
			next.decode = append(append([]pod(nil), p.decode...), spare.decode...)
		}
		s.Reload(t, next.caddyfile())
		body := k % len(l.bodies)
		if now := s.look(t, l.bodies[body]); shallower(known[body].explain, now.explain) {
			t.Errorf("reload %d: prompt %d was known to %v, is known to %v", k, body, known[body].explain, now.explain)
		}
		l.turns(t, 1) // some requests between two reloads
	}
	took := time.Since(began)
	for _, stream := range long {
		stream.goesOn(t, l.long)
	}
	s.Reload(t, p.caddyfile())
	stop()
	wg.Wait()

	t.Logf("%d reloads in %v: %d streams whole, none cut; %d new connections closed by Caddy before an answer",
		reloads, took.Round(time.Millisecond), l.whole.Load(), l.refused.Load())
	m := s.WaitMetric(t, 0, "calinix_pod_inflight")
	legs := float64(l.whole.Load() + int64(len(long)))
	if mode == "dispatch" {
		legs *= 2
	}
	if n := m.Sum("calinix_requests_total") - asked; n != legs {
		t.Errorf("%v legs were counted, want %v: requests on connections that were closed must not have reached us", n, legs)
	}
	for id, e := range engines {
		eventually(t, "engine "+id+" to be idle", func() bool { st := e.Stats(); return st.Running+st.Waiting+st.Leases == 0 })
	}
	for k, body := range l.bodies {
		if now := s.look(t, body); shallower(known[k].explain, now.explain) {
			t.Errorf("at the end: prompt %d was known to %v, is known to %v", k, known[k].explain, now.explain)
		}
	}
	eventually(t, fmt.Sprintf("our goroutines to be %v again", counts(mine)), func() bool {
		return counts(ownGoroutines()) == counts(mine)
	})

	// Nobody holds the state any more: the same configuration begins anew.
	s.Stop()
	s = p.run(t, testcaddy.LogLevel("INFO"))
	if now := s.look(t, l.bodies[0]); now.blocks != 0 || deepest(now.explain) != 0 {
		t.Errorf("the state has outlived the last configuration: %+v", now)
	}
}

// load is what clients ask again and again during the reloads.
type load struct {
	s      *site
	bodies []string
	want   []said
	long   string // the answer to the long streams, in whole

	whole, refused atomic.Int64
}

func newLoad(t *testing.T, s *site) *load {
	t.Helper()
	l := &load{s: s}
	set := fastSettings()
	set.DecodeTokensPerSecond = 1e5
	_, url := newEngine(t, set)
	for k := range 24 {
		l.bodies = append(l.bodies, streamBody(prose(fmt.Sprint("prompt ", k), 80), 30))
		l.want = append(l.want, direct(t, url, l.bodies[k]))
	}
	l.long = direct(t, url, longBody).text
	return l
}

// once asks for one of the prompts on a connection of its own. A connection that
// Caddy closes at a reload before anything was answered is counted (net/http's
// server does so if it is told to shut down while it reads a connection's first
// request); everything else but the whole answer is an error. That such requests
// did not reach the handler is checked at the end.
func (l *load) once(t *testing.T, k int, protocol testcaddy.Protocol) {
	t.Helper()
	cl := testcaddy.NewClient(t, protocol, l.s.url())
	defer cl.HTTP.CloseIdleConnections()
	if c, ok := cl.HTTP.Transport.(io.Closer); ok { // HTTP/3
		defer c.Close()
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	patience := time.AfterFunc(time.Minute, cancel)
	if protocol == testcaddy.H3 {
		// A QUIC connection that is made while its listener changes hands may
		// never hear of it.
		patience.Reset(testcaddy.Patience)
	}
	resp, err := cl.HTTP.Do(cl.Request(ctx, t, http.MethodPost, "/v1/chat/completions", l.bodies[k]))
	if err != nil {
		if ctx.Err() != nil && protocol != testcaddy.H3 {
			t.Errorf("over %v: no answer in a minute: %v", protocol, err)
		}
		l.refused.Add(1)
		return
	}
	patience.Reset(time.Minute)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
		t.Errorf("over %v: %s, %s", protocol, resp.Status, text)
		return
	}
	got, err := hear(resp.Body)
	got.cached = l.want[k].cached
	if err != nil || got != l.want[k] {
		t.Errorf("over %v: cut: %v\ngot  %+v\nwant %+v", protocol, err, got, l.want[k])
		return
	}
	l.whole.Add(1)
}

// turns waits until n more streams have come to their end.
func (l *load) turns(t *testing.T, n int64) {
	t.Helper()
	upto := l.whole.Load() + n
	eventually(t, "streams to end between two reloads", func() bool { return l.whole.Load() >= upto || t.Failed() })
}

// longStream is a stream that is read while the reloads happen.
type longStream struct {
	protocol testcaddy.Protocol
	stream   *testcaddy.Stream
	tokens   atomic.Int64
	done     chan struct{} // closed when reading has ended
	text     strings.Builder
	err      error
}

var longBody = streamBody(prose("a story without end", 40), 20000)

func openLong(t *testing.T, cl *testcaddy.Client) *longStream {
	t.Helper()
	l := &longStream{protocol: cl.Protocol, stream: cl.Stream(t, "/v1/chat/completions", longBody), done: make(chan struct{})}
	go func() {
		defer close(l.done)
		for {
			e, err := l.stream.Next()
			if err != nil {
				l.err = err
				return
			}
			text, err := delta(e.Data)
			if err != nil {
				l.err = err
				return
			}
			l.text.WriteString(text)
			l.tokens.Add(1)
		}
	}()
	return l
}

// goesOn wants some more tokens, then leaves and compares what was heard.
func (l *longStream) goesOn(t *testing.T, whole string) {
	t.Helper()
	upto := l.tokens.Load() + 5
	eventually(t, fmt.Sprintf("the long stream over %v to go on", l.protocol), func() bool {
		select {
		case <-l.done:
			return true
		default:
			return l.tokens.Load() >= upto
		}
	})
	ended := l.tokens.Load() < upto
	l.stream.Close()
	<-l.done
	if ended {
		t.Errorf("the long stream over %v broke off after %d tokens: %v", l.protocol, l.tokens.Load(), l.err)
	}
	if !strings.HasPrefix(whole, l.text.String()) {
		t.Errorf("the long stream over %v has other words than it should", l.protocol)
	}
}

// delta is the text of one chunk.
func delta(data string) (string, error) {
	s, err := hear(strings.NewReader("data: " + data + "\n\n"))
	if errors.Is(err, errNoDone) {
		err = nil
	}
	return s.text, err
}

func deepest(depths map[string]int) (deep int) {
	for _, d := range depths {
		deep = max(deep, d)
	}
	return deep
}

// shallower reports whether a pod knows less than before.
func shallower(before, now map[string]int) bool {
	for pod, depth := range before {
		if now[pod] < depth {
			return true
		}
	}
	return false
}

// ownGoroutines counts the goroutines that run code of the product, by who
// started them.
func ownGoroutines() map[string]int {
	buf := make([]byte, 64<<20)
	buf = buf[:runtime.Stack(buf, true)]
	own := map[string]int{}
	for stack := range strings.SplitSeq(string(buf), "\n\n") {
		if !strings.Contains(stack, "caddy-calinix.") && !strings.Contains(stack, "caddy-calinix/health.") {
			continue
		}
		_, by, _ := strings.Cut(stack, "created by ")
		by, _, _ = strings.Cut(by, " ")
		own[by]++
	}
	return own
}
