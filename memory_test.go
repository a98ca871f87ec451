package calinix_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// sized is a completion request of n bytes.
func sized(n int, members ...string) string {
	b := completion("")
	for _, m := range members {
		b = b[:len(b)-1] + "," + m + "}"
	}
	return strings.Replace(b, `"prompt":"`, `"prompt":"`+strings.Repeat("x", n-len(b)), 1)
}

// arriving is a body of n bytes that is announced, of which the first have been
// sent.
type arriving struct {
	done chan *testcaddy.Answer
	rest func()
}

func arrive(t testing.TB, cl *testcaddy.Client, n, first int) arriving {
	t.Helper()
	whole := sized(n)
	in, out := io.Pipe()
	req := cl.Request(t.Context(), t, http.MethodPost, "/v1/completions", "x")
	req.Body, req.ContentLength, req.GetBody = in, int64(n), nil
	a := arriving{done: make(chan *testcaddy.Answer, 1)}
	go func() { a.done <- cl.Send(req) }()
	if _, err := io.WriteString(out, whole[:first]); err != nil {
		t.Fatal(err)
	}
	a.rest = func() {
		_, _ = io.WriteString(out, whole[first:]) // an error shows in the answer
		out.Close()
	}
	return a
}

// TestSlowBody: who announces much and sends little holds little. The body is
// served in the end if there is room, and refused if there is not.
func TestSlowBody(t *testing.T) {
	ps := pods(t, "a")
	s := serve(t, "body_memory_bytes 1000000\nmax_body_bytes 1MB\n"+single(ps))
	held := func(want float64) { t.Helper(); s.waitCount(t, want, "calinix_body_bytes") }
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		slow := arrive(t, cl, 900_000, 10_000)
		held(16 * 1024)
		if a := cl.Post(t, "/v1/completions", sized(900_000)); a.Status != 200 {
			t.Errorf("another body: %v", a)
		}
		held(16 * 1024)
		slow.rest()
		if a := <-slow.done; a.Status != 200 || len(ps[0].Last(t).Body) != 900_000 {
			t.Errorf("the slow one, when there is room: %v", a)
		}
		held(0)

		slow = arrive(t, cl, 900_000, 70_000)
		held(4 * 64 * 1024) // the next larger buffer
		hold := make(chan struct{})
		ps[0].Next(fakepod.Reply{Hold: hold})
		done := make(chan *testcaddy.Answer, 1)
		go func() { done <- cl.Post(t, "/v1/completions", sized(700_000)) }()
		held(700_000 + 4*64*1024)
		slow.rest()
		if a := <-slow.done; wantError(t, a, http.StatusServiceUnavailable) != "no_memory_for_body" {
			t.Errorf("the slow one, when there is no room: %v", a)
		}
		close(hold)
		if a := <-done; a.Status != 200 {
			t.Errorf("the one for which there was room: %v", a)
		}
		held(0)
	})
}

// TestMemoryUntilTheAnswer: a body takes memory until its answer has begun, not
// for as long as it streams.
func TestMemoryUntilTheAnswer(t *testing.T) {
	singles, prefill, decode := pods(t, "a"), pods(t, "p"), pods(t, "d")
	s := serve(t, "body_memory_bytes 100000\nmax_body_bytes 100000\n"+single(singles)+dispatch(prefill, decode))
	for _, mode := range []string{"single", "dispatch"} {
		s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
			for _, ps := range []fakepod.Pods{singles, prefill, decode} {
				ps.Set(fakepod.Reply{Chunks: 2, Gap: time.Hour})
			}
			var streams []*testcaddy.Stream
			for range 3 {
				st := cl.Stream(t, "/v1/completions", sized(49_000, `"stream":true`), "x-calinix-mode", mode)
				st.Take(t, 1)
				streams = append(streams, st)
			}
			s.waitCount(t, 0, "calinix_body_bytes")
			for _, st := range streams {
				st.Close()
			}
			s.waitNone(t)
		})
	}
}

