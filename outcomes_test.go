package calinix_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// TestOutcomes reads the table of docs/failures.md and brings about every row of
// it over real sockets, for single, prefill and decode legs: whether another pod
// is tried, whether onPrefillFailure applies, whether the pod is marked, what the
// index keeps, what the metrics and the log call it and what the client gets is
// what the row says.
func TestOutcomes(t *testing.T) {
	rows := failureRows(t)
	for _, r := range rows {
		for _, leg := range []string{"single", "prefill", "decode"} {
			var mine []scene
			for _, sc := range scenes {
				if sc.outcome == r.outcome() && slices.Contains(sc.legs, leg) {
					mine = append(mine, sc)
				}
			}
			if why, never := impossible[r.outcome()+" "+leg]; never != (len(mine) == 0) {
				t.Errorf("%s, %s: %d scenes, impossible because %q", r.outcome(), leg, len(mine), why)
			}
			for _, sc := range mine {
				for _, v := range sc.variants(r, leg) {
					name := strings.TrimSuffix(r.outcome()+"/"+sc.name, "/") + "/" + leg + "/" + v
					t.Run(name, func(t *testing.T) { sc.play(t, r, leg, v) })
				}
			}
		}
	}
	for _, sc := range scenes {
		if !slices.ContainsFunc(rows, func(r failureRow) bool { return r.outcome() == sc.outcome }) {
			t.Errorf("the page has no outcome %q", sc.outcome)
		}
	}
}

// failureRow is a row of the page, by its column's head.
type failureRow map[string]string

func (r failureRow) outcome() string { return strings.Trim(r["outcome"], "`") }

// of is the cell of a column that is told apart by kinds of legs.
func (r failureRow) of(column, leg string) string {
	if leg != "prefill" {
		leg = "single, decode"
	}
	return r[column+" ("+leg+")"]
}

// failureRows reads the page's table of what follows.
func failureRows(t *testing.T) (rows []failureRow) {
	t.Helper()
	page, err := os.ReadFile("docs/failures.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "## What follows\n")
	var heads []string
	for line := range strings.Lines(rest) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			if heads != nil {
				break
			}
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case heads == nil:
			heads = cells
		case strings.HasPrefix(cells[0], "---"):
		default:
			r := failureRow{}
			for i, head := range heads {
				r[head] = cells[i]
			}
			rows = append(rows, r)
		}
	}
	if len(rows) < 13 {
		t.Fatalf("the table has %d rows", len(rows))
	}
	return rows
}

// impossible are the legs that cannot end so, and why.
var impossible = map[string]string{
	"unusable single": "the answer is the client's, whatever it is",
	"unusable decode": "the answer is the client's, whatever it is",
	"rejected decode": "a request is refused before its first leg",
	"dropped single":  "there is no other leg",
}

