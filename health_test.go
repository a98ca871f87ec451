package calinix_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// verdicts are the lines about a pod's turning, behind the mark.
func (s *site) verdicts(mark int, pod string) []string {
	var out []string
	for _, e := range s.Log.Entries()[mark:] {
		if (e.Msg == "pod is up" || e.Msg == "pod is down") && e.Has("pod", pod) {
			out = append(out, e.Msg)
		}
	}
	return out
}

// TestHealthEndpoint: what is probed, and with which headers; requests have
// none of these.
func TestHealthEndpoint(t *testing.T) {
	p := fakepod.New(t, fakepod.Options{Name: "a", HealthPath: "/v1/live"})
	s := serve(t, `health {
			endpoint /v1/live?deep=1
			interval 20ms
			headers {
				Authorization "Bearer probe"
				Host probe.example.test
				User-Agent prober/1
			}
		}
		header_up X-Every request
		`+single(fakepod.Pods{p}), testcaddy.Plain())
	p.WaitProbes(t, 3)
	for _, q := range p.Probes() {
		if q.Method != http.MethodGet || q.Target != "/v1/live?deep=1" || q.Host != "probe.example.test" || len(q.Body) > 0 ||
			q.Header.Get("Authorization") != "Bearer probe" || q.Header.Get("User-Agent") != "prober/1" || q.Header.Get("X-Every") != "" {
			t.Fatalf("a probe: %v, host %s, header %v", q, q.Host, q.Header)
		}
	}
	a := s.Client(t, testcaddy.H1).Post(t, chatPath, chat("hi"), "Authorization", "Bearer client")
	if q := p.Last(t); a.Status != 200 || q.Header.Get("Authorization") != "Bearer client" || q.Header.Get("X-Every") != "request" || q.Host == "probe.example.test" {
		t.Errorf("a request: %v, host %s, header %v", q, q.Host, q.Header)
	}
	if n := len(p.Conns()); n > 3 {
		t.Errorf("%d connections for the probes and a request: they are not kept", n)
	}
}

// TestHealthHeadersFromOutside: placeholders in probe headers are looked up for
// each probe; one that comes to nothing is refused at load.
func TestHealthHeadersFromOutside(t *testing.T) {
	t.Setenv("CALINIX_TEST_KEY", "from-env")
	file := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file+"~", []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+"~", file); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	ps := pods(t, "a")
	health := func(value string) string {
		return "health {\ninterval 20ms\nheaders {\n" + value + "\n}\n}\n" + single(ps)
	}
	s := serve(t, health("Authorization \"Bearer {env.CALINIX_TEST_KEY}\"\nX-Token {file."+file+"}\nX-Brace \"\\{a}\""), testcaddy.Plain())
	probe := func(token string) {
		t.Helper()
		ps[0].Wait(t, "a probe with "+token, func(s fakepod.State) bool {
			q := s.Probes[len(s.Probes)-1]
			return q.Header.Get("Authorization") == "Bearer from-env" && q.Header.Get("X-Token") == token && q.Header.Get("X-Brace") == "{a}"
		})
	}
	probe("one")
	write("two")
	probe("two")
	for value, want := range map[string]string{
		"Authorization \"Bearer {env.CALINIX_TEST_NONE}\"": "health.headers.Authorization: evaluated placeholder {env.CALINIX_TEST_NONE} is empty",
		"X-Other {http.request.host}":                      "health.headers.X-Other: unrecognized placeholder {http.request.host}",
	} {
		if err := s.TryReloadSite(s.body(health(value))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", value, err, want)
		}
	}
	probe("two") // as before
}

