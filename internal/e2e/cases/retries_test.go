package cases_test

import (
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// TestBR05: a reused idle connection was closed by the engine.
func TestBR05(t *testing.T) {
	c := begin(t)
	// passive marks on: one failure would take a pod down
	ps := pods(t, ab)
	s := serve(t, ps, "health {\ninterval 200ms\ntimeout 1500ms\nhealthy_threshold 2\nunhealthy_threshold 3\npassive {\nfailures 1\n}\n}\n"+single(ps))
	s.all(t)
	cl := s.Client(t, testcaddy.H1)
	for _, script := range []struct {
		name  string
		set   func(p *fakepod.Pod)
		pause time.Duration
	}{
		{"reset on reuse", func(p *fakepod.Pod) { p.ResetOnReuse(true) }, 50 * time.Millisecond},
		{"closed after 100 ms idle", func(p *fakepod.Pod) { p.ResetOnReuse(false); p.CloseIdle(100 * time.Millisecond) }, 120 * time.Millisecond},
	} {
		t.Run(script.name, func(t *testing.T) {
			for _, p := range ps {
				script.set(p)
			}
			ps.Forget()
			mark := s.Log.Mark()
			var sent []testcaddy.Sent
			for r := range c.Requests() {
				time.Sleep(script.pause) // the clients' own pace
				sent = append(sent, cl.SendCases(t, one(r))...)
			}
			c.expect(t, 1, "all answered 200; no 502", func(t *testing.T) { wantStatus(t, 200, sent...) })
			c.expect(t, 2, "no pod is counted as failed", func(t *testing.T) {
				s.wantUp(t, ab...)
				s.wantCount(t, 0, "calinix_retries_total")
				if all := s.count(t, "calinix_requests_total"); s.count(t, "calinix_requests_total", "code", "200") != all {
					t.Errorf("%v legs, not all of them 200", all)
				}
				for _, e := range s.Log.Entries()[mark:] {
					// Fake pods say that they find nothing cached; that is no failure.
					if (e.Level == "warn" || e.Level == "error") && e.Msg != "pod is stale" {
						t.Errorf("the log says %s", e.Line)
					}
				}
			})
			c.expect(t, 3, "a request is processed (answered) once", func(t *testing.T) { s.wantBytes(t, sent...) })
		})
	}
}

// TestBR31: failover of a POST carries the whole body.
func TestBR31(t *testing.T) {
	c := begin(t)
	ps := pods(t, ab)
	s := serve(t, ps, "health {\ninterval 60s\n}\n"+single(ps))
	s.all(t) // by their first probes
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		for _, p := range ps { // open again
			if err := p.Listen(); err != nil {
				t.Fatal(err)
			}
		}
		warm := cl.SendCase(t, c.One(t, "warm"))
		if warm.Status != 200 {
			t.Fatal(warm)
		}
		x := ps.Pod(warm.Pod())
		y := other(ps, x)
		x.Refuse()
		ps.Forget()
		r := c.One(t, "again")
		again := cl.SendCase(t, r)
		c.expect(t, 1, "'again' is answered 200 by the other pod", func(t *testing.T) {
			if took := again.Ended.Sub(again.Began); again.Status != 200 || again.Pod() != y.Name || took > 2*time.Second {
				t.Errorf("pod %s is to answer within 2 s: %v", y.Name, again)
			}
		})
		c.expect(t, 2, "the body there has the client's SHA-256", func(t *testing.T) {
			if q := y.Last(t); q.SHA256 != sum(r.Body) || q.ContentLength != 200000 {
				t.Errorf("got %v, Content-Length %d", q, q.ContentLength)
			}
		})
		c.expect(t, 3, "the request is seen exactly once", func(t *testing.T) {
			if n := ps.Total(); n != 1 {
				t.Errorf("received: %v", ps.Counts())
			}
		})
	})
}
