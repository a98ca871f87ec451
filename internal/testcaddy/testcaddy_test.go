package testcaddy_test

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

func TestMain(m *testing.M) { testcaddy.Main(m) }

const (
	chat   = "/v1/chat/completions"
	stream = `{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true}`
)

// proxy is a stock reverse proxy to one pod.
func proxy(p *fakepod.Pod) string { return "reverse_proxy " + p.Addr }

// recorder is a test that notes how it fails and cleans up when told to.
type recorder struct {
	testing.TB
	failures []string
	cleanups []func()
}

func (r *recorder) Helper()             {}
func (r *recorder) Failed() bool        { return len(r.failures) > 0 }
func (r *recorder) Logf(string, ...any) {}
func (r *recorder) Cleanup(f func())    { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Error(args ...any)   { r.failures = append(r.failures, fmt.Sprint(args...)) }
func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatal(args ...any) {
	r.Error(args...)
	runtime.Goexit()
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// record runs f like a test of its own and returns its failures in one text.
func record(t *testing.T, f func(tb testing.TB)) string {
	t.Helper()
	r := &recorder{TB: t}
	var wg sync.WaitGroup
	wg.Go(func() { f(r) })
	wg.Wait()
	for k := len(r.cleanups) - 1; k >= 0; k-- {
		r.cleanups[k]()
	}
	return strings.Join(r.failures, "\n")
}

// impatient makes waits in vain short.
func impatient(t *testing.T) {
	patience := testcaddy.Patience
	testcaddy.Patience = 50 * time.Millisecond
	t.Cleanup(func() { testcaddy.Patience = patience })
}

// A stock proxy in front of a fake pod, over all three protocols: the answer,
// the body at the pod, the protocol.
func TestProxyOverEveryProtocol(t *testing.T) {
	testcaddy.NoLeaks(t)
	p := fakepod.New(t, fakepod.Options{Name: "a"})
	c := testcaddy.Serve(t, proxy(p))
	body := `{"messages":"` + strings.Repeat("x", 300_000) + `"}`
	c.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		p.Forget()
		a := cl.Post(t, chat+"?q=1", body, "X-Custom", "a, b")
		if a.Err != nil || a.Status != 200 || a.Pod() != "a" || a.JSON(t)["pod"] != "a" {
			t.Fatal(a)
		}
		if want := "HTTP/" + map[testcaddy.Protocol]string{testcaddy.H1: "1.1", testcaddy.H2: "2.0", testcaddy.H3: "3.0"}[cl.Protocol]; a.Proto != want {
			t.Errorf("over %s, want %s", a.Proto, want)
		}
		q := p.WaitRequests(t, 1)[0]
		if string(q.Body) != body || q.Header.Get("X-Custom") != "a, b" || q.Target != chat+"?q=1" || q.Header.Get("Content-Type") != "application/json" {
			t.Errorf("the pod got %v with %v", q, q.Header)
		}
		if a.HeadersAt.Before(a.Began) || a.Ended.Before(a.HeadersAt) {
			t.Errorf("times %v %v %v", a.Began, a.HeadersAt, a.Ended)
		}
		if g := cl.Get(t, "/v1/models"); g.Status != 200 || !strings.Contains(string(g.Body), "acme-chat-1") {
			t.Error(g)
		}
	})
}

