package testcaddy_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/cases"
	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// Forty clients at once that leave after 100 ms, then twenty at once that stay.
func TestSendCases(t *testing.T) {
	testcaddy.NoLeaks(t)
	p := fakepod.New(t, fakepod.Options{Name: "a"})
	c := testcaddy.Serve(t, proxy(p))
	br := cases.Open(t, "BR-03")
	c.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		p.Forget()
		p.Set(fakepod.Reply{Delay: time.Minute})
		for _, s := range cl.SendCases(t, br.Requests("abandoned")) {
			if !errors.Is(s.Err, context.DeadlineExceeded) || s.Status != 0 {
				t.Errorf("%s %d: %v", s.Name, s.N, s.Answer)
			}
			if took := s.Ended.Sub(s.Began); took < s.AbortAfter/2 {
				t.Errorf("%s %d left after %v", s.Name, s.N, took)
			}
		}
		p.WaitInFlight(t, 0)
		p.Forget()
		hold := make(chan struct{})
		p.Set(fakepod.Reply{Hold: hold})
		got := make(chan []testcaddy.Sent, 1)
		go func() { got <- cl.SendCases(t, br.Requests("after")) }()
		p.WaitInFlight(t, 20) // all at once
		close(hold)
		sent := <-got
		if n := testcaddy.Pods(sent); n["a"] != 20 || len(sent) != 20 {
			t.Errorf("%v", n)
		}
		for k, s := range sent {
			if s.N != k+1 || s.Err != nil || s.Status != 200 {
				t.Errorf("%d: %v", s.N, s.Answer)
			}
		}
	})
}

// Without a concurrency requests go one after another.
func TestSendCasesInTurn(t *testing.T) {
	p := fakepod.New(t, fakepod.Options{Name: "a"})
	c := testcaddy.Serve(t, proxy(p), testcaddy.Plain())
	sent := c.Client(t, testcaddy.H1).SendCases(t, cases.Open(t, "BR-14").Requests("short-distinct"))
	if len(sent) != 40 || p.MaxInFlight() != 1 {
		t.Fatalf("%d answers, at most %d at once", len(sent), p.MaxInFlight())
	}
	for k, q := range p.WaitRequests(t, 40) {
		if q.SHA256 != sum(sent[k].Request.Body) {
			t.Errorf("request %d reached the pod in another order or shape: %v", k+1, q)
		}
	}
}

// What never comes does not hold up the test, be it an answer, its headers or the
// next event.
func TestAnswerThatNeverComes(t *testing.T) {
	testcaddy.NoLeaks(t)
	p := fakepod.New(t, fakepod.Options{Name: "a"})
	c := testcaddy.Serve(t, proxy(p))
	defer func(d time.Duration) { testcaddy.AnswerPatience = d }(testcaddy.AnswerPatience)
	c.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		testcaddy.AnswerPatience = 100 * time.Millisecond
		p.Set(fakepod.Reply{Silent: true})
		if a := cl.Post(t, chat, stream); !errors.Is(a.Err, context.DeadlineExceeded) {
			t.Error(a)
		}
		if _, err := cl.Open(t, chat, stream); !errors.Is(err, context.Canceled) {
			t.Errorf("a stream without headers: %v", err)
		}
		testcaddy.AnswerPatience = testcaddy.Patience // the first event is to come
		p.Set(fakepod.Reply{Pause: time.Hour, PauseAfter: 1})
		s := cl.Stream(t, chat, stream)
		s.Take(t, 1)
		testcaddy.AnswerPatience = 100 * time.Millisecond
		if _, err := s.Next(); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("a stream that pauses: %v", err)
		}
	})
}

// Connection headers are sent where they can be, Host is set, the body is whole.
func TestSendCaseHeaders(t *testing.T) {
	p := fakepod.New(t, fakepod.Options{Name: "a"})
	c := testcaddy.Serve(t, proxy(p))
	ask := cases.Open(t, "BR-41").One(t, "ask")
	big := cases.Open(t, "BR-53").One(t, "audio")
	c.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		p.Forget()
		if a := cl.SendCase(t, ask); a.Status != 200 || a.Err != nil {
			t.Fatal(a)
		}
		q := p.Last(t)
		if q.Header.Get("Authorization") != "Bearer client-key-9" || q.SHA256 != sum(ask.Body) {
			t.Errorf("%v", q.Header)
		}
		// the hop is dropped by the proxy because Connection names it
		if hop := q.Header.Get("X-Hop"); (hop == "") != (cl.Protocol == testcaddy.H1) {
			t.Errorf("X-Hop %q", hop)
		}
		if a := cl.SendCase(t, big); a.Status != 200 || p.Last(t).SHA256 != sum(big.Body) {
			t.Errorf("%v, %v", a, p.Last(t))
		}
		tls := cases.Open(t, "BR-65").One(t, "ask")
		if a := cl.SendCase(t, tls); a.Status != 200 || p.Last(t).Host != "llm.example.test" {
			t.Errorf("%v, Host %s", a, p.Last(t).Host)
		}
	})
	if f := record(t, func(tb testing.TB) {
		c.Client(t, testcaddy.H1).SendCase(tb, cases.Request{Case: "X", Method: "bad method"})
	}); f == "" {
		t.Error("a bad request was sent")
	}
	if s := fmt.Sprint(testcaddy.H3); s != "h3" {
		t.Error(s)
	}
}
