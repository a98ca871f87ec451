package calinix_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// racedLegs are sites with which the pod of each kind of leg is tested; a second
// pod of the kind stands by, and one failure would
// mark the first one down.
func racedLegs(t *testing.T) []struct {
	name, keys string
	pod, other *fakepod.Pod
} {
	t.Helper()
	all := pods(t, "s1", "s2", "p1", "p2", "d1", "d2")
	keys := inOrder + "retry_budget 1\nhealth {\ninterval 1h\npassive {\nfailures 1\n}\n}\n"
	both := dispatch(all[2:4], all[4:])
	return []struct {
		name, keys string
		pod, other *fakepod.Pod
	}{
		{"single", keys + single(all[:2]), all[0], all[1]},
		{"prefill", keys + both, all[2], all[3]},
		{"decode", keys + both, all[4], all[5]},
	}
}

// onReused answers well, but on a connection that had a request before as given.
func onReused(reply fakepod.Reply) fakepod.Script {
	return fakepod.Func(func(q fakepod.Request) fakepod.Reply {
		if q.OnConn > 1 {
			return reply
		}
		return fakepod.Reply{}
	})
}

// TestReuseRace: when a reused connection turns out to be closed, before the
// request was written or soon after and before any byte of an answer, the
// request is repeated on a fresh connection of the same pod. That is neither a
// retry nor a failure.
func TestReuseRace(t *testing.T) {
	for _, c := range racedLegs(t) {
		for name, end := range map[string]func(){
			"reset before it is read":  func() { c.pod.ResetOnReuse(true) },
			"reset after it was read":  func() { c.pod.Set(onReused(fakepod.Reply{Cut: fakepod.Reset})) },
			"closed after it was read": func() { c.pod.Set(onReused(fakepod.Reply{Cut: fakepod.Close})) },
			"closed when idle":         func() { c.pod.CloseIdle(time.Millisecond) },
		} {
			s := serve(t, c.keys)
			end()
			cl := s.Client(t, testcaddy.H1)
			const n = 6
			for i := range n {
				body := chat(fmt.Sprint(name, i))
				a := cl.Post(t, chatPath, body)
				if a.Status != 200 {
					t.Fatalf("%s, %s: %v", c.name, name, a)
				}
				if got := string(c.pod.Last(t).Body); c.name == "single" && got != body {
					t.Errorf("%s, %s: the pod gets %q", c.name, name, got)
				}
			}
			s.waitCount(t, n, "calinix_requests_total", "role", c.name, "pod", c.pod.Name, "code", "200")
			if got := s.count(t, "calinix_requests_total", "role", c.name); got != n {
				t.Errorf("%s, %s: %v legs are counted, want %d", c.name, name, got, n)
			}
			if s.count(t, "calinix_retries_total") != 0 || s.count(t, "calinix_prefill_failures_total") != 0 || c.other.Count() != 0 {
				t.Errorf("%s, %s: counted as retry or failure, and %d requests at the other pod", c.name, name, c.other.Count())
			}
			if !s.pod(t, c.pod.Name).Up {
				t.Errorf("%s, %s: the pod was marked down", c.name, name)
			}
			c.pod.ResetOnReuse(false)
			c.pod.CloseIdle(0)
			c.pod.Clear()
			s.Stop()
		}
	}
}

// TestReuseRepeatedOnce: the repeat is a request like any other: when it fails
// too, that counts, and it is not repeated again.
func TestReuseRepeatedOnce(t *testing.T) {
	for _, c := range racedLegs(t) {
		s := serve(t, c.keys)
		cl := s.Client(t, testcaddy.H1)
		cl.Post(t, chatPath, chat("one"))
		c.pod.Forget()
		c.pod.Set(fakepod.Reply{Cut: fakepod.Reset})
		a := cl.Post(t, chatPath, chat("two"))
		if got := c.pod.Count(); got != 2 {
			t.Errorf("%s: the pod was asked %d times, want 2", c.name, got)
		}
		if c.name == "prefill" { // has its own try elsewhere
			if a.Status != 200 || c.other.Count() != 1 {
				t.Errorf("%s: %v", c.name, a)
			}
		} else if wantError(t, a, http.StatusBadGateway); c.other.Count() != 0 {
			t.Errorf("%s: the other pod was asked", c.name)
		}
		s.waitCount(t, 1, "calinix_requests_total", "role", c.name, "pod", c.pod.Name, "code", "502")
		s.waitUp(t, false, c.pod.Name)
		c.pod.Clear()
		s.Stop()
	}
}