// Events arrive one by one while the pod sends them.
func TestStreamOverEveryProtocol(t *testing.T) {
	p := fakepod.New(t, fakepod.Options{Name: "a"})
	c := testcaddy.Serve(t, proxy(p))
	c.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		p.Forget()
		p.Set(fakepod.Reply{Chunks: 3, Gap: 30 * time.Millisecond})
		s := cl.Stream(t, chat, stream)
		if s.StatusCode != 200 || s.HeadersAt.Before(s.Began) {
			t.Fatalf("%d", s.StatusCode)
		}
		es, err := s.All()
		if err != nil || len(es) != 5 || es[4].Data != "[DONE]" || !strings.Contains(es[0].Data, `"a1 "`) {
			t.Fatalf("%v, events %+v", err, es)
		}
		q := p.WaitEnded(t, 1)
		for k := range es {
			if late := es[k].At.Sub(q.Sent[k]); late > time.Second {
				t.Errorf("event %d came %v after it left the pod", k, late)
			}
		}
		// what arrived at once at the end would have no gaps
		if es[1].At.Sub(es[0].At) < 10*time.Millisecond {
			t.Errorf("events 1 and 2 came %v apart, want about 30 ms", es[1].At.Sub(es[0].At))
		}
	})
}

// The pod sees a client leave: before the headers and in mid-stream.
func TestLeavingOverEveryProtocol(t *testing.T) {
	p := fakepod.New(t, fakepod.Options{Name: "a"})
	c := testcaddy.Serve(t, proxy(p))
	c.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		p.Forget()
		p.Set(fakepod.Reply{Pause: time.Minute, PauseAfter: 2, Gap: fakepod.NoGap})
		s := cl.Stream(t, chat, stream)
		s.Take(t, 2)
		left := s.Leave()
		q := p.WaitClosed(t, 1)
		if took := q.ClosedAt.Sub(left); took < 0 || took > time.Second {
			t.Errorf("noticed after %v", took)
		}
		if _, err := s.Next(); err == nil {
			t.Error("an event after leaving")
		}
	})
}

// A pod that breaks off in mid-stream is an error at the client, never an end.
// Over HTTP/3 the reset may overtake what is still on its way, be it the headers.
func TestCutOverEveryProtocol(t *testing.T) {
	p := fakepod.New(t, fakepod.Options{Name: "a", Script: fakepod.Reply{Cut: fakepod.Reset, At: fakepod.AfterChunks(3)}})
	c := testcaddy.Serve(t, proxy(p))
	c.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		a := cl.Post(t, chat, stream)
		if a.Err == nil || a.Status != 200 && cl.Protocol != testcaddy.H3 || strings.Contains(string(a.Body), "[DONE]") {
			t.Error(a)
		}
		s, err := cl.Open(t, chat, stream)
		if err != nil && cl.Protocol == testcaddy.H3 {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		es, err := s.All()
		if err == nil || len(es) > 3 || len(es) < 3 && cl.Protocol != testcaddy.H3 {
			t.Errorf("%d events, error %v", len(es), err)
		}
	})
}

func TestPlainSite(t *testing.T) {
	testcaddy.NoLeaks(t)
	p := fakepod.New(t, fakepod.Options{Name: "a"})
	c := testcaddy.Serve(t, proxy(p), testcaddy.Plain(), testcaddy.NoAdmin())
	ran := 0
	c.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		ran++
		a := cl.Post(t, chat, "{}", "Host", "any.example.test")
		if a.Status != 200 || p.Last(t).Host != "any.example.test" {
			t.Errorf("%v, Host %s", a, p.Last(t).Host)
		}
	})
	if ran != 1 {
		t.Errorf("a plain site was tried over %d protocols", ran)
	}
	if a := c.AdminGet(t, "/config/"); a.Err == nil {
		t.Errorf("there is an admin listener: %v", a)
	}
	if f := record(t, func(tb testing.TB) { c.Client(tb, testcaddy.H2) }); !strings.Contains(f, "h2 needs https") {
		t.Errorf("h2 without TLS: %q", f)
	}
}

func TestAnyHostAndGlobal(t *testing.T) {
	c := testcaddy.Serve(t, `respond "{host} {$TESTCADDY_UNSET:unset}"`, testcaddy.Global("servers {\n\tprotocols h1 h2\n}"))
	cl := c.Client(t, testcaddy.H1)
	if a := cl.Get(t, "/", "Host", "llm.example.test"); string(a.Body) != "llm.example.test unset" {
		t.Error(a)
	}
	if a := cl.Get(t, "/"); string(a.Body) != "localhost unset" || a.Header.Get("Alt-Svc") != "" {
		t.Errorf("HTTP/3 is on in spite of the global option: %v", a)
	}
}

