package cases_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// TestBR15: a pod is restarted on the same address.
func TestBR15(t *testing.T) {
	c := begin(t)
	s := serveOnly(t, "b", abcd)
	b := s.pods.Pod("b")
	cl := s.Client(t, testcaddy.H1)
	wantPod(t, "b", cl.SendCases(t, c.Requests("warm"))...)
	s.all(t)
	s.crash(t, b)
	s.restart(t, b)
	after := cl.SendCases(t, c.Requests("after"))
	wantStatus(t, 200, after...)
	c.expect(t, 1, "after b was marked down and came back", func(t *testing.T) {
		if used := testcaddy.Pods(after); len(after) != 12 || used["b"] > 7 {
			t.Errorf("answered by %v", used)
		}
	})
	c.expect(t, 2, "if hit headers exist", func(t *testing.T) {
		for _, a := range after {
			if hit := a.Answer.Header.Get("X-Calinix-Cache-Hit"); hit != "false" {
				t.Errorf("%d at pod %s: hit %q at depth %s", a.N, a.Pod(), hit, a.Answer.Header.Get("X-Calinix-Cache-Prefix-Depth"))
			}
		}
	})
	// once more, with requests while b is away: as many as always may be tried
	// again before that is known, the others after it
	b.Crash()
	sent := cl.SendCases(t, first(3, c.Requests("after")))
	s.waitUp(t, "a", "c", "d")
	sent = append(sent, cl.SendCases(t, c.Requests("warm", "after"))...)
	c.expect(t, 3, "in between (b down) all requests", func(t *testing.T) {
		wantStatus(t, 200, sent...)
		if used := testcaddy.Pods(sent); used["b"] != 0 {
			t.Errorf("answered by %v", used)
		}
	})
}

// TestBR18: client mistakes do not make a pod sick.
func TestBR18(t *testing.T) {
	c := begin(t)
	ps := pods(t, ab)
	s := serve(t, ps, "health {\ninterval 200ms\ntimeout 1500ms\nhealthy_threshold 2\nunhealthy_threshold 3\npassive {\nfailures 3\nwindow 10s\n}\n}\n"+single(ps))
	s.all(t)
	cl := s.Client(t, testcaddy.H1)
	for _, p := range ps {
		var turns []fakepod.Script
		for _, status := range []int{400, 401, 404, 413, 422, 429} {
			turns = append(turns, fakepod.Reply{Status: status})
		}
		p.Set(fakepod.Cycle(turns...))
	}
	mark := s.Log.Mark()
	bad := cl.SendCases(t, c.Requests("bad"))
	ps.Set(fakepod.Reply{})
	good := cl.SendCases(t, c.Requests("good"))
	c.expect(t, 1, "each of the 40 gets the pod's own 4xx", func(t *testing.T) {
		said := map[string]int{} // by the body's digest
		for _, q := range ps.Received() {
			said[q.SHA256] = q.Status
		}
		for _, a := range bad {
			if want := said[sum(a.Request.Body)]; a.Status != want || want < 400 || want > 499 {
				t.Errorf("%d: the pod said %d: %v", a.N, want, a.Answer)
			}
		}
	})
	c.expect(t, 2, "the 20 'good' right after are all 200", func(t *testing.T) {
		wantStatus(t, 200, good...)
		if used := testcaddy.Pods(good); used["a"] < 3 || used["b"] < 3 {
			t.Errorf("answered by %v", used)
		}
		for _, e := range s.Log.Entries()[mark:] {
			if e.Msg == "pod is down" {
				t.Errorf("the log says %s", e.Line)
			}
		}
	})
	c.expect(t, 3, "a mix of 400 and 500 on pod a", func(t *testing.T) {
		a := ps.Pod("a")
		ps.Forget()
		a.Set(fakepod.Cycle(fakepod.Reply{Status: 400}, fakepod.Reply{Status: 500}))
		mark := s.Log.Mark()
		mixed := cl.SendCases(t, c.Requests("bad"))
		if n := a.Count(); n < 6 {
			t.Fatalf("pod a received %d of %d: too few to tell", n, len(mixed))
		}
		s.Log.Wait(t, mark, "pod a being marked down by requests", func(e testcaddy.Entry) bool {
			return e.Msg == "pod is down" && e.Has("pod", "a") && strings.Contains(e.Line, "failed requests")
		})
	})
}

