package calinix_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

var (
	passes = fakepod.Reply{}
	fails  = fakepod.Reply{Status: 503}
)

// turns are how often the log says that a pod went up or down.
func (s *site) turns(msg, pod string) int {
	return len(s.Log.Find(func(e testcaddy.Entry) bool { return e.Msg == msg && e.Has("pod", pod) }))
}

// TestHealthFirstResult: until its first probe result a pod counts as up; the
// first result decides alone, whatever the thresholds.
func TestHealthFirstResult(t *testing.T) {
	ps := pods(t, "a", "b")
	hold := make(chan struct{})
	ps[0].SetHealth(fakepod.Reply{Hold: hold, Status: 503})
	ps[1].SetHealth(fakepod.Reply{Hold: hold})
	s := start(t, "health {\ninterval 1h\ntimeout 1m\nhealthy_threshold 5\nunhealthy_threshold 5\n}\n"+inOrder+single(ps))
	cl := s.Client(t, testcaddy.H2)
	for _, p := range ps {
		if st := s.pod(t, p.Name); !st.Up || st.Health != "" {
			t.Errorf("before its first probe: %+v", st)
		}
	}
	if a := cl.Post(t, chatPath, question); a.Status != 200 || a.Pod() != "a" {
		t.Errorf("before the first probe: %v", a)
	}
	close(hold)
	s.waitUp(t, false, "a")
	if a := cl.Post(t, chatPath, question); a.Status != 200 || a.Pod() != "b" {
		t.Errorf("after a's first probe: %v", a)
	}
	s.WaitMetrics(t, "b's first probe", func(testcaddy.Metrics) bool { return s.pod(t, "b").Health != "" })
	if !s.pod(t, "b").Up || s.turns("pod is down", "b") > 0 {
		t.Error("b is down, and has passed its first probe")
	}
}

// TestHealthStreaks: after the first result the thresholds apply to consecutive
// results.
func TestHealthStreaks(t *testing.T) {
	const keys = "health {\ninterval 5ms\ntimeout 5s\nhealthy_threshold 3\nunhealthy_threshold 3\n}\n"
	ps := pods(t, "a", "b")
	a, b := ps[0], ps[1]
	b.SetHealth(fails)
	s := serve(t, keys+single(ps))
	s.waitUp(t, true, "a")
	s.waitUp(t, false, "b")
	a.SetHealth(fakepod.Cycle(fails, fails, passes))
	b.SetHealth(fakepod.Cycle(passes, passes, fails))
	a.WaitProbes(t, 30)
	b.WaitProbes(t, 30)
	if s.turns("pod is down", "a") != 0 || s.turns("pod is up", "b") != 0 {
		t.Error("results that are not consecutive were counted together")
	}
	// Three in a row do it, and not two.
	a.SetHealth(fails)
	b.SetHealth(passes)
	s.waitUp(t, false, "a")
	s.waitUp(t, true, "b")
	cl := s.Client(t, testcaddy.H1)
	for n := range 4 {
		if got := cl.Post(t, chatPath, chat(fmt.Sprint(n))); got.Pod() != "b" {
			t.Errorf("with a down: %v", got)
		}
	}
	for _, e := range s.Log.Find(func(e testcaddy.Entry) bool { return e.Msg == "pod is up" || e.Msg == "pod is down" }) {
		if reason := fmt.Sprint(e.Fields["reason"]); e.Has("pod", "a") && !strings.Contains(reason, "3 probes in a row") {
			t.Errorf("reason %q", reason)
		}
	}
}

// TestHealthStartsDown: healthy: false is down until healthyThreshold probes in
// a row have passed; the first result does not decide.
func TestHealthStartsDown(t *testing.T) {
	ps := pods(t, "a")
	ps[0].SetHealth(fakepod.Cycle(passes, passes, fails))
	s := serve(t, "health {\ninterval 5ms\ntimeout 5s\nhealthy_threshold 3\n}\n"+single(ps, "healthy off"))
	ps[0].WaitProbes(t, 20)
	if s.pod(t, "a").Up || s.turns("pod is up", "a") > 0 {
		t.Error("two passed probes brought the pod up")
	}
	wantError(t, s.Client(t, testcaddy.H1).Post(t, chatPath, question), http.StatusServiceUnavailable)
	ps[0].SetHealth(passes)
	s.waitUp(t, true, "a")
	if a := s.Client(t, testcaddy.H1).Post(t, chatPath, question); a.Status != 200 {
		t.Error(a)
	}
}

