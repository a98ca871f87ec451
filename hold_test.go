package calinix_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	calinix "github.com/calinix/caddy-calinix"
	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// overload are the keys of a balancer that holds requests. Its pods are taken for so
// slow that within a test nothing is released by time alone.
func overload(keys ...string) string {
	return "strategy expected_ttft\nexpected_ttft {\nprefill_rate 100\n}\nretries 0\noverload {\n" + strings.Join(keys, "\n") + "\n}\n"
}

// waitHeld waits until so many requests are held.
func (s *site) waitHeld(t testing.TB, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d requests to be held", n), func() bool { return calinix.Held(s.balancer) == n })
}

// post sends a chat in the background.
func post(t testing.TB, cl *testcaddy.Client, body string) <-chan *testcaddy.Answer {
	t.Helper()
	req := cl.Request(t.Context(), t, http.MethodPost, chatPath, body)
	done := make(chan *testcaddy.Answer, 1)
	go func() { done <- cl.Send(req) }()
	return done
}

// want200 waits for the answers, each a 200.
func want200(t testing.TB, answers ...<-chan *testcaddy.Answer) {
	t.Helper()
	late := time.After(3 * testcaddy.Patience)
	for _, c := range answers {
		select {
		case a := <-c:
			if a.Err != nil || a.Status != 200 {
				t.Error(a)
			}
		case <-late:
			t.Fatal("an answer does not come")
		}
	}
}

// occupy gives the pod a prompt of 50,000 tokens, which it computes until the
// returned channel is closed.
func occupy(t testing.TB, cl *testcaddy.Client, p *fakepod.Pod) (free chan<- struct{}, done <-chan *testcaddy.Answer) {
	t.Helper()
	hold, n := make(chan struct{}), p.Count()
	p.Next(fakepod.Reply{Hold: hold})
	done = post(t, cl, chat(fresh("big", 20_000)))
	p.WaitRequests(t, n+1)
	return hold, done
}

var prompts atomic.Int64

// fresh are n words that begin with name, and that no pod can have cached.
func fresh(name string, n int) string {
	return words(fmt.Sprintf("%s-%d-", name, prompts.Add(1)), n)
}

// arrived are the first words of the prompts that the pod got, in their order.
func arrived(p *fakepod.Pod) string {
	var names []string
	for _, q := range p.Requests() {
		_, prompt, _ := strings.Cut(string(q.Body), `"content":"`)
		name, _, _ := strings.Cut(prompt, "-")
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

// TestHeldShortestFirst: while the pod computes a long prompt the next ones are held,
// and the short one overtakes the one before it. Admin, metrics and log say so.
func TestHeldShortestFirst(t *testing.T) {
	testcaddy.NoLeaks(t)
	ps := pods(t, "a")
	s := serve(t, overload()+single(ps))
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		ps.Forget()
		before, mark := s.count(t, "calinix_hold_seconds_count"), s.Log.Mark()
		free, big := occupy(t, cl, ps[0])
		long := post(t, cl, chat(fresh("long", 3000)))
		s.waitHeld(t, 1)
		short := post(t, cl, chat(fresh("short", 300)))
		s.waitHeld(t, 2)
		if n := s.count(t, "calinix_held"); n != 2 {
			t.Errorf("calinix_held is %v", n)
		}
		var e struct{ Held string }
		if a := s.AdminPost(t, "/calinix/explain?balancer="+s.balancer, chat("hi")); json.Unmarshal(a.Body, &e) != nil ||
			!strings.HasPrefix(e.Held, "pod a is busy for ") || !strings.HasSuffix(e.Held, ", more than 100ms") {
			t.Errorf("explained: %v", a)
		}
		if ps[0].Count() != 1 || calinix.Held(s.balancer) != 2 {
			t.Errorf("the pod has %s", arrived(ps[0]))
		}
		close(free)
		want200(t, big, long, short)
		if got := arrived(ps[0]); got != "big short long" {
			t.Errorf("the pod got %s", got)
		}
		s.waitCount(t, before+2, "calinix_hold_seconds_count")
		for range 2 {
			s.Log.Wait(t, mark, "how long it was held", func(e testcaddy.Entry) bool {
				return strings.Contains(e.Line, `"calinix_held_ms":`) && e.Has("calinix_outcome", "answered")
			})
		}
		if a := s.AdminPost(t, "/calinix/explain?balancer="+s.balancer, chat("hi")); strings.Contains(string(a.Body), `"held"`) {
			t.Errorf("explained: %v", a)
		}
	})
}

