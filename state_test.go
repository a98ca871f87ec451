package calinix_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/cases"
	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// stream is a request whose answer is under way.
type stream struct {
	*testcaddy.Stream
	pod string
}

// hold makes the pods stop in the middle of every answer that they begin from
// now on, until release is called.
func hold(ps fakepod.Pods) (release func()) {
	until := make(chan struct{})
	ps.Set(fakepod.Reply{Gap: fakepod.NoGap, Hold: until, HoldAfter: 3})
	return func() { close(until) }
}

// startStream begins a stream at whichever pod it goes to and reads three of
// its chunks. If the test relies on that it still runs then, hold is needed.
func startStream(t testing.TB, cl *testcaddy.Client, body string, headers ...string) stream {
	t.Helper()
	s := cl.Stream(t, chatPath, body, headers...)
	s.Take(t, 3)
	return stream{s, s.Header.Get("X-Fake-Pod")}
}

// wantWhole reads a stream to its end, which must be the pod's own.
func (s stream) wantWhole(t testing.TB) {
	t.Helper()
	events, err := s.All()
	if n := len(events); err != nil || n == 0 || events[n-1].Data != "[DONE]" {
		t.Errorf("the stream of pod %s: %d more events, error %v", s.pod, n, err)
	}
}

// TestStateOverReload is case BR-23: streams, verdicts, index and load.
func TestStateOverReload(t *testing.T) {
	c := cases.Open(t, "BR-23")
	ps := pods(t, "a", "b", "c", "d")
	keys := "health {\ninterval 20ms\ntimeout 2s\nhealthy_threshold 2\nunhealthy_threshold 3\n}\n" + single(ps)
	s := serve(t, keys)
	cl := s.Client(t, testcaddy.H2)
	post := func(r cases.Request) *testcaddy.Answer {
		t.Helper()
		req, err := r.HTTP(t.Context(), cl.Base)
		if err != nil {
			t.Fatal(err)
		}
		return cl.Send(req)
	}
	ps.OnlyHealthy(t, 3, "b")
	s.waitUp(t, false, "a", "c", "d")
	if a := post(c.One(t, "warm")); a.Pod() != "b" {
		t.Fatalf("warming: %v", a)
	}
	for _, id := range []string{"a", "c"} {
		ps.Pod(id).Healthy(true)
	}
	ps.Pod("d").Refuse()
	s.waitUp(t, true, "a", "b", "c")

	end := make(chan struct{})
	ps.Set(fakepod.Reply{Hold: end, HoldAfter: 1})
	var streams []stream
	for _, r := range c.Named(t, "streams") {
		st := cl.Stream(t, r.Path, string(r.Body))
		st.Take(t, 1)
		streams = append(streams, stream{st, st.Header.Get("X-Fake-Pod")})
	}
	ps.Set(fakepod.Reply{})
	s.waitCount(t, 5, "calinix_pod_inflight")
	s.reload(t, keys+"retries 2\n")
	if n := s.count(t, "calinix_pod_inflight"); n != 5 {
		t.Errorf("after the reload %v legs run, want the 5 streams", n)
	}
	at := time.Now()
	for _, r := range c.Named(t, "follow") {
		if a := post(r); a.Pod() != "b" || a.Header.Get("X-Calinix-Cache-Hit") != "true" {
			t.Errorf("follow: %v", a)
		}
	}
	for _, r := range c.Named(t, "others") {
		if time.Since(at) > 500*time.Millisecond {
			break
		}
		if a := post(r); a.Status != 200 || a.Pod() == "d" {
			t.Errorf("other: %v", a)
		}
	}
	if n := ps.Pod("d").Count(); n != 0 {
		t.Errorf("the dead pod has got %d requests", n)
	}
	if s.pod(t, "d").Up {
		t.Error("the dead pod is up after the reload")
	}
	close(end)
	for _, st := range streams {
		st.wantWhole(t)
	}
	s.waitIdle(t, ps)
	if n := s.count(t, "calinix_retries_total"); n != 0 {
		t.Errorf("%v retries", n)
	}
}