// TestHealthStatus: any 2xx in time is good; anything else is not, redirects
// are not followed, and the first result decides alone.
func TestHealthStatus(t *testing.T) {
	for _, tc := range []struct {
		name   string
		reply  fakepod.Reply
		up     bool
		detail string
	}{
		{"200", fakepod.Reply{}, true, "200 OK"},
		{"204", fakepod.Reply{Status: 204}, true, "204"},
		{"299 with a body", fakepod.Reply{Status: 299, Body: []byte(strings.Repeat("x", 1<<20))}, true, "299"},
		{"redirect", fakepod.Reply{Status: 302, Header: http.Header{"Location": {"/v1/models"}}}, false, "302"},
		{"404", fakepod.Reply{Status: 404}, false, "404"},
		{"503", fakepod.Reply{Status: 503}, false, "503"},
		{"no answer", fakepod.Reply{Silent: true}, false, "no answer in time"},
		{"reset", fakepod.Reply{Cut: fakepod.Reset}, false, "reset"},
		{"no HTTP", fakepod.Reply{Raw: []byte("SSH-2.0\r\n\r\n"), Cut: fakepod.Close}, false, "malformed HTTP"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ps := pods(t, "a")
			ps[0].SetHealth(tc.reply)
			timeout := "1m"
			if tc.reply.Silent {
				timeout = "300ms"
			}
			s := serve(t, "health {\ninterval 1h\ntimeout "+timeout+"\nunhealthy_threshold 100\nhealthy_threshold 100\n}\n"+single(ps), testcaddy.Plain())
			e := entry(t, s.Caddy, "a")
			if e.Up != tc.up || !strings.Contains(e.Health, tc.detail) {
				t.Errorf("%+v, want up %v, %q", e, tc.up, tc.detail)
			}
			if n := ps[0].Count(); n != 0 {
				t.Errorf("the probe was followed by %d requests", n)
			}
			if status := s.Client(t, testcaddy.H1).Post(t, chatPath, chat("hi")).Status; (status == 200) != tc.up || !tc.up && status != 503 {
				t.Errorf("a request: %d", status)
			}
		})
	}
}

// TestHealthThresholds: after the first one results count in a row; what breaks
// the row begins it anew.
func TestHealthThresholds(t *testing.T) {
	ps := pods(t, "a")
	a := ps[0]
	ok, bad := fakepod.Reply{}, fakepod.Reply{Status: 503}
	s := serve(t, "health {\ninterval 20ms\ntimeout 5s\nunhealthy_threshold 3\nhealthy_threshold 4\n}\n"+single(ps), testcaddy.Plain())
	mark := s.Log.Mark()
	a.SetHealth(fakepod.Cycle(bad, bad, ok))
	a.WaitProbes(t, 12)
	if got := s.verdicts(mark, "a"); len(got) != 0 {
		t.Errorf("two failures in a row, of three: %q", got)
	}
	a.SetHealth(ok)
	a.WaitProbes(t, 2)
	a.SetHealth(bad)
	s.waitUp(t, false, "a")
	mark = s.Log.Mark()
	a.SetHealth(fakepod.Cycle(ok, ok, ok, bad))
	a.WaitProbes(t, 16)
	if got := s.verdicts(mark, "a"); len(got) != 0 {
		t.Errorf("three passes in a row, of four: %q", got)
	}
	a.SetHealth(ok)
	s.waitUp(t, true, "a")
	if got := s.verdicts(mark, "a"); len(got) != 1 {
		t.Errorf("%q", got)
	}
}

// TestHealthyFalse: such a pod starts down, and only passes in a row bring it
// up; the first one does not decide alone.
func TestHealthyFalse(t *testing.T) {
	ps := pods(t, "a")
	a := ps[0]
	ok, bad := fakepod.Reply{}, fakepod.Reply{Status: 503}
	a.SetHealth(fakepod.Cycle(ok, ok, bad))
	s := serve(t, "health {\ninterval 20ms\ntimeout 5s\nhealthy_threshold 3\n}\n"+single(ps, "healthy off"), testcaddy.Plain())
	a.WaitProbes(t, 9)
	if e := entry(t, s.Caddy, "a"); e.Up || len(s.verdicts(0, "a")) != 0 {
		t.Errorf("two passes in a row, of three: %+v, %q", e, s.verdicts(0, "a"))
	}
	if got := s.Client(t, testcaddy.H1).Post(t, chatPath, chat("hi")); got.Status != 503 {
		t.Errorf("%v", got)
	}
	a.SetHealth(ok)
	s.waitUp(t, true, "a")
	// it is a start value: a reload does not take the pod down again
	s.reload(t, "retries 0\nhealth {\ninterval 20ms\ntimeout 5s\nhealthy_threshold 3\n}\n"+single(ps, "healthy off"))
	if e := entry(t, s.Caddy, "a"); !e.Up {
		t.Errorf("after a reload: %+v", e)
	}
	// nor does healthy: true keep one up that is not
	a.SetHealth(bad)
	s.waitUp(t, false, "a")
	s.reload(t, "health {\ninterval 20ms\ntimeout 5s\n}\n"+single(ps, "healthy on"))
	if e := entry(t, s.Caddy, "a"); e.Up {
		t.Errorf("after a reload with healthy on: %+v", e)
	}
}

