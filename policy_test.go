package calinix_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// stock is a stock reverse_proxy in front of the pods with the policy's block
// and further keys of the proxy.
func stock(all fakepod.Pods, block string, keys ...string) string {
	var b strings.Builder
	b.WriteString("reverse_proxy")
	for _, p := range all {
		b.WriteString(" " + p.Addr)
	}
	return b.String() + " {\nlb_policy cache_aware {\n" + block + "\n}\n" + strings.Join(keys, "\n") + "\n}"
}

// only makes the policy's settings different from those of every other test, so
// that nothing has been learnt before.
func only(n int) string { return fmt.Sprintf("max_blocks %d\n", 900_000+n) }

// TestPolicyCacheAware: a conversation stays with its upstream, others spread;
// also over a reload.
func TestPolicyCacheAware(t *testing.T) {
	ps := pods(t, "a", "b", "c")
	c := testcaddy.Serve(t, stock(ps, only(1)))
	homes := map[string]string{}
	c.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		for i := range 8 {
			history := words(fmt.Sprint("talk", cl.Protocol, i), 60)
			home := cl.Post(t, chatPath, chat(history)).Pod()
			homes[history] = home
			for turn := range 2 {
				history += words(fmt.Sprint("turn", turn), 30)
				if a := cl.Post(t, chatPath, chat(history)); a.Status != 200 || a.Pod() != home {
					t.Errorf("talk %d began at %s, turn %d: %v", i, home, turn, a)
				}
			}
		}
	})
	seen := map[string]bool{}
	for _, home := range homes {
		seen[home] = true
	}
	if len(seen) != 3 {
		t.Errorf("24 conversations were at %v", seen)
	}
	c.ReloadSite(t, stock(ps, only(1), "header_up X-New 1"))
	cl := c.Client(t, testcaddy.H2)
	for history, home := range homes {
		if a := cl.Post(t, chatPath, chat(history+"more")); a.Pod() != home {
			t.Errorf("after a reload a conversation of %s: %v", home, a)
		}
	}
}

// TestPolicySkipsTried: upstreams that the request has tried, and those that
// Caddy holds for unavailable, are left out; the body goes along.
func TestPolicySkipsTried(t *testing.T) {
	ps := pods(t, "a", "b", "c")
	match := "lb_retry_match {\nmethod POST\n}"
	c := testcaddy.Serve(t, stock(ps, only(2), "lb_retries 5", match))
	cl := c.Client(t, testcaddy.H2)
	for i := range 6 {
		// Two of three fail, whichever they are.
		good := ps[i%3]
		ps.Set(fakepod.Reply{Cut: fakepod.Reset, Delay: 120 * time.Millisecond})
		good.Set(fakepod.Reply{})
		ps.Forget()
		body := chat(words(fmt.Sprint("p", i), 500))
		a := cl.Post(t, chatPath, body)
		if a.Status != 200 || a.Pod() != good.Name || string(good.Last(t).Body) != body {
			t.Errorf("%s alone is good: %v", good.Name, a)
		}
		for _, p := range ps {
			if p.Count() > 1 {
				t.Errorf("%s alone is good: the upstreams got %v", good.Name, ps.Counts())
			}
		}
	}
	// None is left: no upstream is asked twice however many tries there are.
	ps.Set(fakepod.Reply{Cut: fakepod.Reset, Delay: 120 * time.Millisecond})
	ps.Forget()
	if a := cl.Post(t, chatPath, question); a.Status != 502 {
		t.Errorf("all fail: %v", a)
	}
	for _, p := range ps {
		if p.Count() != 1 {
			t.Errorf("all fail: the upstreams got %v", ps.Counts())
		}
	}
	// A port that refuses; without lb_retry_match a failed dial is retried too.
	ps.Set(fakepod.Reply{})
	c.ReloadSite(t, stock(ps, only(2), "lb_retries 2"))
	cl = c.Client(t, testcaddy.H2)
	ps[0].Refuse()
	ps[2].Refuse()
	for i := range 4 {
		if a := cl.Post(t, chatPath, chat(fmt.Sprint(i))); a.Status != 200 || a.Pod() != "b" {
			t.Errorf("b alone listens: %v", a)
		}
	}
	// Caddy's own health checks.
	ps[1].Set(fakepod.Reply{})
	for _, p := range []*fakepod.Pod{ps[0], ps[2]} {
		if err := p.Listen(); err != nil {
			t.Fatal(err)
		}
	}
	ps[1].Healthy(false)
	c.ReloadSite(t, stock(ps, only(2), "health_uri /health", "health_interval 20ms"))
	cl = c.Client(t, testcaddy.H2)
	ps[1].WaitProbes(t, 2)
	ps.Forget()
	for i := range 6 {
		if a := cl.Post(t, chatPath, chat(fmt.Sprint("q", i))); a.Status != 200 || a.Pod() == "b" {
			t.Errorf("b is unhealthy: %v", a)
		}
	}
}