// TestStateStreaksOverReload: a streak that began before a reload goes on after
// it.
func TestStateStreaksOverReload(t *testing.T) {
	ps := pods(t, "a")
	a := ps[0]
	// one probe a reload: the first is at once, the next an hour later
	keys := "health {\ninterval 2h\nunhealthy_threshold 3\nhealthy_threshold 3\n}\n" + single(ps)
	s := serve(t, keys, testcaddy.Plain())
	// probe reloads, which probes once, and waits for the verdict. Each status
	// is another one, by which the probe is known.
	probe := func(status int, up bool) {
		t.Helper()
		a.SetHealth(fakepod.Reply{Status: status})
		s.reload(t, keys+fmt.Sprintf("max_body_bytes %d\n", 1000+status))
		deadline := time.Now().Add(testcaddy.Patience)
		e := entry(t, s.Caddy, "a")
		for ; !strings.HasPrefix(e.Health, fmt.Sprint(status)); e = entry(t, s.Caddy, "a") {
			if time.Now().After(deadline) {
				t.Fatalf("the probe answered with %d has not come: %+v", status, e)
			}
		}
		// once more: the list has the verdicts first, then the probes
		if e := entry(t, s.Caddy, "a"); e.Up != up {
			t.Fatalf("after a probe answered with %d: %+v", status, e)
		}
	}
	probe(500, true)
	probe(501, true) // two of three
	probe(201, true) // the streak is broken
	probe(502, true)
	probe(503, true)
	probe(504, false)
	probe(202, false)
	probe(203, false)
	probe(505, false) // broken
	probe(204, false)
	probe(205, false)
	probe(206, true)
}

// TestStateSessionsOverReload: the pod that served a session is remembered.
func TestStateSessionsOverReload(t *testing.T) {
	ps := pods(t, "a", "b", "c", "d")
	s := serve(t, single(ps), testcaddy.Plain())
	cl := s.Client(t, testcaddy.H1)
	served := map[string]string{}
	for i := range 8 {
		session := fmt.Sprint("session-", i)
		served[session] = cl.Post(t, chatPath, chat(fmt.Sprint("prompt ", i)), "X-Session-ID", session).Pod()
	}
	s.reload(t, single(ps)+"retries 0\n")
	for session, pod := range served {
		for _, c := range s.explain(t, "", "no prompt", "X-Session-ID", session).Candidates {
			if want := map[bool]float64{true: 100, false: 0}[c.Pod == pod]; c.Sticky != want {
				t.Errorf("%s was served by %s: %+v", session, pod, c)
			}
		}
	}
}