// scene brings about an outcome of a leg.
type scene struct {
	outcome, name string
	legs          []string
	only          string   // the one variant in which it can be played; "": all
	given         int      // status that the pod sends, or with which Calinix refuses
	keys          string   // further ones of the directive
	connector     string   // of the section dispatch, "" for the default
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
	{outcome: "rejected", legs: []string{"single", "prefill"}, only: "alone", given: 400, nobody: true, headers: []string{"x-calinix-mode", "both"}},
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

// played is a scene that is being played.
type played struct {
	t               testing.TB
	s               *site
	cl              *testcaddy.Client
	first, spare    *fakepod.Pod // of the leg, in the order in which they are tried; spare may be nil
	prefill, decode fakepod.Pods // in dispatch mode
	prompt          string
}

// play plays the scene and compares what is seen with the row.
func (sc *scene) play(t *testing.T, r failureRow, leg, variant string) {
	p := &played{t: t, prompt: words(sc.outcome, 100)}
	all := sc.set(p, leg, variant)
	pod := p.first
	if sc.of != nil {
		pod = sc.of(p)
	}
	if sc.act != nil {
		sc.act(p)
	}
	all.Forget()
	before, legsBefore := p.s.pod(t, pod.Name).Blocks, p.s.count(t, "calinix_requests_total", "role", leg, "pod", pod.Name)
	send := func(_ *played, r *http.Request) *testcaddy.Answer { return p.cl.Send(r) }
	if sc.send != nil {
		send = sc.send
	}
	mark := p.s.Log.Mark()
	ctx, cancel := context.WithTimeout(t.Context(), 3*testcaddy.Patience)
	defer cancel()
	a := send(p, p.cl.Request(ctx, t, http.MethodPost, chatPath, chat(p.prompt, sc.members...), sc.headers...))
	p.s.waitIdle(t)
	logged := p.s.Log.Wait(t, mark, "the request", func(e testcaddy.Entry) bool { _, ok := e.Fields["calinix_outcome"]; return ok })

	// retry
	retry := r.of("retry", leg)
	again := p.spare != nil && (retry == "elsewhere" || retry == "if listed" && variant == "listed")
	if p.spare != nil && p.spare != pod && p.spare.Count() != map[bool]int{true: 1}[again] {
		t.Errorf("retry %q: the spare pod received %d requests: %v", retry, p.spare.Count(), a)
	}
	retries := 0.0
	if again {
		retries = 1
	}
	p.s.wantCount(t, retries, "calinix_retries_total", "reason", sc.outcome)
	if again && (a.Status != 200 || logged.Fields["calinix_outcome"] != "answered") {
		t.Errorf("retry %q: in the end %v, logged as %v", retry, a, logged.Fields["calinix_outcome"])
	}

	// onPrefillFailure
	applies := leg == "prefill" && r["`onPrefillFailure` applies"] == "yes"
	failures := 0.0
	if applies && (!sc.nobody || variant == "decodeOnly") {
		failures = 1
	}
	p.s.wantCount(t, failures, "calinix_prefill_failures_total", "reason", sc.outcome)
	without := applies && variant == "decodeOnly"
	if marked := strings.HasSuffix(a.Header.Get("X-Calinix-Route-Policy"), ";decode-only"); marked != without || without && a.Status != 200 {
		t.Errorf("onPrefillFailure applies %v, variant %s: %v", applies, variant, a)
	}

	// metric
	code := sc.code(r, leg)
	at := pod.Name
	if sc.nobody {
		at = ""
	}
	legs := p.s.count(t, "calinix_requests_total", "role", leg, "pod", at) - legsBefore
	switch {
	case code == "not counted" && legs != 0:
		t.Errorf("metric code: not counted: %v legs at pod %q", legs, at)
	case code != "not counted" && !without && (legs != 1 || p.s.count(t, "calinix_requests_total", "role", leg, "pod", at, "code", code) != 1):
		t.Errorf("metric code %s: %v legs at pod %q", code, legs, at)
	}

	// health.passive and the index
	if !sc.nobody {
		state := p.s.pod(t, pod.Name)
		if counts := r["counts for `health.passive`"] == "yes"; state.Up == counts {
			t.Errorf("counts for health.passive %v, the pod is up %v", counts, state.Up)
		}
		if kept := r["index registration"] == "kept"; kept != (state.Blocks > before) {
			t.Errorf("index registration %q: the pod had %d blocks, and has %d", r["index registration"], before, state.Blocks)
		}
	}

	// client and log, if this leg's end is the end of the request
	if !again && !without {
		sc.wantEnd(t, r.of("client's status", leg), a, logged)
	}
}

// code is the metric's code that the row asks for.
func (sc *scene) code(r failureRow, leg string) string {
	cell := r["metric `code`"]
	switch {
	case cell == "status" && sc.given > 0:
		return strconv.Itoa(sc.given)
	case cell == "status", cell == "client's status":
		return r.of("client's status", leg)
	}
	return strings.Trim(cell, "`")
}

// wantEnd compares the end of the request with the cell of the client's status.
func (sc *scene) wantEnd(t *testing.T, cell string, a *testcaddy.Answer, logged testcaddy.Entry) {
	t.Helper()
	status := sc.given
	switch cell {
	case "the pod's", "Calinix's own":
	case "none":
		if sc.outcome == "cut" && (a.Status != 200 || a.Err == nil) {
			t.Errorf("client's status %q: the answer is to be broken: %v", cell, a)
		}
		if sc.outcome != "cut" {
			return // the leg decides nothing
		}
	case "503 after 503, else 502":
		if status != 503 {
			status = 502
		}
	default:
		var err error
		if status, err = strconv.Atoi(cell); err != nil {
			t.Fatalf("client's status %q is not known here", cell)
		}
	}
	if got := logged.Fields["calinix_outcome"]; got != sc.outcome {
		t.Errorf("logged as %v, want %s", got, sc.outcome)
	}
	if sc.begun {
		status = 200 // it is out already
	}
	if got := logged.Fields["status"]; got != float64(status) {
		t.Errorf("client's status %q: logged is %v, want %d", cell, got, status)
	}
	if sc.outcome != "client_gone" && a.Status != status {
		t.Errorf("client's status %q: want %d: %v", cell, status, a)
	}
}

// set starts the pods and the site of the scene and returns the pods.
func (sc *scene) set(p *played, leg, variant string) (all fakepod.Pods) {
	names := []string{"a"}
	if variant == "spare" || variant == "listed" {
		names = append(names, "b")
	}
	mine := fakepod.NewPods(p.t, sc.pod, names...)
	if p.first = mine[0]; len(mine) > 1 {
		p.spare = mine[1]
	}
	var keys string
	switch leg {
	case "single":
		all, keys = mine, single(mine)
	case "prefill":
		p.prefill, p.decode = mine, pods(p.t, "d1")
	case "decode":
		p.prefill, p.decode = pods(p.t, "p1"), mine
	}
	if leg != "single" {
		all = slices.Concat(p.prefill, p.decode)
		fallback := ""
		if variant == "decodeOnly" {
			fallback = "on_prefill_failure decode_only"
		}
		if sc.connector != "" {
			fallback += "\nconnector " + sc.connector
		}
		keys = dispatch(p.prefill, p.decode, fallback)
	}
	if variant == "listed" {
		keys += fmt.Sprintf("retry_status %d\n", sc.given)
	}
	for _, q := range all {
		q.SetHealth(fakepod.Reply{Close: true}) // no leg finds a connection to reuse
	}
	var down fakepod.Pods
	if sc.down != nil {
		down = sc.down(p)
	}
	for _, q := range down {
		q.SetHealth(fakepod.Reply{Status: 503})
	}
	// one failure marks a pod, and no probe takes that back within the test
	p.s = serve(p.t, "health {\ninterval 1h\npassive {\nfailures 1\n}\n}\n"+inOrder+sc.keys+keys, testcaddy.Plain())
	p.cl = p.s.Client(p.t, testcaddy.H1)
	for _, q := range all {
		q.Wait(p.t, "its first probe", func(s fakepod.State) bool { return len(s.Probes) > 0 && s.Probes[0].End != fakepod.Running })
		p.s.waitUp(p.t, !slices.Contains(down, q), q.Name)
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

// wantCount fails the test unless count is want.
func (s *site) wantCount(t testing.TB, want float64, name string, labels ...string) {
	t.Helper()
	if got := s.count(t, name, labels...); got != want {
		t.Errorf("%s%q is %v, want %v", name, labels, got, want)
	}
}
