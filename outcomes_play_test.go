package calinix_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

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
		fallback += "\n" + sc.section
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
	p.s = serve(p.t, "health {\ninterval 1h\ntimeout 10s\npassive {\nfailures 1\n}\n}\n"+inOrder+sc.keys+keys, testcaddy.Plain())
	p.cl = p.s.Client(p.t, testcaddy.H1)
	for _, q := range all {
		q.Wait(p.t, "its first probe", func(s fakepod.State) bool { return len(s.Probes) > 0 && s.Probes[0].End != fakepod.Running })
		p.s.waitUp(p.t, !slices.Contains(down, q), q.Name)
	}
	return all
}

// wantCount fails the test unless count is want.
func (s *site) wantCount(t testing.TB, want float64, name string, labels ...string) {
	t.Helper()
	if got := s.count(t, name, labels...); got != want {
		t.Errorf("%s%q is %v, want %v", name, labels, got, want)
	}
}