// TestMemoryOfLegs: in dispatch mode a leg's body is a copy, and counts as such;
// alone, a body of any size is served.
func TestMemoryOfLegs(t *testing.T) {
	prefill, decode := pods(t, "p"), pods(t, "d")
	s := serve(t, "body_memory_bytes 100000\nmax_body_bytes 100000\n"+dispatch(prefill, decode))
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		for _, leg := range []struct {
			pod   *fakepod.Pod
			fits  int // beside the first
			wants int // no longer
		}{{prefill[0], 9_000, 11_000}, {decode[0], 25_000, 30_000}} {
			hold := make(chan struct{})
			leg.pod.Next(fakepod.Reply{Hold: hold})
			n := leg.pod.Count()
			done := make(chan *testcaddy.Answer, 1)
			go func() { done <- cl.Post(t, "/v1/completions", sized(40_000)) }()
			leg.pod.WaitRequests(t, n+1)
			if a := cl.Post(t, "/v1/completions", sized(leg.wants+1000)); wantError(t, a, http.StatusServiceUnavailable) != "no_memory_for_body" || a.Header.Get("Retry-After") != "1" {
				t.Errorf("while %s has the first: %v", leg.pod.Name, a)
			}
			if a := cl.Post(t, "/v1/completions", sized(leg.fits-500)); a.Status != 200 {
				t.Errorf("a small one, while %s has the first: %v", leg.pod.Name, a)
			}
			close(hold)
			if a := <-done; a.Status != 200 {
				t.Error(a)
			}
			s.waitNone(t)
		}
		if a := cl.Post(t, "/v1/completions", sized(99_000)); a.Status != 200 {
			t.Errorf("alone: %v", a)
		}
		s.waitNone(t)
	})
}

// TestMemoryOfRepeatedPrefill: a prefill leg that runs again carries a copy of the body
// again, and that counts; without memory for it the request is refused.
func TestMemoryOfRepeatedPrefill(t *testing.T) {
	prefill, decode := pods(t, "p"), pods(t, "d1", "d2")
	s := serve(t, "body_memory_bytes 100000\nmax_body_bytes 100000\nretry_status 500\n"+inOrder+
		"dispatch {\nconnector p2pnccl\nprefill {\n"+podList(prefill, "kv_address 127.0.0.1:1")+"}\ndecode {\n"+podList(decode, "kv_address 127.0.0.1:2")+"}\n}\n", testcaddy.Plain())
	cl := s.Client(t, testcaddy.H1)
	held := func(want float64) { t.Helper(); s.waitCount(t, want, "calinix_body_bytes") }
	done := make(chan *testcaddy.Answer, 1)
	send := func(n int) { done <- cl.Post(t, "/v1/completions", sized(n)) }

	decode[0].Next(fakepod.Reply{Status: 500})
	hold := make(chan struct{})
	prefill[0].Next(fakepod.Reply{}, fakepod.Reply{Hold: hold})
	go send(40_000)
	prefill[0].WaitRequests(t, 2)
	held(80_000)
	close(hold)
	if a := <-done; a.Status != 200 || a.Pod() != "d2" {
		t.Error(a)
	}
	held(0)

	fail, other := make(chan struct{}), make(chan struct{})
	decode[0].Next(fakepod.Reply{Status: 500, Hold: fail})
	go send(40_000)
	decode[0].WaitRequests(t, 2)
	held(40_000)
	prefill[0].Next(fakepod.Reply{Hold: other})
	rest := make(chan *testcaddy.Answer, 1)
	go func() { rest <- cl.Post(t, "/v1/completions", sized(25_000)) }()
	held(90_000)
	close(fail)
	if a := <-done; wantError(t, a, http.StatusServiceUnavailable) != "no_memory_for_body" || a.Header.Get("Retry-After") != "1" {
		t.Errorf("while another body takes the memory: %v", a)
	}
	close(other)
	if a := <-rest; a.Status != 200 {
		t.Error(a)
	}
	if n := prefill[0].Count(); n != 4 {
		t.Errorf("%d prefill legs, want 4", n)
	}
	s.waitIdle(t, prefill, decode)
	held(0)
}

// TestMemoryGivenBack: whatever becomes of a body, what it took is free again.
func TestMemoryGivenBack(t *testing.T) {
	ps := pods(t, "a")
	s := serve(t, "body_memory_bytes 1000000\nmax_body_bytes 1MB\n"+single(ps), testcaddy.Plain())
	cl := s.Client(t, testcaddy.H1)
	for _, status := range []int{200, 400, 500} {
		ps[0].Set(fakepod.Reply{Status: status})
		for range 5 {
			if a := cl.Post(t, "/v1/completions", sized(900_000)); a.Status != status {
				t.Fatalf("status %d: %v", status, a)
			}
			s.waitCount(t, 0, "calinix_body_bytes")
		}
	}
	ps[0].Set(fakepod.Reply{})
	for _, kind := range []string{"announced", "chunked"} {
		for range 5 {
			in, out := io.Pipe()
			req := cl.Request(t.Context(), t, http.MethodPost, "/v1/completions", "x")
			req.Body, req.ContentLength, req.GetBody = in, 900_000, nil
			if kind == "chunked" {
				req.ContentLength = -1
			}
			done := make(chan *testcaddy.Answer, 1)
			go func() { done <- cl.Send(req) }()
			_, _ = io.WriteString(out, sized(900_000)[:800_000])
			out.CloseWithError(fmt.Errorf("the client leaves"))
			<-done
		}
		s.waitCount(t, 0, "calinix_body_bytes")
	}
}