// TestHeldClientLeaves: who leaves while it is held is out at once, the pod never
// hears of it, and those behind it move up.
func TestHeldClientLeaves(t *testing.T) {
	testcaddy.NoLeaks(t)
	ps := pods(t, "a")
	s := serve(t, overload()+single(ps))
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		ps.Forget()
		gone := s.count(t, "calinix_requests_total", "code", "499")
		free, big := occupy(t, cl, ps[0])
		ctx, leave := testContext(t)
		left := make(chan struct{})
		req := cl.Request(ctx, t, http.MethodPost, chatPath, chat(fresh("leaver", 300)))
		go func() { cl.Send(req); close(left) }()
		s.waitHeld(t, 1)
		next := post(t, cl, chat(fresh("next", 900)))
		s.waitHeld(t, 2)
		leave()
		<-left
		s.waitHeld(t, 1)
		s.waitCount(t, gone+1, "calinix_requests_total", "code", "499", "pod", "")
		close(free)
		want200(t, big, next)
		if got := arrived(ps[0]); got != "big next" {
			t.Errorf("the pod got %s", got)
		}
	})
	s.waitIdle(t, ps)
}

// TestHeldOverReload: a reload keeps those that are held, and their order; one that
// brings a pod, or turns the holding off, sends them.
func TestHeldOverReload(t *testing.T) {
	testcaddy.NoLeaks(t)
	ps := pods(t, "a", "b")
	s := serve(t, overload()+single(ps[:1]), testcaddy.Plain())
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		free, big := occupy(t, cl, ps[0])
		long := post(t, cl, chat(fresh("long", 3000)))
		s.waitHeld(t, 1)
		s.reload(t, overload("hold 200ms", "max_held 50")+single(ps[:1]))
		after := s.Client(t, testcaddy.H1)
		short := post(t, after, chat(fresh("short", 300)))
		s.waitHeld(t, 2)
		close(free)
		want200(t, big, long, short)
		if got := arrived(ps[0]); got != "big short long" {
			t.Errorf("the pod got %s", got)
		}

		ps.Forget()
		free, big = occupy(t, after, ps[0])
		more := post(t, after, chat(fresh("more", 300)))
		s.waitHeld(t, 1)
		s.reload(t, overload()+single(ps))
		want200(t, more) // at b
		if got := arrived(ps[1]); got != "more" {
			t.Errorf("pod b got %s", got)
		}
		s.reload(t, overload()+single(ps[:1]))
		last := s.Client(t, testcaddy.H1)
		freed := post(t, last, chat(fresh("freed", 300)))
		s.waitHeld(t, 1)
		s.reload(t, "strategy expected_ttft\nexpected_ttft {\nprefill_rate 100\n}\n"+single(ps[:1]))
		want200(t, freed)
		close(free)
		want200(t, big)
	})
}

// TestHeldLargeBodies: those that are held keep no place among the large bodies, of
// which few are read at a time.
func TestHeldLargeBodies(t *testing.T) {
	testcaddy.NoLeaks(t)
	ps := pods(t, "a")
	s := serve(t, overload()+single(ps), testcaddy.Plain())
	cl := s.Client(t, testcaddy.H1)
	free, big := occupy(t, cl, ps[0])
	var all []<-chan *testcaddy.Answer
	n := runtime.GOMAXPROCS(0) + 4
	for range n {
		all = append(all, post(t, cl, chat(fresh("large", 20_000))))
	}
	s.waitHeld(t, n)
	close(free)
	want200(t, append(all, big)...)
	s.waitIdle(t, ps)
	if got := s.count(t, "calinix_body_bytes"); got != 0 {
		t.Errorf("%v bytes are still reserved", got)
	}
}