// TestPolicyStrategies: the policy knows the strategies that the handler knows.
func TestPolicyStrategies(t *testing.T) {
	ps := pods(t, "a", "b", "c")
	c := testcaddy.Serve(t, stock(ps, only(3)+"strategy round_robin"))
	cl := c.Client(t, testcaddy.H2)
	if got := order(t, 6, func(int) *testcaddy.Answer { return cl.Post(t, chatPath, question) }); got[0] == got[1] || !slices.Equal(got[:3], got[3:]) || len(tally(got)) != 3 {
		t.Errorf("round_robin went to %v", got)
	}
	c.ReloadSite(t, stock(ps, only(3)+"strategy random"))
	cl = c.Client(t, testcaddy.H2)
	if n := tally(order(t, 90, func(int) *testcaddy.Answer { return cl.Post(t, chatPath, question) })); len(n) != 3 {
		t.Errorf("random went to %v", n)
	}
	c.ReloadSite(t, stock(ps, only(3)+"strategy cache_aware\nweights cache 0 load 0 sticky 1"))
	cl = c.Client(t, testcaddy.H2)
	for i := range 8 {
		got := order(t, 3, func(n int) *testcaddy.Answer {
			return cl.Post(t, chatPath, chat(fmt.Sprint(i, n)), "X-Session-ID", fmt.Sprint("s", i))
		})
		if len(tally(got)) != 1 {
			t.Errorf("session %d went to %v", i, got)
		}
	}
}

// TestPolicyTies: the same prompt finds the same upstream, whatever came before.
func TestPolicyTies(t *testing.T) {
	ps := pods(t, "a", "b", "c", "d")
	c := testcaddy.Serve(t, stock(ps, only(4)))
	cl := c.Client(t, testcaddy.H1)
	at := map[int]string{}
	for i := range 24 {
		at[i] = cl.Post(t, chatPath, chat(words(fmt.Sprint("p", i), 20))).Pod()
	}
	c.ReloadSite(t, stock(ps, only(5)))
	cl = c.Client(t, testcaddy.H1)
	seen := map[string]bool{}
	for i := 23; i >= 0; i-- {
		if a := cl.Post(t, chatPath, chat(words(fmt.Sprint("p", i), 20))); a.Pod() != at[i] {
			t.Errorf("prompt %d was at %s: %v", i, at[i], a)
		}
		seen[at[i]] = true
	}
	if len(seen) < 3 {
		t.Errorf("24 prompts were at %v", seen)
	}
}

// TestPolicyLoad: what runs at an upstream counts from the pick to the end of
// the answer, however that comes about.
func TestPolicyLoad(t *testing.T) {
	ps := pods(t, "a", "b")
	c := testcaddy.Serve(t, stock(ps, only(6)+"strategy least_loaded", "lb_try_duration 2s", "lb_try_interval 10ms"))
	cl := c.Client(t, testcaddy.H2)
	even := func(when string) {
		t.Helper()
		hold := make(chan struct{})
		ps.Set(fakepod.Reply{Hold: hold})
		ps.Forget()
		done := make(chan *testcaddy.Answer, 8)
		for i := range cap(done) {
			go func() { done <- cl.Post(t, chatPath, chat(fmt.Sprint(i))) }()
		}
		for _, p := range ps {
			p.WaitInFlight(t, cap(done)/2)
		}
		close(hold)
		for range cap(done) {
			if a := <-done; a.Status != 200 {
				t.Errorf("%s: %v", when, a)
			}
		}
		ps.Set(fakepod.Reply{})
	}
	even("at the start")
	gone := func() {
		ctx, leave := testContext(t)
		ps.Forget()
		done := make(chan struct{})
		go func() {
			defer close(done)
			cl.Send(cl.Request(ctx, t, http.MethodPost, chatPath, question))
		}()
		for ps.Total() == 0 {
			c.Metrics(t)
		}
		leave()
		<-done
	}
	ps.Set(fakepod.Reply{Silent: true})
	for range 3 {
		gone()
	}
	even("after clients left")
	ps.Set(fakepod.Reply{Cut: fakepod.Reset, At: fakepod.HalfBody})
	for range 3 {
		cl.Post(t, chatPath, question)
	}
	even("after answers that broke off")
	for _, p := range ps {
		p.Refuse()
	}
	for range 3 { // Caddy goes on trying when the client has left
		ctx, leave := testContext(t)
		time.AfterFunc(20*time.Millisecond, leave)
		cl.Send(cl.Request(ctx, t, http.MethodPost, chatPath, question))
	}
	for _, p := range ps {
		if err := p.Listen(); err != nil {
			t.Fatal(err)
		}
	}
	even("after clients left while all upstreams were away")
}

