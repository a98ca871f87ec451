package calinix_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// pairPhase is a moment of a request with both legs sent at once at which its client
// leaves.
type pairPhase struct {
	name string
	// scripts are what the pods do; closing fail makes that leg fail that waits for it.
	scripts func(fail <-chan struct{}) (prefill, decode fakepod.Script)
	// place is where the gate holds the request: 0 before the pick, n before its
	// n-th leg is sent; ungated: nowhere.
	place int32
	// first says that a first try fails before; the legs that run are a second one.
	first bool
	// prefill and decode say which legs run at their pods when the client leaves.
	prefill, decode bool
	// events is how much of the answer the client has read; -1: it has none.
	events int
}

// ungated is the place of a gate that there is not.
const ungated = -2

// both are scripts that do the same in every try.
func both(prefill, decode fakepod.Script) func(<-chan struct{}) (p, d fakepod.Script) {
	return func(<-chan struct{}) (p, d fakepod.Script) { return prefill, decode }
}

// onlyFirst is a script whose first leg fails when it is told to, and whose others
// wait for ever.
func onlyFirst(fail <-chan struct{}) fakepod.Script {
	return fakepod.Func(func(q fakepod.Request) fakepod.Reply {
		if q.Header.Get("X-Leg") == firstLeg(q) {
			return fakepod.Reply{Status: http.StatusInternalServerError, Hold: fail}
		}
		return silent
	})
}

var (
	begins   = fakepod.Reply{Stream: fakepod.Always, FirstChunk: time.Hour} // headers, and nothing more
	answered = fakepod.Reply{}
	inBody   = fakepod.Reply{Status: 200, Body: []byte(`{"a":1}`), LateEnd: time.Hour, Framing: fakepod.Chunked}
)

var pairPhases = []pairPhase{
	{name: "before the pick", scripts: both(answered, answered), place: 0, events: -1},
	{name: "before the prefill leg is sent", scripts: both(answered, answered), place: 1, events: -1},
	{name: "before the decode leg is sent", scripts: both(silent, answered), place: 2, prefill: true, events: -1},
	{name: "while both wait", scripts: both(silent, silent), place: ungated, prefill: true, decode: true, events: -1},
	{name: "in the prefill pod's answer", scripts: both(inBody, silent), place: ungated, prefill: true, decode: true, events: -1},
	{name: "after the prefill pod's answer", scripts: both(answered, silent), place: ungated, decode: true, events: -1},
	{name: "when the decode pod has sent headers", scripts: both(silent, begins), place: ungated, prefill: true, decode: true, events: -1},
	{name: "in a stream, before the prefill pod's answer", scripts: both(silent, paused), place: ungated, prefill: true, decode: true, events: 2},
	{name: "in a busy stream", scripts: both(answered, endless), place: ungated, decode: true, events: 2},
	{name: "in a silent stream", scripts: both(answered, paused), place: ungated, decode: true, events: 2},
	{
		name: "before both are sent again", place: 3, first: true, events: -1,
		scripts: func(fail <-chan struct{}) (p, d fakepod.Script) { return onlyFirst(fail), silent },
	},
	{
		name: "when the prefill leg has failed once", place: ungated, first: true, prefill: true, decode: true, events: -1,
		scripts: func(fail <-chan struct{}) (p, d fakepod.Script) { return onlyFirst(fail), silent },
	},
	{
		name: "when the decode leg has failed once", place: ungated, first: true, prefill: true, decode: true, events: -1,
		scripts: func(fail <-chan struct{}) (p, d fakepod.Script) { return silent, onlyFirst(fail) },
	},
}