// TestHeldPrefill: in dispatch mode a request is held before its prefill leg; no
// decode pod is reserved meanwhile.
func TestHeldPrefill(t *testing.T) {
	for _, connector := range []string{"nixl", "sglang"} {
		t.Run(connector, func(t *testing.T) {
			prefill, decode := pods(t, "p"), pods(t, "d")
			prefill.Set(fakepod.Reply{KV: []byte(`{"remote_engine_id":"p"}`), Stream: fakepod.Never})
			s := serve(t, overload()+dispatch(prefill, decode, "connector "+connector, "on_prefill_failure decode_only"), testcaddy.Plain())
			cl := s.Client(t, testcaddy.H1)
			free := make(chan struct{})
			prefill[0].Next(fakepod.Reply{Hold: free, KV: []byte(`{"remote_engine_id":"p"}`), Stream: fakepod.Never})
			concurrent := connector == "sglang"
			if concurrent { // the decode pod waits for the prefill pod
				decode[0].Next(fakepod.Reply{Hold: free})
			}
			big := post(t, cl, chat(fresh("big", 20_000)))
			prefill[0].WaitRequests(t, 1)
			held := post(t, cl, chat(fresh("held", 300)))
			s.waitHeld(t, 1)
			if n := s.pod(t, "d").Inflight; n > 1 || n == 1 && !concurrent {
				t.Errorf("%d legs run at the decode pod", n)
			}
			close(free)
			want200(t, big, held)
			if n := s.count(t, "calinix_prefill_failures_total"); n != 0 {
				t.Errorf("%v prefill legs have failed", n)
			}
			s.waitIdle(t, prefill, decode)
		})
	}
}

// TestHeldBySim: a real engine with more to do than it can. The short prompts come last
// and are answered before the long ones that were there, and nobody is lost.
func TestHeldBySim(t *testing.T) {
	port := testcaddy.Port(t)
	engine := fmt.Sprintf("\n}\nhttp://:%d {\nbind 127.0.0.1\ninference_sim {\noutput_tokens 1\nprefill_tokens_per_second 8000\n}\n", port)
	s := &site{balancer: "held-by-sim"}
	t.Cleanup(func() { calinix.ForgetCounters(s.balancer) })
	keys := overload() + fmt.Sprintf("health {\ninterval 1h\n}\nsingle {\npod a http://127.0.0.1:%d\n}\n", port)
	s.Caddy = testcaddy.Serve(t, s.body(keys)+engine, testcaddy.Plain())
	cl := s.Client(t, testcaddy.H1)
	send := func(name string, words int) <-chan *testcaddy.Answer {
		return post(t, cl, chat(fresh(name, words), `"stream":true`))
	}
	// Long enough for all others to come meanwhile; of these the long ones take 0.4 s.
	blocker := send("blocker", 40_000)
	eventually(t, "the first to be sent", func() bool { return calinix.Running(s.balancer) == 1 })
	var long, short []<-chan *testcaddy.Answer
	for range 2 {
		long = append(long, send("long", 3200))
	}
	s.waitHeld(t, 2)
	for range 4 {
		short = append(short, send("short", 100))
	}
	s.waitHeld(t, 6)
	last := func(all []<-chan *testcaddy.Answer) (at time.Time) {
		for _, c := range all {
			a := <-c
			if a.Err != nil || a.Status != 200 {
				t.Fatal(a)
			}
			if a.Ended.After(at) {
				at = a.Ended
			}
		}
		return at
	}
	want200(t, blocker)
	if shorts, longs := last(short), last(long); !shorts.Before(longs) {
		t.Errorf("the short prompts were done %v after the long ones", shorts.Sub(longs))
	}
}