// Certificates of Caddy's own CA, which come later than the end of loading.
func TestInternalCA(t *testing.T) {
	if testcaddy.RaceEnabled {
		t.Skip("Caddy v2.11.9 itself races when a managed certificate is there: TLS.Start writes what the event reads")
	}
	testcaddy.NoLeaks(t)
	port := testcaddy.Port(t)
	addr := fmt.Sprintf("localhost:%d", port)
	testcaddy.Load(t, fmt.Sprintf("{\n\tauto_https disable_redirects\n}\nhttps://%s {\n\ttls internal\n\trespond hi\n}\n", addr))
	testcaddy.WaitTLS(t, addr)
	for _, p := range testcaddy.All {
		if a := testcaddy.NewClient(t, p, "https://"+addr).Get(t, "/"); string(a.Body) != "hi" {
			t.Errorf("%v: %v", p, a)
		}
	}
	if _, err := os.Stat(testcaddy.LocalCAFile()); err != nil {
		t.Error(err)
	}
	impatient(t)
	if f := record(t, func(tb testing.TB) { testcaddy.WaitTLS(tb, "localhost:1") }); !strings.Contains(f, "has no certificate") {
		t.Errorf("%q", f)
	}
}

// What a configuration says itself stays.
func TestConfigurationGoesFirst(t *testing.T) {
	admin := testcaddy.Port(t)
	c := testcaddy.Serve(t, "respond x", testcaddy.Plain(), testcaddy.Global(fmt.Sprintf(
		"admin localhost:%d\nlog {\n\toutput discard\n}\ngrace_period 7s\nstorage file_system %s", admin, t.TempDir())))
	if a := c.AdminGet(t, "/config/"); a.Status != 200 || !strings.HasSuffix(c.AdminURL, fmt.Sprint(admin)) {
		t.Errorf("%s: %v", c.AdminURL, a)
	} else {
		for _, want := range []string{`"grace_period":7000000000`, `"output":"discard"`, `"persist":false`, t.TempDir()[:10]} {
			if !strings.Contains(string(a.Body), want) {
				t.Errorf("no %s in %s", want, a.Body)
			}
		}
	}
	c.Stop()
	raw := `{"admin":{"disabled":true},"logging":{"logs":{"default":{"writer":{"output":"discard"}}}}}`
	d := testcaddy.Load(t, raw, testcaddy.Adapter("json"), testcaddy.AsIs())
	if text := d.Log.Text(); text != "" {
		t.Errorf("AsIs was given the captured log:\n%s", text)
	}
}

func TestLoadWithSeveralSites(t *testing.T) {
	one, two := testcaddy.Port(t), testcaddy.Port(t)
	c := testcaddy.Load(t, fmt.Sprintf("http://localhost:%d {\n\trespond one\n}\nhttp://localhost:%d {\n\trespond two\n}\n", one, two))
	for port, want := range map[int]string{one: "one", two: "two"} {
		cl := testcaddy.NewClient(t, testcaddy.H1, fmt.Sprintf("http://localhost:%d", port))
		if a := cl.Get(t, "/"); string(a.Body) != want {
			t.Errorf("port %d: %v", port, a)
		}
	}
	if f := record(t, func(tb testing.TB) { c.Client(tb, testcaddy.H1) }); !strings.Contains(f, "use NewClient") {
		t.Errorf("%q", f)
	}
}