// TestHealthProbe: a probe is a GET of the endpoint with the configured headers;
// only a 2xx in time passes, and no redirect is followed.
func TestHealthProbe(t *testing.T) {
	for name, c := range map[string]struct {
		reply fakepod.Reply
		up    bool
	}{
		"200":      {fakepod.Reply{}, true},
		"204":      {fakepod.Reply{Status: 204, Body: []byte{}}, true},
		"redirect": {fakepod.Reply{Status: 302, Header: http.Header{"Location": {"/other"}}}, false},
		"404":      {fakepod.Reply{Status: 404}, false},
		"500":      {fakepod.Reply{Status: 500}, false},
		"late":     {fakepod.Reply{Silent: true}, false},
		"reset":    {fakepod.Reply{Cut: fakepod.Reset}, false},
		"no HTTP":  {fakepod.Reply{Raw: []byte("hello\r\n"), Close: true}, false},
	} {
		p := fakepod.New(t, fakepod.Options{Name: "a", HealthPath: "/ready"})
		p.SetHealth(c.reply)
		s := serve(t, "health {\nendpoint /ready?deep=1\ninterval 1h\ntimeout 300ms\nheaders {\nAuthorization \"Bearer probe\"\nX-Probe 1\n}\n}\n"+single(fakepod.Pods{p}))
		if st := s.pod(t, "a"); st.Up != c.up {
			t.Errorf("%s: %+v", name, st)
		}
		q := p.Probes()[0]
		if q.Method != http.MethodGet || q.Target != "/ready?deep=1" || q.Header.Get("Authorization") != "Bearer probe" || q.Header.Get("X-Probe") != "1" {
			t.Errorf("%s: the probe is %s", name, q.Head)
		}
		a := s.Client(t, testcaddy.H1).Post(t, chatPath, question)
		if (a.Status == 200) != c.up || len(p.Probes()) != 1 {
			t.Errorf("%s: %d probes: %v", name, len(p.Probes()), a)
		}
		if c.up && (p.Last(t).Header.Get("X-Probe") != "" || p.Last(t).Header.Get("Authorization") != "") {
			t.Errorf("%s: a request has the headers of probes", name)
		}
		s.Stop()
	}
}

// passive are keys with which so many failures mark a pod down.
func passive(failures int, more string) string {
	return fmt.Sprintf("retries 0\nhealth {\ninterval 1h\npassive {\nfailures %d\n%s\n}\n}\n", failures, more)
}

// TestHealthPassive: that many failures in the window mark a pod down. A pod
// that broke off counts; a 4xx, an answer, an expired responseHeaderTimeout and
// a client that left neither count nor reset.
func TestHealthPassive(t *testing.T) {
	for name, reply := range map[string]fakepod.Reply{
		"500":            {Status: 500},
		"503":            {Status: 503},
		"reset":          {Cut: fakepod.Reset},
		"closed":         {Cut: fakepod.Close},
		"cut":            {Cut: fakepod.Reset, At: fakepod.HalfBody},
		"cut in a event": {Stream: fakepod.Always, Cut: fakepod.Close, At: fakepod.AfterChunks(1), Gap: fakepod.NoGap},
		"refused":        {},
	} {
		ps := pods(t, "a")
		s := serve(t, passive(3, "")+headerTimeout+single(ps))
		cl := s.Client(t, testcaddy.H2)
		fail := func() {
			t.Helper()
			if name == "refused" {
				ps[0].Refuse()
			}
			ps.Set(reply)
			if a := cl.Post(t, chatPath, question); a.Status == 200 && a.Err == nil {
				t.Fatalf("%s: %v", name, a)
			}
			if err := ps[0].Listen(); err != nil {
				t.Fatal(err)
			}
		}
		harmless := func() {
			t.Helper()
			for _, r := range []fakepod.Reply{{}, {Status: 400}, {Status: 404}, {Status: 429}, {Silent: true}} {
				ps.Set(r)
				cl.Post(t, chatPath, question)
			}
			ps.Set(fakepod.Reply{Silent: true})
			ctx, leave := testContext(t)
			n := ps[0].Count()
			go cl.Send(cl.Request(ctx, t, http.MethodPost, chatPath, question))
			ps[0].WaitRequests(t, n+1)
			leave()
			ps[0].WaitClosed(t, n+1)
			s.waitIdle(t)
		}
		fail()
		harmless()
		fail()
		harmless()
		if !s.pod(t, "a").Up {
			t.Errorf("%s: down after two failures, want three", name)
		}
		fail()
		s.waitUp(t, false, "a")
		wantRetryAfter(t, cl.Post(t, chatPath, question))
		s.Stop()
	}
}

// TestHealthPassiveOff: without passive marks no failure of a request takes a
// pod down; and failures that lie further apart than the window do not add up.
func TestHealthPassiveOff(t *testing.T) {
	for name, keys := range map[string]string{"off": passive(0, ""), "window": passive(2, "window 1ms")} {
		ps := pods(t, "a")
		s := serve(t, keys+single(ps))
		ps.Set(fakepod.Reply{Status: 500})
		cl := s.Client(t, testcaddy.H1)
		for range 8 {
			cl.Post(t, chatPath, question)
			for failed := time.Now(); time.Since(failed) < 3*time.Millisecond; {
				if !s.pod(t, "a").Up {
					t.Fatalf("%s: the pod was marked down", name)
				}
			}
		}
		s.Stop()
	}
}