// TestPolicyBodies: every body reaches the upstream as it was sent.
func TestPolicyBodies(t *testing.T) {
	ps := pods(t, "a", "b")
	c := testcaddy.Serve(t, stock(ps, only(7)))
	c.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		for _, size := range []int{0, 1, 1000, 100_000, 8<<20 + 1} {
			for _, chunked := range []bool{false, true} {
				body := strings.Repeat("x", size)
				req := cl.Request(t.Context(), t, http.MethodPost, chatPath, body)
				if chunked && size > 0 {
					req.Body, req.ContentLength = io.NopCloser(strings.NewReader(body)), -1
				}
				a := cl.Send(req)
				if a.Status != 200 {
					t.Fatal(a)
				}
				q := ps.Pod(a.Pod()).Last(t)
				if string(q.Body) != body {
					t.Errorf("%d bytes, chunked %v: the upstream gets %d", size, chunked, len(q.Body))
				}
				if size <= 8<<20 && (len(q.TransferEncoding) > 0 || q.ContentLength != int64(size)) {
					t.Errorf("%d bytes, chunked %v: Content-Length %d, Transfer-Encoding %q", size, chunked, q.ContentLength, q.TransferEncoding)
				}
			}
		}
	})
}

// TestPolicyTwice: a request that passes two proxies with this policy is one of
// each.
func TestPolicyTwice(t *testing.T) {
	ps := pods(t, "a", "b")
	second := stock(ps, only(9)+"strategy round_robin")
	c := testcaddy.Serve(t, stock(ps, only(8)+"strategy round_robin", "@ok status 2xx", "handle_response @ok {\n"+second+"\n}"))
	cl := c.Client(t, testcaddy.H2)
	for i := range 4 {
		ps.Forget()
		body := chat(fmt.Sprint("twice", i))
		a := cl.Post(t, chatPath, body)
		if a.Status != 200 || a.Pod() == "" || ps.Total() != 2 {
			t.Fatalf("request %d, upstreams got %v: %v", i, ps.Counts(), a)
		}
		for _, q := range ps.Received() {
			if string(q.Body) != body {
				t.Errorf("request %d: an upstream gets %q", i, q.Body)
			}
		}
		// Both proxies stand at the same place of their rounds.
		if n := ps.Pod(a.Pod()).Count(); n != 2 {
			t.Errorf("request %d: the upstreams got %v", i, ps.Counts())
		}
	}
}

// TestPolicyDefaultStrategy: without a strategy the policy is what its name says:
// it weighs, sessions among other things.
func TestPolicyDefaultStrategy(t *testing.T) {
	ps := pods(t, "a", "b", "c")
	const session = "weights cache 0 load 0 sticky 1"
	ask := func(block string) map[string]int {
		c := testcaddy.Serve(t, stock(ps, block))
		defer c.Stop()
		cl := c.Client(t, testcaddy.H1)
		return tally(order(t, 12, func(i int) *testcaddy.Answer {
			return cl.Post(t, chatPath, chat(words(fmt.Sprint("of one session", i), 20)), "x-session-id", "s")
		}))
	}
	if got := ask(only(20) + session); len(got) != 1 {
		t.Errorf("without a strategy 12 prompts of a session went to %v, want one upstream", got)
	}
	if got := ask(only(20) + session + "\nstrategy expected_ttft"); len(got) == 1 {
		t.Errorf("with expected_ttft all of 12 prompts of a session went to %v", got)
	}
}