func TestAdaptersAndErrors(t *testing.T) {
	testcaddy.NoLeaks(t)
	// JSON as it is
	port := testcaddy.Port(t)
	config := fmt.Sprintf(`{"apps":{"http":{"servers":{"s":{"listen":[":%d"],"routes":[{"handle":[{"handler":"static_response","body":"json"}]}]}}}}}`, port)
	c := testcaddy.Load(t, config, testcaddy.Adapter("json"))
	if a := testcaddy.NewClient(t, testcaddy.H1, fmt.Sprintf("http://127.0.0.1:%d", port)).Get(t, "/"); string(a.Body) != "json" {
		t.Error(a)
	}
	// one at a time
	if f := record(t, func(tb testing.TB) { testcaddy.Load(tb, ":1 {\n}") }); !strings.Contains(f, "there can be only one") {
		t.Errorf("a second Caddy: %q", f)
	}
	c.Stop()
	c.Stop()
	if err := c.TryReload(config); err == nil {
		t.Error("a stopped Caddy was reloaded")
	}

	for _, tc := range []struct {
		text, want string
		opts       []testcaddy.Option
	}{
		{":1 {\n\tnonsense\n}", "Caddyfile:2: unrecognized directive: nonsense", nil},
		{":1 {\n\tnonsense\n}", "dir/x:2: unrecognized directive", []testcaddy.Option{testcaddy.Filename("dir/x")}},
		{`{"apps":{"nonsense":{}}}`, "unknown module: nonsense", []testcaddy.Option{testcaddy.Adapter("json")}},
		{`{`, "reading the adapted configuration", []testcaddy.Option{testcaddy.Adapter("json")}},
		{``, `no config adapter "none"`, []testcaddy.Option{testcaddy.Adapter("none")}},
	} {
		if err := testcaddy.LoadError(t, tc.text, tc.opts...); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q: %v, want %q", tc.text, err, tc.want)
		}
	}
	if f := record(t, func(tb testing.TB) {
		testcaddy.LoadError(tb, fmt.Sprintf("http://localhost:%d {\n}", port))
	}); !strings.Contains(f, "want an error") {
		t.Errorf("LoadError of a good configuration: %q", f)
	}

	out, warnings, err := testcaddy.Adapt(":1 {\nrespond x\n}\n")
	if err != nil || len(warnings) != 0 || !strings.Contains(string(out), `"static_response"`) {
		t.Errorf("%s, %q, %v", out, warnings, err)
	}
}

// A reload takes over the port, keeps the log and lets streams end; one that is
// refused changes nothing.
func TestReload(t *testing.T) {
	testcaddy.NoLeaks(t)
	p := fakepod.New(t, fakepod.Options{Name: "a"})
	c := testcaddy.Serve(t, proxy(p))
	cl := c.Client(t, testcaddy.H2)
	hold := make(chan struct{})
	p.Set(fakepod.Func(func(r fakepod.Request) fakepod.Reply {
		return fakepod.Reply{Gap: fakepod.NoGap, Hold: hold}
	}))
	got := make(chan *testcaddy.Answer, 1)
	go func() { got <- cl.Post(t, chat, stream) }()
	p.WaitRequests(t, 1)
	mark := c.Log.Mark()
	c.ReloadSite(t, `respond new`)
	c.Log.Wait(t, mark, "the reload", func(e testcaddy.Entry) bool { return strings.Contains(e.Msg, "servers shutting down") })
	close(hold)
	if a := <-got; a.Err != nil || a.Status != 200 || !strings.Contains(string(a.Body), "[DONE]") {
		t.Errorf("the stream over the reload: %v", a)
	}
	if a := c.Client(t, testcaddy.H1).Get(t, "/"); string(a.Body) != "new" {
		t.Error(a)
	}
	if err := c.TryReloadSite("nonsense"); err == nil {
		t.Error("nonsense was loaded")
	}
	if a := c.Client(t, testcaddy.H1).Get(t, "/"); string(a.Body) != "new" {
		t.Errorf("after a refused reload: %v", a)
	}
	if f := record(t, func(tb testing.TB) { c.ReloadSite(tb, "nonsense") }); !strings.Contains(f, "unrecognized directive") {
		t.Errorf("%q", f)
	}
	if f := record(t, func(tb testing.TB) { c.Reload(tb, "nonsense {") }); f == "" {
		t.Error("nonsense was loaded")
	}
}