// late is how the probes of BR-19 end that take too long; the cases' timeout of
// 150 ms is 400 ms here, for a busy machine may keep a good one waiting.
const lateTimeout = 400 * time.Millisecond

// TestBR19: a busy pod is not a dead pod.
func TestBR19(t *testing.T) {
	c := begin(t)
	ps := pods(t, ab)
	s := serve(t, ps, "health {\ninterval 200ms\ntimeout "+lateTimeout.String()+"\nhealthy_threshold 2\nunhealthy_threshold 3\n}\n"+single(ps))
	s.all(t)
	cl := s.Client(t, testcaddy.H1)
	good, late := fakepod.Reply{}, fakepod.Reply{Silent: true}
	stream := c.One(t, "stream")
	a := s.pick(t, stream) // the pod of the stream is the case's a
	b := other(ps, a)
	down := func(mark int, p *fakepod.Pod) bool {
		return slices.ContainsFunc(s.Log.Entries()[mark:], func(e testcaddy.Entry) bool { return e.Msg == "pod is down" && e.Has("pod", p.Name) })
	}
	// while runs f again and again until n more probes of a have ended
	while := func(n int, f func()) {
		ended := func(st fakepod.State) int {
			return len(slices.DeleteFunc(st.Probes, func(q fakepod.Request) bool { return q.End == fakepod.Running }))
		}
		for until := ended(a.State()) + n; ended(a.State()) < until; {
			f()
		}
	}

	c.expect(t, 1, "one or two late probes of a", func(t *testing.T) {
		mark := s.Log.Mark()
		ps.Forget()
		a.SetHealth(fakepod.Cycle(late, late, good))
		while(7, func() { wantStatus(t, 200, cl.SendCases(t, c.Requests("probe-traffic"))...) })
		a.SetHealth(good)
		if n, all := a.Count(), ps.Total(); n < all/5 || down(mark, a) {
			t.Errorf("received: %v; down %v", ps.Counts(), down(mark, a))
		}
		a.WaitProbes(t, 1)
	})
	c.expect(t, 2, "three late probes in a row", func(t *testing.T) {
		a.When(func(r fakepod.Request) bool { return strings.Contains(string(r.Body), `"stream":true`) }, fakepod.Reply{Chunks: 40, Gap: 100 * time.Millisecond})
		open := cl.StreamCase(t, stream)
		if pod := open.Header.Get("X-Fake-Pod"); pod != a.Name {
			t.Fatalf("the stream is at pod %q, want %s", pod, a.Name)
		}
		a.SetHealth(late)
		s.waitUp(t, b.Name)
		ps.Forget()
		wantStatus(t, 200, cl.SendCases(t, c.Requests("probe-traffic"))...)
		if n := a.Count(); n != 0 {
			t.Errorf("received: %v", ps.Counts())
		}
		s.wantCount(t, 1, "calinix_pod_inflight", "pod", a.Name) // the stream runs
		events, err := open.All()
		if err != nil || len(events) != 42 || events[41].Data != "[DONE]" {
			t.Errorf("the stream ended with %d events, %v", len(events), err)
		}
	})
	c.expect(t, 3, "a is back after 2 good probes and no sooner", func(t *testing.T) {
		mark := s.Log.Mark()
		a.Forget()
		a.SetHealth(fakepod.Sequence(good, late, good, good))
		up := s.Log.Wait(t, mark, "pod a to be up", func(e testcaddy.Entry) bool { return e.Msg == "pod is up" && e.Has("pod", a.Name) })
		ts := up.Fields["ts"].(float64)
		inARow := 0 // good probes before that moment
		for _, q := range a.Probes() {
			if began := float64(q.Time.UnixNano()) / 1e9; began > ts {
				break
			}
			if inARow++; q.Status != 200 {
				inARow = 0
			}
		}
		if inARow < 2 {
			t.Errorf("pod a was up after %d good probes in a row of\n%v", inARow, a.Probes())
		}
		s.wantUp(t, ab...)
	})
	c.expect(t, 4, "alternating good and late probes", func(t *testing.T) {
		mark := s.Log.Mark()
		a.SetHealth(fakepod.Cycle(good, late))
		while(8, func() { wantStatus(t, 200, cl.SendCases(t, c.Requests("probe-traffic"))...) })
		a.SetHealth(good)
		if down(mark, a) {
			t.Error("pod a was ejected")
		}
		a.WaitProbes(t, 2)
	})
	c.expect(t, 5, "when ALL pods miss probes", func(t *testing.T) {
		for _, p := range ps {
			p.SetHealth(late)
		}
		s.waitUp(t)
		for r := range c.Requests("probe-traffic") {
			a := cl.SendCase(t, r)
			wantJSONError(t, a, 503)
			if took := a.Ended.Sub(a.Began); took > time.Second || a.Header.Get("Retry-After") == "" {
				t.Errorf("after %v: %v", took, a)
			}
		}
	})
}