// TestCancelPair is TestCancel for connectors whose legs are sent at once: every pod
// that has a leg sees that the client has left, and nothing is left of the request.
func TestCancelPair(t *testing.T) {
	all := pods(t, "p1", "p2", "d1", "d2")
	s := &cancelSite{all: all, roles: [3]fakepod.Pods{ofPrefill: all[:2], ofDecode: all[2:]}}
	s.site = serveBehind(t, "gate", "retries 3\nretry_budget 1\nretry_status 500\nheader_up X-Leg {gate.leg}\n"+
		dispatch(s.roles[ofPrefill], s.roles[ofDecode], "connector sglang"))
	for _, ph := range pairPhases {
		for how, leaving := range leavings {
			t.Run(strings.ReplaceAll(ph.name+", "+how, " ", "_"), func(t *testing.T) {
				s.Each(t, func(t *testing.T, cl *testcaddy.Client) { s.leavePairIn(t, &ph, cl, leaving(cl)) })
			})
		}
	}
}

// leavePairIn is one request whose client leaves in the phase.
func (s *cancelSite) leavePairIn(t *testing.T, ph *pairPhase, cl *testcaddy.Client, leave func(context.CancelFunc)) {
	t.Helper()
	s.all.Forget()
	prefill, decode := s.roles[ofPrefill], s.roles[ofDecode]
	fail := make(chan struct{})
	p, d := ph.scripts(fail)
	prefill.Set(p)
	decode.Set(d)
	var g *gate
	if ph.place != ungated {
		g = newGate(t, ph.place)
	}
	retries := s.count(t, "calinix_retries_total")
	ctx, cancel := testContext(t)
	id := fmt.Sprintf("cancel-pair-%d", balancers.Add(1))
	req := cl.Request(ctx, t, http.MethodPost, chatPath, chat(words(id, 40), `"stream":true`), "x-calinix-request-id", id)
	read, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		readEvents(cl, req, ph.events, read)
	}()

	want := [2]int{} // legs at pods, when the client leaves
	if ph.first {
		busy(t, prefill, 1)
		busy(t, decode, 1)
		close(fail)
		want = [2]int{1, 1}
	}
	if g != nil {
		g.wait(t)
	}
	var running []*fakepod.Pod
	for i, leg := range []struct {
		runs bool
		at   fakepod.Pods
	}{{ph.prefill, prefill}, {ph.decode, decode}} {
		if leg.runs {
			want[i]++
			running = append(running, busy(t, leg.at, want[i]))
		}
	}
	if ph.place == ungated && !ph.prefill {
		want[0]++
		eventually(t, "the prefill pod's answer", func() bool {
			legs := prefill.Received()
			return len(legs) == 1 && legs[0].End == fakepod.Whole
		})
	}
	if ph.events >= 0 {
		await(t, read, "the answer's beginning")
	}
	left := time.Now()
	leave(cancel)
	for _, p := range running {
		if took := p.WaitClosed(t, p.Count()).ClosedAt.Sub(left); took > noticeWithin {
			t.Errorf("pod %s has noticed after %v", p.Name, took)
		}
	}
	if g != nil {
		g.noticed(t)
	}
	e := s.logged(t, id)
	if !e.Has("calinix_outcome", "client_gone") || ph.events < 0 && !e.Has("status", "499") {
		t.Errorf("logged as %s", e.Line)
	}
	cancel()
	await(t, gone, "the client's end")
	s.waitIdle(t, s.all)
	waitParted(t)
	if got := [2]int{prefill.Total(), decode.Total()}; got != want {
		t.Errorf("prefill and decode pods got %v requests, want %v", got, want)
	}
	if again := s.count(t, "calinix_retries_total") - retries; (again == 1) != ph.first || again > 1 {
		t.Errorf("%v retries", again)
	}
}

// waitParted waits until no goroutine works for any request. Those of the servers,
// of kept connections and of the balancers' own work stay.
func waitParted(t testing.TB) {
	t.Helper()
	var stacks bytes.Buffer
	eventually(t, "the goroutines of all requests to end", func() bool {
		stacks.Reset()
		if err := pprof.Lookup("goroutine").WriteTo(&stacks, 1); err != nil {
			t.Fatal(err)
		}
		for _, ours := range []string{"(*exchange)", "(*pair)", "drain", "(*legBody)"} {
			if bytes.Contains(stacks.Bytes(), []byte("/caddy-calinix."+ours)) {
				return false
			}
		}
		return true
	})
}