// Once a reload has returned, new connections come to the new configuration, and
// none is closed without an answer, as Caddy's old servers do in their last
// moments.
func TestReloadIsOver(t *testing.T) {
	for _, opts := range [][]testcaddy.Option{nil, {testcaddy.Plain()}} {
		c := testcaddy.Serve(t, `respond "0"`, opts...)
		for n := range 25 {
			want := fmt.Sprint(n + 1)
			c.ReloadSite(t, "respond "+want)
			if a := c.Client(t, testcaddy.H1).Get(t, "/"); string(a.Body) != want {
				t.Fatalf("after reload %s: %v", want, a)
			}
		}
		c.Stop()
	}
}

// The harness sees a goroutine that is left behind, and names it.
func TestNoLeaksSeesALeak(t *testing.T) {
	impatient(t)
	stop := make(chan struct{})
	defer close(stop)
	f := record(t, func(tb testing.TB) {
		testcaddy.NoLeaks(tb)
		go func() { <-stop }()
	})
	if !strings.Contains(f, "TestNoLeaksSeesALeak") {
		t.Errorf("%q", f)
	}
	if f := record(t, func(tb testing.TB) { testcaddy.NoLeaks(tb) }); f != "" {
		t.Errorf("a leak was seen where there is none: %s", f)
	}
}

// Answers over another protocol than asked for are errors.
func TestProtocolIsChecked(t *testing.T) {
	p := fakepod.New(t, fakepod.Options{})
	cl := testcaddy.NewClient(t, testcaddy.H1, p.URL)
	cl.Protocol = testcaddy.H2
	if a := cl.Get(t, "/"); a.Err == nil || !strings.Contains(a.Err.Error(), "over HTTP/1.1, want h2") {
		t.Error(a)
	}
	if f := record(t, func(tb testing.TB) { cl.Stream(tb, "/", "x") }); !strings.Contains(f, "want h2") {
		t.Errorf("%q", f)
	}
}

func TestAnswerOfNobody(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	cl := testcaddy.NewClient(t, testcaddy.H1, "http://"+ln.Addr().String())
	a := cl.Post(t, "/", "x")
	if a.Err == nil || a.Status != 0 || a.Pod() != "" || a.Ended.IsZero() {
		t.Error(a)
	}
	if f := record(t, func(tb testing.TB) { a.JSON(tb) }); !strings.Contains(f, "no JSON object") {
		t.Errorf("%q", f)
	}
	if f := record(t, func(tb testing.TB) { cl.Get(tb, "/", "odd") }); !strings.Contains(f, "no pairs") {
		t.Errorf("%q", f)
	}
}

func TestSSE(t *testing.T) {
	text := "\n: comment\n\nevent: x\nid: 7\ndata: one\ndata:two\n\r\ndata: {\"a\":1}\r\n\r\ndata: half"
	s := testcaddy.NewStream(strings.NewReader(text))
	es := s.Take(t, 3)
	if es[0].Data != "" || es[0].Raw != "\n: comment\n\n" {
		t.Errorf("%+v", es[0])
	}
	if es[1].Type != "x" || es[1].ID != "7" || es[1].Data != "one\ntwo" || es[2].Data != `{"a":1}` {
		t.Errorf("%+v", es[1:])
	}
	if testcaddy.Text(es) != "one\ntwo"+`{"a":1}` {
		t.Errorf("%q", testcaddy.Text(es))
	}
	if _, err := s.Next(); err == nil || s.Rest != "data: half" {
		t.Errorf("%v, rest %q", err, s.Rest)
	}
	if f := record(t, func(tb testing.TB) { s.Take(tb, 1) }); !strings.Contains(f, "event 1 of 1") {
		t.Errorf("%q", f)
	}
}