// TestBR23: a reload keeps streams, health and index.
func TestBR23(t *testing.T) {
	c := begin(t)
	s := serveOnly(t, "b", abcd)
	cl := s.Client(t, testcaddy.H2)
	wantPod(t, "b", cl.SendCases(t, c.Requests("warm"))...)
	s.pods.Pod("d").Crash()
	s.only(t, "a", "b", "c")
	for _, p := range s.pods {
		p.When(func(r fakepod.Request) bool { return strings.Contains(string(r.Body), `"stream":true`) }, fakepod.Reply{Chunks: 40, Gap: 100 * time.Millisecond})
	}
	var open []*testcaddy.Stream
	for r := range c.Requests("streams") {
		open = append(open, cl.StreamCase(t, r))
	}
	s.reloadByAdmin(t)
	reloaded := time.Now()
	c.expect(t, 4, "in-flight numbers after the reload", func(t *testing.T) { s.wantCount(t, 5, "calinix_pod_inflight") })

	cl = s.Client(t, testcaddy.H2)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var others []testcaddy.Sent
	for r := range c.Requests("others") {
		wg.Go(func() {
			sent := cl.SendCases(t, one(r))
			mu.Lock()
			defer mu.Unlock()
			others = append(others, sent...)
		})
	}
	wg.Wait()
	c.expect(t, 3, "none of 'others' sent in the first 500 ms", func(t *testing.T) {
		wantStatus(t, 200, others...)
		for _, a := range others {
			if a.Began.Sub(reloaded) > 500*time.Millisecond {
				t.Errorf("%d was sent %v after the reload", a.N, a.Began.Sub(reloaded))
			}
			if took := a.Ended.Sub(a.Began); took > time.Second {
				t.Errorf("%d took %v", a.N, took)
			}
		}
		s.wantCount(t, 0, "calinix_retries_total") // d refuses: a request for it would show here
		s.wantCount(t, 0, "calinix_requests_total", "pod", "d")
		if m := s.Metrics(t); s.isUp(m, "d") {
			t.Error("pod d is up")
		}
	})
	c.expect(t, 2, "after the reload (same pods, one unrelated change)", func(t *testing.T) {
		wantPod(t, "b", cl.SendCases(t, c.Requests("follow"))...)
	})
	c.expect(t, 4, "in-flight numbers after the reload", func(t *testing.T) { s.wantCount(t, 5, "calinix_pod_inflight") })
	c.expect(t, 1, "all 5 streams (4 s each) running at reload", func(t *testing.T) {
		for k, stream := range open {
			events, err := stream.All()
			if err != nil || len(events) != 42 || events[41].Data != "[DONE]" {
				t.Errorf("stream %d ended with %d events, %v", k+1, len(events), err)
			}
		}
	})
	c.expect(t, 4, "in-flight numbers after the reload", func(t *testing.T) { s.waitIdle(t) })
}

// reloadByAdmin loads the running configuration again, with one change that does
// not concern the pods, as an operator does.
func (s *site) reloadByAdmin(t *testing.T) {
	t.Helper()
	var config map[string]any
	if err := json.Unmarshal(s.AdminGet(t, "/config/").Body, &config); err != nil {
		t.Fatal(err)
	}
	config["apps"].(map[string]any)["http"].(map[string]any)["grace_period"] = "30s"
	text, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	wait, err := s.Handover()
	if err != nil {
		t.Fatal(err)
	}
	a := s.AdminPost(t, "/load", string(text))
	if a.Status != http.StatusOK {
		err = fmt.Errorf("reloading: %v", a)
	}
	if err := wait(err); err != nil {
		t.Fatal(err)
	}
}
