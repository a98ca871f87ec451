package calinix_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// scene brings about an outcome of a leg.
type scene struct {
	outcome, name string
	legs          []string
	only          string   // the one variant in which it can be played; "": all
	given         int      // status that the pod sends, or with which Calinix refuses
	keys          string   // further ones of the directive
	connector     string   // of the section dispatch, "" for the default
	section       string   // a further key of it
	members       []string // further ones of the request
	headers       []string
	nobody        bool // no pod is reached
	begun         bool // the client has seen the answer's headers

	pod  fakepod.Options                                    // of the pods of the leg
	down func(p *played) fakepod.Pods                       // those that do not pass their first probe
	act  func(p *played)                                    // before the request, when the site is up
	send func(p *played, r *http.Request) *testcaddy.Answer // nil: send it
	of   func(p *played) *fakepod.Pod                       // the pod of the leg, if it is not the one that is tried first
}

// bulk is a member that makes a body larger than what the kernel takes from a
// sender whose peer does not read, and the prompt no longer.
var bulk = `"pad":"` + strings.Repeat("x", 8<<20) + `"`

var anyLeg = []string{"single", "prefill", "decode"}

var scenes = []scene{
	{outcome: "answered", legs: anyLeg, given: 200},
	{outcome: "refused_4xx", legs: anyLeg, given: 429, act: reply(fakepod.Reply{Status: 429})},
	{outcome: "refused_5xx", name: "500", legs: anyLeg, given: 500, act: reply(fakepod.Reply{Status: 500})},
	{outcome: "refused_5xx", name: "503", legs: anyLeg, given: 503, act: reply(fakepod.Reply{Status: 503})},
	{outcome: "unreachable", name: "refused", legs: anyLeg, act: func(p *played) { p.first.Refuse() }},
	{
		outcome: "unreachable", name: "no TLS handshake", legs: anyLeg,
		pod: fakepod.Options{Cert: podCert}, keys: "transport http {\ntls_insecure_skip_verify\ndial_timeout 300ms\n}\n", act: plainImpostor,
	},
	{
		outcome: "lost_sending", legs: anyLeg, members: []string{bulk},
		act: reply(fakepod.Unread{Bytes: 10_000, Reply: fakepod.Reply{Cut: fakepod.Reset}}),
	},
	{outcome: "lost_waiting", name: "reset", legs: anyLeg, act: reply(fakepod.Reply{Cut: fakepod.Reset})},
	{outcome: "lost_waiting", name: "closed", legs: anyLeg, act: reply(fakepod.Reply{Cut: fakepod.Close})},
	{
		outcome: "timed_out", legs: anyLeg,
		keys: "transport http {\nresponse_header_timeout 250ms\n}\n", act: reply(fakepod.Reply{Silent: true}),
	},
	{ // which is for both tries: there is nothing left for another one
		outcome: "timed_out", name: "prefillTimeoutMs", legs: []string{"prefill"}, only: "alone",
		section: "prefill_timeout 250ms", act: reply(fakepod.Reply{Silent: true}),
	},
	{
		outcome: "timed_out", name: "prefillTimeoutMs", legs: []string{"prefill"}, only: "decodeOnly",
		section: "prefill_timeout 250ms", act: reply(fakepod.Reply{Silent: true}),
	},
	{outcome: "client_gone", name: "before the answer", legs: anyLeg, act: reply(fakepod.Reply{Silent: true}), send: leaveSilence},
	{
		outcome: "client_gone", name: "in the answer", legs: []string{"single", "decode"}, begun: true,
		act: reply(fakepod.Reply{Stream: fakepod.Always, Chunks: 1, LateEnd: testcaddy.Patience}), send: leaveStream,
	},
	{outcome: "cut", legs: anyLeg, given: 200, act: reply(fakepod.Reply{Cut: fakepod.Reset, At: fakepod.HalfBody})},
	{outcome: "unusable", name: "not an object", legs: []string{"prefill"}, given: 200, act: reply(fakepod.Reply{Body: []byte(`[]`)})},
	{
		outcome: "unusable", name: "a redirect", legs: []string{"prefill"}, given: 307,
		act: reply(fakepod.Reply{Status: 307, Header: http.Header{"Location": {"/"}}}),
	},
	{
		outcome: "unsent", name: "no decode pod", legs: []string{"prefill"}, only: "alone",
		down: func(p *played) fakepod.Pods { return p.decode },
	},
	{
		outcome: "unsent", name: "the prefill leg has failed", legs: []string{"decode"}, only: "alone",
		act: func(p *played) { p.prefill.Set(fakepod.Reply{Status: 400}) },
	},
	{
		outcome: "unsent", name: "no budget for a retry", legs: []string{"single", "decode"}, only: "spare",
		keys: "retry_budget 0\nretry_status 429\n", act: spendBudget, of: func(p *played) *fakepod.Pod { return p.spare },
	},
	{
		outcome: "dropped", name: "the decode leg has failed", legs: []string{"prefill"}, only: "alone", connector: "sglang",
		act: func(p *played) {
			p.prefill.Set(fakepod.Reply{Silent: true})
			p.decode.Set(fakepod.Reply{Status: 400, Delay: 100 * time.Millisecond})
		},
	},
	{
		outcome: "dropped", name: "the prefill leg has failed", legs: []string{"decode"}, only: "alone", connector: "sglang",
		act: func(p *played) {
			p.prefill.Set(fakepod.Reply{Status: 400, Delay: 100 * time.Millisecond})
			p.decode.Set(fakepod.Reply{Silent: true})
		},
	},
	{outcome: "no_pod", legs: anyLeg, only: "alone", nobody: true, down: func(p *played) fakepod.Pods { return fakepod.Pods{p.first} }},
	{outcome: "no_pod", legs: []string{"prefill"}, only: "decodeOnly", nobody: true, down: func(p *played) fakepod.Pods { return fakepod.Pods{p.first} }},
	{outcome: "rejected", name: "body too large", legs: []string{"single", "prefill"}, only: "alone", given: 413, nobody: true, keys: "max_body_bytes 1MB\n", members: []string{bulk}},
	{outcome: "rejected", name: "no memory", legs: []string{"single", "prefill"}, only: "alone", given: 503, nobody: true, keys: "body_memory_bytes 1MB\n", members: []string{bulk}},
	{outcome: "rejected", name: "unknown encoding", legs: []string{"decode"}, only: "alone", given: 415, nobody: true, headers: []string{"Content-Encoding", "br"}},
	{outcome: "rejected", name: "bad mode", legs: []string{"single", "prefill"}, only: "alone", given: 400, nobody: true, headers: []string{"x-calinix-mode", "both"}},
}

