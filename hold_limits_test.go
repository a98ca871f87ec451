package calinix_test

import (
	"strings"
	"testing"

	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// TestHeldTooLong: after its time a request is answered with 503 and Retry-After.
func TestHeldTooLong(t *testing.T) {
	testcaddy.NoLeaks(t)
	ps := pods(t, "a")
	s := serve(t, overload("timeout 100ms")+single(ps))
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		free, big := occupy(t, cl, ps[0])
		s.wantOverloaded(t, "timeout", "no pod was free for this request in 100ms", func() *testcaddy.Answer {
			return cl.Post(t, chatPath, chat(fresh("held", 300)))
		})
		close(free)
		want200(t, big)
	})
	if n := s.count(t, "calinix_hold_seconds_count"); n != 3 {
		t.Errorf("%v were held", n)
	}
}

// TestHeldTooMany: beyond max_held requests are answered so at once. What has no prompt
// is not held.
func TestHeldTooMany(t *testing.T) {
	testcaddy.NoLeaks(t)
	ps := pods(t, "a")
	s := serve(t, overload("max_held 1")+single(ps))
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		free, big := occupy(t, cl, ps[0])
		held := post(t, cl, chat(fresh("held", 300)))
		s.waitHeld(t, 1)
		s.wantOverloaded(t, "crowded", "no more than 1 requests may wait for one", func() *testcaddy.Answer {
			return cl.Post(t, chatPath, chat(fresh("many", 300)))
		})
		if a := cl.Get(t, "/anything"); a.Status != 200 {
			t.Error(a)
		}
		close(free)
		want200(t, big, held)
	})
}

// wantOverloaded fails the test unless the answer is a 503 that says why, in its body,
// in the metrics and in the access log.
func (s *site) wantOverloaded(t testing.TB, reason, why string, send func() *testcaddy.Answer) {
	t.Helper()
	before, mark := s.count(t, "calinix_overload_refusals_total", "reason", reason), s.Log.Mark()
	legs, refused := s.count(t, "calinix_requests_total"), s.count(t, "calinix_requests_total", "pod", "", "code", "503")
	a := send()
	if code := wantError(t, a, 503); code != "overloaded" || a.Header.Get("Retry-After") != "5" || !strings.Contains(string(a.Body), why) {
		t.Errorf("want %q: %v", why, a)
	}
	s.waitCount(t, before+1, "calinix_overload_refusals_total", "reason", reason)
	s.Log.Wait(t, mark, "the reason", func(e testcaddy.Entry) bool { return e.Has("calinix_outcome", "overloaded") && e.Has("status", "503") })
	s.waitCount(t, refused+1, "calinix_requests_total", "pod", "", "code", "503")
	if n := s.count(t, "calinix_requests_total") - legs; n != 1 {
		t.Errorf("%v legs are counted", n)
	}
	for _, name := range []string{"calinix_retries_total", "calinix_prefill_failures_total"} {
		if n := s.count(t, name, "reason", "overloaded"); n != 0 {
			t.Errorf("%s is %v", name, n)
		}
	}
}

// TestHeldPrefillTooLong: in dispatch mode, too; no decode pod serves the request alone
// instead, though decodeOnly is on.
func TestHeldPrefillTooLong(t *testing.T) {
	testcaddy.NoLeaks(t)
	prefill, decode := pods(t, "p"), pods(t, "d")
	s := serve(t, overload("timeout 100ms")+dispatch(prefill, decode, "on_prefill_failure decode_only"), testcaddy.Plain())
	cl := s.Client(t, testcaddy.H1)
	free, big := occupy(t, cl, prefill[0])
	s.wantOverloaded(t, "timeout", "no pod was free for this request in 100ms", func() *testcaddy.Answer {
		return cl.Post(t, chatPath, chat(fresh("held", 300)))
	})
	if prefill.Total() != 1 || decode.Total() != 0 {
		t.Errorf("the pods got %v and %v", prefill.Counts(), decode.Counts())
	}
	close(free)
	want200(t, big)
}

// TestHeldPodsGo: those that are held when the last pod goes down are told so.
func TestHeldPodsGo(t *testing.T) {
	testcaddy.NoLeaks(t)
	ps := pods(t, "a")
	s := serve(t, overload()+quickHealth+single(ps), testcaddy.Plain())
	cl := s.Client(t, testcaddy.H1)
	free, big := occupy(t, cl, ps[0])
	held := post(t, cl, chat(fresh("held", 300)))
	s.waitHeld(t, 1)
	ps[0].Healthy(false)
	if a := <-held; wantError(t, a, 503) != "no_pod_available" || a.Header.Get("Retry-After") == "" {
		t.Error(a)
	}
	ps[0].Healthy(true)
	s.waitUp(t, true, "a")
	close(free)
	want200(t, big)
}
