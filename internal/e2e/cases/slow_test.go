package cases_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/cases"
	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// TestBR20: a long silence before an answer.
//
// The silence is 75 s with -slow, which is more than every time limit of Caddy's
// own (a minute each); without it 3 s.
func TestBR20(t *testing.T) {
	c := begin(t)
	silence := 3 * time.Second
	if *slow {
		silence = 75 * time.Second
	}
	singles, prefill, decode := pods(t, ab), pods(t, []string{"p1"}), pods(t, []string{"d1"})
	s := newSite(slices.Concat(singles, prefill, decode))
	passive := "health {\npassive {\nfailures 1\n}\n}\n" // a single failure would show
	modes := single(singles) + dispatch(prefill, decode)
	s.run(t, s.calinix(passive+modes))
	s.all(t)
	singles.Set(fakepod.Reply{Delay: silence})
	prefill.Set(fakepod.Reply{Delay: silence})

	ask := func(t *testing.T) []answered {
		t.Helper()
		var all []answered
		for _, protocol := range []testcaddy.Protocol{testcaddy.H1, testcaddy.H2} {
			for r := range c.Requests() {
				if r.Name == "dispatch" {
					r.Headers["X-Calinix-Mode"] = "dispatch"
				}
				all = append(all, answered{Request: r, client: s.Client(t, protocol)})
			}
		}
		var wg sync.WaitGroup
		for k := range all {
			wg.Go(func() { all[k].Answer = all[k].client.SendCase(t, all[k].Request) })
		}
		wg.Wait()
		return all
	}
	notSick := func(t *testing.T) {
		t.Helper()
		s.wantUp(t, "a", "b", "p1", "d1")
		if e := s.Log.Find(func(e testcaddy.Entry) bool { return e.Msg == "leg failed" || e.Msg == "pod is down" }); len(e) > 0 {
			t.Errorf("the log says %s", e[0].Line)
		}
	}

	all := ask(t)
	c.expect(t, 1, "all three end 200 with the whole answer", func(t *testing.T) {
		for _, a := range all {
			whole := strings.Contains(string(a.Answer.Body), `"finish_reason":"stop"`)
			if a.Name == "stream" {
				whole = strings.HasSuffix(string(a.Answer.Body), "data: [DONE]\n\n")
			}
			if took := a.Ended.Sub(a.Began); a.Err != nil || a.Status != 200 || !whole || took < silence || took > silence+10*time.Second {
				t.Errorf("%s over %v, after %v: %v", a.Name, a.client.Protocol, took, a.Answer)
			}
		}
		s.wantCount(t, 8, "calinix_requests_total", "code", "200") // one a leg
	})
	c.expect(t, 3, "the slow request does not count as a pod failure", notSick)

	s.pods.Forget()
	s.ReloadSite(t, "log\n"+s.calinix(passive+single(singles)+dispatch(prefill, decode, "prefill_timeout 2s")+"transport http {\nresponse_header_timeout 2s\n}\n"))
	all = ask(t)
	c.expect(t, 2, "an operator can set a limit", func(t *testing.T) {
		for _, a := range all {
			wantJSONError(t, a.Answer, 504)
			if took := a.Ended.Sub(a.Began); took < 2*time.Second || took > 2500*time.Millisecond {
				t.Errorf("%s over %v is answered after %v", a.Name, a.client.Protocol, took)
			}
		}
		for _, p := range slices.Concat(singles, prefill) {
			for n := range p.Count() {
				p.WaitClosed(t, n+1)
			}
		}
		if n := s.pods.Total(); n != len(all) {
			t.Errorf("received: %v", s.pods.Counts())
		}
	})
	c.expect(t, 3, "the slow request does not count as a pod failure", notSick)
}

// answered is a request of the case, who sent it, and what came.
type answered struct {
	cases.Request
	*testcaddy.Answer
	client *testcaddy.Client
}