// TestStateRemovedPod: a pod that a reload removes gets nothing more, ends what
// it has, and is forgotten; if it comes back it is a new one.
func TestStateRemovedPod(t *testing.T) {
	ps := pods(t, "a", "b")
	// HTTP/3 cuts streams when the grace period is over
	s := serve(t, "block_size 4\n"+single(ps)+quickHealth, testcaddy.Global("grace_period 1m"))
	for _, p := range []testcaddy.Protocol{testcaddy.H1, testcaddy.H2, testcaddy.H3} {
		t.Run(p.String(), func(t *testing.T) {
			s.reload(t, "block_size 4\n"+single(ps)+quickHealth)
			cl := s.Client(t, p)
			prompt := words("removed-"+p.String(), 50)
			body := chat(prompt, `"stream":true`)
			release := hold(ps)
			st := startStream(t, cl, body, "X-Session-ID", "one")
			gone, left := ps.Pod(st.pod), ps[0]
			if left == gone {
				left = ps[1]
			}
			before := entry(t, s.Caddy, gone.Name)
			if before.Blocks < 12 || before.Inflight != 1 {
				t.Errorf("before: %+v", before)
			}
			s.reload(t, "block_size 4\n"+single(fakepod.Pods{left})+quickHealth)
			if all := entries(t, s.Caddy, ""); len(all) != 1 || all[0].ID != left.Name {
				t.Errorf("after the reload: %+v", all)
			}
			if n := len(s.series(t, "calinix_pod_inflight")); n != 1 {
				t.Errorf("%d series of legs in flight", n)
			}
			count := gone.Count()
			again := make(chan *testcaddy.Answer, 3)
			for range cap(again) {
				go func() { again <- cl.Post(t, chatPath, body, "X-Session-ID", "one") }()
			}
			left.WaitRequests(t, 3)
			if n := gone.Count(); n != count {
				t.Errorf("a removed pod has got %d requests", n-count)
			}
			// back, while its stream still runs
			s.reload(t, "block_size 4\n"+single(ps)+quickHealth)
			back := entry(t, s.Caddy, gone.Name)
			if back.Blocks != 0 || back.Inflight != 1 || !back.Up {
				t.Errorf("when it comes back while its stream runs: %+v", back)
			}
			e := s.explain(t, "", body, "X-Session-ID", "one")
			if c := e.of(t, gone.Name); c.Depth != 0 || c.Sticky != 0 {
				t.Errorf("it is known still: %+v", c)
			}
			release()
			st.wantWhole(t)
			for range cap(again) {
				if a := <-again; a.Err != nil || a.Status != 200 {
					t.Error(a)
				}
			}
			s.waitIdle(t, ps)
			if n := entry(t, s.Caddy, gone.Name).Blocks; n != 0 {
				t.Errorf("the end of an old stream has taught %d blocks", n)
			}
			ps.Forget()
		})
	}
}

// TestStateMovedPod: the same id at another URL is another pod, and what ran at
// the old one ends there.
func TestStateMovedPod(t *testing.T) {
	olds, news := pods(t, "a"), pods(t, "a")
	s := serve(t, "block_size 4\n"+single(olds)+"health {\ninterval 1h\n}\n")
	cl := s.Client(t, testcaddy.H2)
	body := chat(words("w", 50), `"stream":true`)
	release := hold(olds)
	st := startStream(t, cl, body)
	drain(t, s.Caddy, "a", "drain") // of the old one
	s.reload(t, "block_size 4\n"+single(news)+"health {\ninterval 1h\n}\n")
	e := entry(t, s.Caddy, "a")
	if e.URL != news[0].URL || e.Blocks != 0 || e.Inflight != 0 || e.Draining || !e.Up {
		t.Errorf("the new pod: %+v", e)
	}
	if a := cl.Post(t, chatPath, body); a.Status != 200 || a.Header.Get("X-Calinix-Cache-Hit") != "false" || news[0].Count() != 1 || olds[0].Count() != 1 {
		t.Errorf("the next request: %v", a)
	}
	blocks := entry(t, s.Caddy, "a").Blocks
	release()
	st.wantWhole(t)
	s.waitCount(t, 2, "calinix_requests_total", "pod", "a", "code", "200")
	if e := entry(t, s.Caddy, "a"); e.Blocks != blocks || blocks == 0 || e.Inflight != 0 {
		t.Errorf("after the end of the old stream: %+v, it had %d blocks", e, blocks)
	}
	news[0].Wait(t, "a probe", func(s fakepod.State) bool { return len(s.Probes) > 0 })
}

// TestStateNewBlockSize: blocks of another size, or of other tokens, are blocks
// of another text: the index begins anew. Load and verdicts stay.
func TestStateNewBlockSize(t *testing.T) {
	ps := pods(t, "a")
	s := serve(t, "block_size 4\n"+single(ps)+quickHealth, testcaddy.Plain())
	for _, keys := range []string{"block_size 5\n", "block_size 5\nmax_token_bytes 4\n", "block_size 5\nmax_token_bytes 0\n"} {
		release := hold(ps)
		st := startStream(t, s.Client(t, testcaddy.H1), chat(words("w", 50), `"stream":true`))
		if n := indexOf(t, s.Caddy).Blocks; n < 10 {
			t.Errorf("%d blocks", n)
		}
		s.reload(t, keys+single(ps)+quickHealth)
		if n := indexOf(t, s.Caddy).Blocks; n != 0 {
			t.Errorf("%d blocks after the reload with %q", n, keys)
		}
		if e := entry(t, s.Caddy, "a"); e.Inflight != 1 || !e.Up {
			t.Errorf("%+v", e)
		}
		if c := s.explain(t, "", chat(words("w", 50))).of(t, "a"); c.Depth != 0 {
			t.Errorf("%+v", c)
		}
		release()
		st.wantWhole(t)
		s.waitIdle(t, ps)
	}
}