// TestReuseThenUnreachable: a pod that has gone away between two requests is
// found out by the repeat, and the request goes elsewhere.
func TestReuseThenUnreachable(t *testing.T) {
	for _, c := range racedLegs(t) {
		s := serve(t, c.keys)
		cl := s.Client(t, testcaddy.H1)
		cl.Post(t, chatPath, chat("one"))
		c.pod.Crash()
		if a := cl.Post(t, chatPath, chat("two")); a.Status != 200 || c.other.Count() != 1 {
			t.Errorf("%s: %v", c.name, a)
		}
		s.waitCount(t, 1, "calinix_requests_total", "role", c.name, "pod", c.pod.Name, "code", "502")
		s.waitIdle(t)
		s.Stop()
		if err := c.pod.Listen(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReuseThenGone: when the repeat finds that the pod is gone, another one gets the
// request; what the pod had begun went down with it.
func TestReuseThenGone(t *testing.T) {
	for _, c := range racedLegs(t) {
		s := serve(t, c.keys)
		cl := s.Client(t, testcaddy.H1)
		cl.Post(t, chatPath, chat("one"))
		gone := make(chan struct{})
		c.pod.Set(fakepod.Func(func(q fakepod.Request) fakepod.Reply {
			if q.OnConn < 2 {
				t.Errorf("%s: %v did not come on a reused connection", c.name, q)
			}
			go func() { defer close(gone); c.pod.Crash() }()
			return fakepod.Reply{Silent: true}
		}))
		a := cl.Post(t, chatPath, chat("two"))
		<-gone
		if a.Status != 200 || c.other.Count() != 1 {
			t.Errorf("%s: %d requests at the other pod, %v", c.name, c.other.Count(), a)
		}
		s.waitCount(t, 1, "calinix_retries_total", "reason", "unreachable")
		s.waitCount(t, 1, "calinix_retries_total")
		s.waitIdle(t)
		s.Stop()
		c.pod.Clear()
		if err := c.pod.Listen(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReuseNoRace: on a fresh connection, later than 100 ms after the request
// was written, or after a byte of an answer nothing is repeated: the pod may
// have begun to work.
func TestReuseNoRace(t *testing.T) {
	all := pods(t, "a")
	all[0].SetHealth(fakepod.Reply{Close: true}) // the first leg finds no connection to reuse
	s := serve(t, single(all))
	cl := s.Client(t, testcaddy.H1)
	for name, reply := range map[string]fakepod.Reply{
		"late":            {Delay: 200 * time.Millisecond, Cut: fakepod.Reset},
		"late, closed":    {Delay: 200 * time.Millisecond, Cut: fakepod.Close},
		"a byte":          {Raw: []byte("H"), Cut: fakepod.Close},
		"an early answer": {Raw: []byte("HTTP/1.1 103 Early Hints\r\n\r\n"), Cut: fakepod.Close},
	} {
		all[0].Set(onReused(reply))
		if a := cl.Post(t, chatPath, chat("fresh")); a.Status != 200 {
			t.Fatal(a)
		}
		all[0].Forget()
		wantError(t, cl.Post(t, chatPath, chat(name)), http.StatusBadGateway)
		if got := all[0].Requests(); len(got) != 1 || got[0].OnConn < 2 {
			t.Errorf("%s: the pod was asked %d times", name, len(got))
		}
	}
	all[0].Set(fakepod.Reply{Cut: fakepod.Reset})
	all[0].ResetConns()
	all[0].WaitOpen(t, 0)
	all[0].Forget()
	for n := range 3 {
		wantError(t, cl.Post(t, chatPath, chat("fresh")), http.StatusBadGateway)
		if got := all[0].Count(); got != n+1 {
			t.Errorf("on a fresh connection: the pod was asked %d times for %d requests", got, n+1)
		}
	}
}