// variants are the sites on which the scene is played: with one pod for the leg;
// with another one to try; with that and the status in retryStatus; with one pod
// and onPrefillFailure decodeOnly.
func (sc *scene) variants(r failureRow, leg string) []string {
	if sc.only != "" {
		return []string{sc.only}
	}
	all := []string{"alone", "spare"}
	if r.of("retry", leg) == "if listed" {
		all = append(all, "listed")
	}
	if leg == "prefill" {
		all = append(all, "decodeOnly")
	}
	return all
}

// reply makes a script that of the pod which is tried first.
func reply(script fakepod.Script) func(*played) {
	return func(p *played) { p.first.Set(script) }
}

// podCert is the certificate of pods that speak TLS.
var podCert = func() *fakepod.Cert {
	c, err := fakepod.MakeCert()
	if err != nil {
		panic(err)
	}
	return c
}()

// plainImpostor puts a server that speaks no TLS, and waits for what never comes,
// in the place of the pod that is tried first.
func plainImpostor(p *played) {
	u, err := url.Parse(p.first.URL)
	if err != nil {
		p.t.Fatal(err)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		p.t.Fatal(err)
	}
	p.first.Crash()
	fakepod.New(p.t, fakepod.Options{Name: "impostor", Port: port})
}

// leaveSilence sends the request and leaves when the first pod has it.
func leaveSilence(p *played, r *http.Request) *testcaddy.Answer {
	ctx, leave := context.WithCancel(r.Context())
	defer leave()
	got := make(chan *testcaddy.Answer)
	go func() { got <- p.cl.Send(r.WithContext(ctx)) }()
	p.first.WaitRequests(p.t, 1)
	leave()
	return <-got
}

// leaveStream sends the request and leaves when the answer has begun.
func leaveStream(p *played, r *http.Request) *testcaddy.Answer {
	ctx, leave := context.WithCancel(r.Context())
	defer leave()
	resp, err := p.cl.HTTP.Do(r.WithContext(ctx))
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	testcaddy.NewStream(resp.Body).Take(p.t, 1)
	leave()
	return &testcaddy.Answer{Status: resp.StatusCode, Header: resp.Header}
}

// spendBudget uses up the retries that always may be, so that the next one finds
// a pod and must give it back. A listed 4xx marks no pod.
func spendBudget(p *played) {
	p.first.Set(fakepod.Reply{Status: 429})
	for n := range 3 {
		if a := p.cl.Post(p.t, chatPath, chat(words(fmt.Sprint("spend", n), 50))); a.Status != 200 {
			p.t.Fatal(a)
		}
	}
	p.s.waitIdle(p.t)
}