// TestHealthPassiveRecovery: a pod that was marked down is up again when it has
// passed healthyThreshold probes in a row.
func TestHealthPassiveRecovery(t *testing.T) {
	ps := pods(t, "a")
	s := serve(t, "health {\ninterval 20ms\ntimeout 5s\nhealthy_threshold 3\npassive {\nfailures 1\n}\n}\n"+single(ps))
	ps[0].SetHealth(fakepod.Cycle(passes, passes, fails))
	ps.Set(fakepod.Reply{Status: 500})
	cl := s.Client(t, testcaddy.H2)
	cl.Post(t, chatPath, question)
	s.waitUp(t, false, "a")
	ps[0].WaitProbes(t, 9)
	if s.pod(t, "a").Up {
		t.Error("two passed probes brought it up")
	}
	ps.Set(fakepod.Reply{})
	ps[0].SetHealth(passes)
	s.waitUp(t, true, "a")
	if a := cl.Post(t, chatPath, question); a.Status != 200 {
		t.Error(a)
	}
}

// TestHealthIndexEntries: a pod that is down because its port refused or dropped
// the probe loses its index entries; one that answered with a bad status, or
// late, keeps them; one that a reload removes loses them.
func TestHealthIndexEntries(t *testing.T) {
	for name, c := range map[string]struct {
		fail func(p *fakepod.Pod)
		kept bool
	}{
		"refused":    {func(p *fakepod.Pod) { p.Refuse() }, false},
		"crashed":    {func(p *fakepod.Pod) { p.Crash() }, false},
		"reset":      {func(p *fakepod.Pod) { p.SetHealth(fakepod.Reply{Cut: fakepod.Reset}) }, false},
		"closed":     {func(p *fakepod.Pod) { p.SetHealth(fakepod.Reply{Cut: fakepod.Close}) }, false},
		"bad status": {func(p *fakepod.Pod) { p.SetHealth(fails) }, true},
		"late":       {func(p *fakepod.Pod) { p.Freeze() }, true},
	} {
		ps := pods(t, "a", "b")
		s := serve(t, "health {\ninterval 50ms\ntimeout 400ms\nhealthy_threshold 1\nunhealthy_threshold 2\n}\n"+inOrder+single(ps))
		cl := s.Client(t, testcaddy.H1)
		prompt := chat(words(name, 160))
		if a := cl.Post(t, chatPath, prompt); a.Pod() != "a" {
			t.Fatal(a)
		}
		blocks := s.pod(t, "a").Blocks
		if blocks < 10 {
			t.Fatalf("%s: %d blocks", name, blocks)
		}
		c.fail(ps[0])
		s.waitUp(t, false, "a")
		if c.kept {
			if got := s.pod(t, "a").Blocks; got != blocks {
				t.Errorf("%s: %d of %d blocks are left", name, got, blocks)
			}
		} else {
			s.WaitMetrics(t, "the entries to go", func(testcaddy.Metrics) bool { return s.pod(t, "a").Blocks == 0 })
		}
		ps[0].Thaw()
		ps[0].SetHealth(passes)
		if err := ps[0].Listen(); err != nil {
			t.Fatal(err)
		}
		s.waitUp(t, true, "a")
		if a := cl.Post(t, chatPath, prompt); a.Pod() != "a" || (a.Header.Get("X-Calinix-Cache-Hit") == "true") != c.kept {
			t.Errorf("%s: when it is back: %v", name, a)
		}
		s.Stop()
	}
}

// TestHealthRemovedPod: a pod that a reload removes loses its entries for good.
func TestHealthRemovedPod(t *testing.T) {
	ps := pods(t, "a", "b")
	s := serve(t, inOrder+single(ps))
	cl := s.Client(t, testcaddy.H1)
	prompt := chat(words("kept", 160))
	cl.Post(t, chatPath, prompt)
	s.reload(t, inOrder+single(ps[1:]))
	s.waitCount(t, 0, "calinix_index_blocks")
	s.reload(t, inOrder+single(ps))
	if a := cl.Post(t, chatPath, prompt); a.Pod() != "a" || a.Header.Get("X-Calinix-Cache-Hit") != "false" {
		t.Errorf("when it is back: %v", a)
	}
}

// TestHealthStaleTTL: the entries of a pod that is down by status go with
// staleTtlMs.
func TestHealthStaleTTL(t *testing.T) {
	ps := pods(t, "a", "b")
	s := serve(t, "cache_registry {\nstale_ttl 1s\n}\n"+quickHealth+inOrder+single(ps))
	s.Client(t, testcaddy.H1).Post(t, chatPath, chat(words("old", 160)))
	began := time.Now()
	ps[0].SetHealth(fails)
	s.waitUp(t, false, "a")
	s.waitCount(t, 0, "calinix_index_blocks")
	if took := time.Since(began); took < 900*time.Millisecond {
		t.Errorf("the entries were gone after %v, want 1s", took)
	}
}