// TestHealthLate: a probe that takes longer than the timeout has failed.
func TestHealthLate(t *testing.T) {
	ps := pods(t, "a", "b")
	ps.Pod("a").SetHealth(fakepod.Reply{Delay: time.Hour})
	s := serve(t, "health {\ninterval 1h\ntimeout 1s\n}\n"+single(ps), testcaddy.Plain())
	if e := entry(t, s.Caddy, "a"); e.Up || !strings.Contains(e.Health, "no answer in time") {
		t.Errorf("%+v", e)
	}
	if e := entry(t, s.Caddy, "b"); !e.Up {
		t.Errorf("the late pod holds up another one's probe: %+v", e)
	}
}

// TestHealthPassive: so many failed requests within the window take a pod down
// until it passes probes again. A 4xx neither counts nor resets.
func TestHealthPassive(t *testing.T) {
	ps := pods(t, "a")
	a := ps[0]
	keys := func(interval, window string) string {
		return fmt.Sprintf("retries 0\nhealth {\ninterval %s\ntimeout 5s\nhealthy_threshold 2\npassive {\nfailures 3\nwindow %s\n}\n}\n", interval, window) + single(ps)
	}
	s := serve(t, keys("1h", "1m"), testcaddy.Plain())
	post := func(reply fakepod.Reply) {
		t.Helper()
		a.Next(reply)
		s.Client(t, testcaddy.H1).Post(t, chatPath, chat("hi", `"stream":true`))
		s.waitNone(t)
	}
	is := func(up bool) {
		t.Helper()
		if e := entry(t, s.Caddy, "a"); e.Up != up {
			t.Fatalf("want up %v: %+v", up, e)
		}
	}
	for range 2 {
		post(fakepod.Reply{Status: 500})
		for range 3 {
			post(fakepod.Reply{Status: 429})
			post(fakepod.Reply{})
		}
	}
	is(true) // two of three, and much that does not count
	post(fakepod.Reply{Cut: fakepod.Reset, At: fakepod.AfterChunks(2), Gap: fakepod.NoGap})
	is(false) // a pod that broke off counts
	if got := s.Client(t, testcaddy.H1).Post(t, chatPath, chat("hi")); got.Status != 503 {
		t.Errorf("%v", got)
	}
	mark := s.Log.Mark()
	s.reload(t, keys("20ms", "1m")) // and probes pass
	s.waitUp(t, true, "a")
	line := s.Log.Wait(t, mark, "the verdict", func(e testcaddy.Entry) bool { return e.Msg == "pod is up" })
	if !strings.Contains(line.Line, "passed 2 probes in a row") {
		t.Errorf("%s", line.Line)
	}

	// further apart than the window they do not come together
	s.reload(t, keys("20ms", "15ms"))
	mark = s.Log.Mark()
	for range 5 {
		post(fakepod.Reply{Status: 500})
		a.WaitProbes(t, 2) // more than 20 ms
	}
	if got := s.verdicts(mark, "a"); len(got) != 0 {
		t.Errorf("%q", got)
	}

	// off, which is the default
	s.reload(t, "retries 0\nhealth {\ninterval 1h\n}\n"+single(ps))
	for range 10 {
		post(fakepod.Reply{Status: 500})
	}
	is(true)
}

// TestHealthIntervalOverReload: a reload with another interval is followed at
// once.
func TestHealthIntervalOverReload(t *testing.T) {
	ps := pods(t, "a")
	s := serve(t, "health {\ninterval 1h\n}\n"+single(ps), testcaddy.Plain())
	s.reload(t, "health {\ninterval 20ms\n}\n"+single(ps))
	ps[0].WaitProbes(t, 5)
	s.reload(t, "health {\ninterval 20ms\nendpoint /up\n}\n"+single(ps))
	ps[0].Wait(t, "a probe of another path", func(s fakepod.State) bool {
		return len(s.Requests) > 2 && s.Requests[0].Path == "/up"
	})
	s.ReloadSite(t, "respond ok")
	n := ps[0].Count()
	s.ReloadSite(t, "respond still")
	if got := ps[0].Count(); got > n+1 { // one may have been under way
		t.Errorf("%d probes of a balancer that is gone", got-n)
	}
}
