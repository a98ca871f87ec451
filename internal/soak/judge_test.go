package main

import (
	"net/http"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/fakepod"
)

// judged returns what the checker says of one request, answered well unless changed.
func judged(r *record) []string {
	zero := time.Now()
	if r.answer == nil {
		r.answer = &answer{began: zero, ended: zero, status: 200, whole: true}
		r.entries = append(r.entries, entry{status: 200, outcome: "answered"})
	}
	c := newChecker()
	c.request("r", r)
	return c.violations()
}

// TestSecondGeneration: only a used connection that broke within 100 ms excuses one,
// and one at another pod only if it died.
func TestSecondGeneration(t *testing.T) {
	zero := time.Now()
	broke := func(after time.Duration, gone bool) *pod {
		return &pod{Pod: new(fakepod.Pod), breaks: []breakage{{zero.Add(after), zero.Add(after + time.Millisecond), gone}}}
	}
	soon, late, dead := broke(50*time.Millisecond, false), broke(120*time.Millisecond, true), broke(50*time.Millisecond, true)
	second := func(p *pod, after time.Duration) generation { return generation{p, zero.Add(after), 2, 1} }
	for name, tc := range map[string]struct {
		all  []generation
		want int
	}{
		"one":             {[]generation{{soon, zero, 1, 1}}, 0},
		"within the time": {[]generation{{soon, zero, 1, 2}, second(soon, 60*time.Millisecond)}, 0},
		"later":           {[]generation{{late, zero, 1, 2}, second(late, 130*time.Millisecond)}, 1},
		"another pod":     {[]generation{{soon, zero, 1, 2}, second(late, 60*time.Millisecond)}, 1},
		"it died":         {[]generation{{dead, zero, 1, 2}, second(soon, 60*time.Millisecond)}, 0},
		"a third one":     {[]generation{{soon, zero, 1, 2}, {soon, zero, 2, 2}, second(soon, 0)}, 1},
	} {
		if got := judged(&record{asked: len(tc.all), generations: tc.all}); len(got) != tc.want {
			t.Errorf("%s: %q, want %d", name, got, tc.want)
		}
	}
}

// TestPooled: a connection is pooled if it had a request before, or was there before
// the request was sent.
func TestPooled(t *testing.T) {
	before := time.Now()
	p := fakepod.New(t, fakepod.Options{})
	fresh := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	var conns [2]int
	for k := range conns {
		resp, err := fresh.Get(p.URL)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		conns[k] = p.Last(t).Conn
	}
	opened := p.Conns()[conns[1]-1].Opened
	pod := &pod{Pod: p}
	for name, tc := range map[string]struct {
		onConn int
		sent   time.Time
		want   bool
	}{
		"the second request":        {2, before, true},
		"the first, sent before it": {1, before, false},
		"the first, sent after it":  {1, opened.Add(time.Millisecond), true},
	} {
		g := generation{pod: pod, conn: conns[1], onConn: tc.onConn}
		if got := g.pooled(tc.sent); got != tc.want {
			t.Errorf("%s: pooled %v, want %v", name, got, tc.want)
		}
	}
}

// TestAcceptedIsLogged: what a pod has seen, or a client has an answer to, must be in
// the log, also if the client left or a reload went on.
func TestAcceptedIsLogged(t *testing.T) {
	zero := time.Now()
	for name, tc := range map[string]struct {
		a     answer
		asked int
		want  int
	}{
		"left, and nobody saw it":   {answer{left: true}, 0, 0},
		"left, and a pod saw it":    {answer{left: true}, 1, 1},
		"left with an answer":       {answer{left: true, status: 200}, 0, 1},
		"cut off, and a pod saw it": {answer{}, 1, 1},
		"cut off by no reload":      {answer{}, 0, 1},
	} {
		tc.a.began, tc.a.ended = zero, zero
		if got := judged(&record{answer: &tc.a, asked: tc.asked}); len(got) < tc.want || tc.want == 0 && len(got) > 0 {
			t.Errorf("%s: %q, want %d", name, got, tc.want)
		}
	}
}