// TestStateAfterFailedReload: a configuration that is refused, at whatever
// stage, leaves everything as it was.
func TestStateAfterFailedReload(t *testing.T) {
	ps := pods(t, "a", "b")
	keys := "block_size 4\n" + single(ps)
	s := serve(t, keys, testcaddy.Plain())
	cl := s.Client(t, testcaddy.H1)
	body := chat(words("w", 50))
	first := cl.Post(t, chatPath, body).Pod()
	drain(t, s.Caddy, "a", "drain")
	before := entries(t, s.Caddy, "")
	taken := strings.TrimPrefix(ps[0].URL, "http://127.0.0.1:") // a port that is not to be had
	for name, body := range map[string]string{
		"a key that is wrong":   s.body("block_size 0\n" + single(ps[:1])),
		"no pods":               s.body("block_size 4\n"),
		"an unknown pod key":    s.body("block_size 4\nsingle {\npod a " + ps[0].URL + " {\nweight 3\n}\n}\n"),
		"another app's fault":   s.body("block_size 8\n"+single(ps[:1])) + fmt.Sprintf("\n}\nhttps://localhost:%d {\ntls /none.pem /none.key\n", testcaddy.Port(t)),
		"a listener that fails": s.body("block_size 8\n"+single(ps[:1])) + "\n}\nhttp://:" + taken + " {\nbind 127.0.0.1\nrespond x\n",
	} {
		if err := s.TryReloadSite(body); err == nil {
			t.Fatalf("%s: the configuration was loaded", name)
		}
		if after := entries(t, s.Caddy, ""); fmt.Sprint(after) != fmt.Sprint(before) {
			t.Errorf("%s: the pods were\n%+v, are\n%+v", name, before, after)
		}
	}
	drain(t, s.Caddy, "a", "undrain")
	if a := cl.Post(t, chatPath, body); a.Pod() != first || a.Header.Get("X-Calinix-Cache-Hit") != "true" {
		t.Errorf("what %s had learnt is gone: %v", first, a)
	}
}

// TestStateOfAnotherName: state belongs to a name; another name, or a
// configuration without the balancer between, begins anew.
func TestStateOfAnotherName(t *testing.T) {
	ps := pods(t, "a", "b")
	s := serve(t, "block_size 4\n"+single(ps), testcaddy.Plain())
	learn := func() {
		t.Helper()
		s.Client(t, testcaddy.H1).Post(t, chatPath, chat(words("w", 50)))
		if n := indexOf(t, s.Caddy).Blocks; n == 0 {
			t.Error("nothing was learnt")
		}
		drain(t, s.Caddy, "a", "drain")
	}
	isNew := func(what string) {
		t.Helper()
		if n := indexOf(t, s.Caddy).Blocks; n != 0 {
			t.Errorf("%s: %d blocks", what, n)
		}
		if entry(t, s.Caddy, "a").Draining {
			t.Errorf("%s: a drains", what)
		}
	}
	learn()
	s.ReloadSite(t, "respond ok")
	s.reload(t, "block_size 4\n"+single(ps))
	isNew("after a configuration without it")
	learn()
	old := s.balancer
	s.balancer = old + "-renamed"
	s.reload(t, "block_size 4\n"+single(ps))
	isNew("under another name")
	if all := entries(t, s.Caddy, ""); all[0].Balancer != s.balancer {
		t.Errorf("%+v", all)
	}
	if a := s.AdminGet(t, "/calinix/pods?balancer="+old); a.Status != 404 {
		t.Errorf("the old name: %v", a)
	}
}
