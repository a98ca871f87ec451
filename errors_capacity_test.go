package calinix_test

import (
	"net/http"
	"strconv"
	"testing"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// wantRetryAfter fails the test unless the answer says when to come again.
func wantRetryAfter(t testing.TB, a *testcaddy.Answer) {
	t.Helper()
	if n, err := strconv.Atoi(a.Header.Get("Retry-After")); err != nil || n < 1 {
		t.Errorf("Retry-After is %q: %v", a.Header.Get("Retry-After"), a)
	}
}

// TestErrorNoPod: no pod of a needed role up, or all at maxConns, is a 503 with
// Retry-After before any leg is sent.
func TestErrorNoPod(t *testing.T) {
	all := pods(t, "s1", "p1", "d1")
	one, prefill, decode := all[:1], all[1:2], all[2:]
	for _, why := range []string{"healthy off", "draining"} {
		for _, c := range []struct{ role, mode, keys string }{
			{"single", "single", "single {\n" + podList(one, why) + "}\n"},
			{"prefill", "disaggregated", "dispatch {\nprefill {\n" + podList(prefill, why) + "}\ndecode {\n" + podList(decode) + "}\n}\n"},
			{"decode", "disaggregated", "dispatch {\nprefill {\n" + podList(prefill) + "}\ndecode {\n" + podList(decode, why) + "}\n}\n"},
		} {
			s := serve(t, "health {\nhealthy_threshold 1000\n}\n"+c.keys)
			s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
				before := all.Total()
				a := cl.Post(t, chatPath, question)
				if code := wantError(t, a, http.StatusServiceUnavailable); code != "no_pod_available" {
					t.Errorf("code %q", code)
				}
				wantRetryAfter(t, a)
				if a.Header.Get("X-Calinix-Mode") != c.mode || a.Pod() != "" {
					t.Errorf("%s %s: %v", c.role, why, a)
				}
				if n := all.Total() - before; n != 0 {
					t.Errorf("%s %s: %d requests reached a pod", c.role, why, n)
				}
			})
			s.waitCount(t, 3, "calinix_requests_total", "mode", c.mode, "role", c.role, "pod", "", "code", "503")
			s.waitIdle(t)
			s.Stop()
		}
	}
}

// TestErrorAllFull: pods at their maxConns are full until one has an answer
// through; the request that is refused has cost no pod anything, and leaves no
// load behind at the other role's.
func TestErrorAllFull(t *testing.T) {
	all := pods(t, "a", "b", "other")
	two, other := all[:2], all[2:]
	limited := podList(two, "max_conns 2")
	for role, keys := range map[string]string{
		"single":  "single {\n" + limited + "}\n",
		"prefill": "dispatch {\nprefill {\n" + limited + "}\ndecode {\n" + podList(other) + "}\n}\n",
		"decode":  "dispatch {\nprefill {\n" + podList(other) + "}\ndecode {\n" + limited + "}\n}\n",
	} {
		all.Forget()
		hold := make(chan struct{})
		two.Set(fakepod.Reply{Hold: hold})
		s := serve(t, keys)
		cl := s.Client(t, testcaddy.H2)
		done := make(chan *testcaddy.Answer, 4)
		for i := range cap(done) {
			go func() { done <- cl.Post(t, chatPath, chat("q"+strconv.Itoa(i))) }()
		}
		two[0].WaitRequests(t, 2)
		two[1].WaitRequests(t, 2)
		before := all.Total()
		for range 3 {
			a := cl.Post(t, chatPath, question)
			if code := wantError(t, a, http.StatusServiceUnavailable); code != "no_pod_available" {
				t.Errorf("%s: code %q", role, code)
			}
			wantRetryAfter(t, a)
		}
		if n := all.Total() - before; n != 0 {
			t.Errorf("%s: %d requests reached a pod", role, n)
		}
		s.waitCount(t, 3, "calinix_requests_total", "role", role, "pod", "", "code", "503")
		close(hold)
		for range cap(done) {
			if a := <-done; a.Status != 200 {
				t.Errorf("%s: %v", role, a)
			}
		}
		if counts := all.Counts(); counts["a"] != 2 || counts["b"] != 2 {
			t.Errorf("%s: the pods got %v", role, counts)
		}
		s.waitIdle(t, all)
		if a := cl.Post(t, chatPath, question); a.Status != 200 {
			t.Errorf("%s: afterwards: %v", role, a)
		}
		s.Stop()
	}
}
