package calinix_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// legLabels are the labels of calinix_requests_total.
func legLabels(mode, role, pod, code string) string {
	return fmt.Sprintf("code=%q,mode=%q,pod=%q,role=%q", code, mode, pod, role)
}

// cancelled sends a request whose client leaves when the pod has it.
func cancelled(t testing.TB, cl *testcaddy.Client, p *fakepod.Pod, path, body string, headers ...string) {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	n := p.Count()
	done := make(chan *testcaddy.Answer)
	req := cl.Request(ctx, t, http.MethodPost, path, body, headers...)
	go func() { done <- cl.Send(req) }()
	p.WaitRequests(t, n+1)
	leave()
	<-done
}

// TestMetricRequests: one a leg, by mode, role, pod and code.
func TestMetricRequests(t *testing.T) {
	ps := pods(t, "a")
	a := ps[0]
	a.SetPath("/418", fakepod.Reply{Status: 418})
	a.SetPath("/500", fakepod.Reply{Status: 500})
	a.SetPath("/silent", fakepod.Reply{Silent: true})
	a.SetPath("/cut", fakepod.Reply{Cut: fakepod.Reset, At: fakepod.AfterChunks(2)})
	a.SetPath("/long", fakepod.Reply{Chunks: 1000, Gap: fakepod.NoGap, Pause: 1 << 40, PauseAfter: 3})
	s := serve(t, "retries 0\nmax_body_bytes 2000\n"+single(ps))
	want := map[string]float64{}
	expect := func(mode, pod, code string) { want[legLabels(mode, "single", pod, code)]++ }
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		for path, code := range map[string]string{"/v1/chat/completions": "200", "/any": "200", "/418": "418", "/500": "500"} {
			if got := cl.Post(t, path, chat("hi")).Status; strconv.Itoa(got) != code {
				t.Errorf("%s: %d", path, got)
			}
			expect("single", "a", code)
		}
		if r := cl.Post(t, "/cut", chat("hi", `"stream":true`)); r.Err == nil {
			t.Error(r)
		}
		expect("single", "a", "cut")
		cancelled(t, cl, a, "/silent", chat("hi"))
		expect("single", "a", "499")
		stream := cl.Stream(t, "/long", chat("hi", `"stream":true`))
		stream.Take(t, 3)
		stream.Leave()
		expect("single", "a", "499")
		cl.Post(t, chatPath, chat("hi"), "x-calinix-mode", "auto")
		expect("single", "", "400")
		cl.Post(t, chatPath, chat(strings.Repeat("x", 3000)))
		expect("single", "", "413")
	})
	cl := s.Client(t, testcaddy.H1)
	drain(t, s.Caddy, "a", "drain")
	cl.Post(t, chatPath, chat("hi"))
	expect("single", "", "503")
	drain(t, s.Caddy, "a", "undrain")
	a.Refuse()
	cl.Post(t, chatPath, chat("hi"))
	expect("single", "a", "502")
	s.wantSeries(t, "calinix_requests_total", want)
}

// TestMetricRequestsOfBothLegs: in dispatch mode each leg counts for itself.
func TestMetricRequestsOfBothLegs(t *testing.T) {
	pre, dec := pods(t, "p", "q"), pods(t, "d")
	s := serve(t, "tie_break pod_id\n"+dispatch(pre, dec), testcaddy.Plain())
	cl := s.Client(t, testcaddy.H1)
	want := map[string]float64{}
	post := func(path string, status int, legs ...string) {
		t.Helper()
		if a := cl.Post(t, path, chat("hi", `"max_tokens":3`)); a.Status != status {
			t.Fatalf("want %d: %v", status, a)
		}
		for _, l := range legs {
			want[l]++
		}
	}
	leg := func(role, pod, code string) string { return legLabels("disaggregated", role, pod, code) }
	post(chatPath, 200, leg("prefill", "p", "200"), leg("decode", "d", "200"))
	post("/v1/embeddings", 200, leg("decode", "d", "200")) // has no prefill leg
	pre.Pod("p").Next(fakepod.Reply{Status: 422})
	post(chatPath, 422, leg("prefill", "p", "422")) // and its decode leg is never sent
	pre.Set(fakepod.Reply{Status: 503})
	post(chatPath, 503, leg("prefill", "p", "503"), leg("prefill", "q", "503"))
	pre.Set(fakepod.Reply{Body: []byte("no JSON")})
	post(chatPath, 502, leg("prefill", "p", "502"), leg("prefill", "q", "502"))
	pre.Set(fakepod.Reply{})
	dec[0].Next(fakepod.Reply{Status: 400})
	post(chatPath, 400, leg("prefill", "p", "200"), leg("decode", "d", "400"))
	pre.Set(fakepod.Reply{Silent: true})
	cancelled(t, cl, pre.Pod("p"), chatPath, chat("hi", `"max_tokens":3`))
	want[leg("prefill", "p", "499")]++
	pre.Set(fakepod.Reply{})
	drain(t, s.Caddy, "d", "drain")
	post(chatPath, 503, leg("decode", "", "503"))
	drain(t, s.Caddy, "p", "drain")
	drain(t, s.Caddy, "q", "drain")
	post(chatPath, 503, leg("prefill", "", "503"))
	s.wantSeries(t, "calinix_requests_total", want)
	s.wantSeries(t, "calinix_prefill_failures_total", map[string]float64{`reason="refused_5xx"`: 2, `reason="unusable"`: 2})
}

// TestMetricPrefillFailures: by what ended the leg; also those of requests that
// then go on without one.
func TestMetricPrefillFailures(t *testing.T) {
	pre, dec := pods(t, "p"), pods(t, "d")
	s := serve(t, dispatch(pre, dec, "on_prefill_failure decode_only", "prefill_timeout 500ms"), testcaddy.Plain())
	cl := s.Client(t, testcaddy.H1)
	for _, r := range []fakepod.Reply{
		{Status: 500},
		{Cut: fakepod.Reset, Delay: 150 * time.Millisecond}, // later than the end of an idle connection would be seen
		{Cut: fakepod.Reset, At: fakepod.HalfBody},
		{Body: []byte("[]")},
		{Silent: true},
	} {
		pre[0].Next(r)
		if a := cl.Post(t, chatPath, chat("hi", `"max_tokens":3`)); a.Status != 200 || a.Pod() != "d" || a.Header.Get("X-Calinix-Route-Policy") != "cacheAware;decode-only" {
			t.Fatalf("%+v: %v", r, a)
		}
	}
	drain(t, s.Caddy, "p", "drain")
	cl.Post(t, chatPath, chat("hi", `"max_tokens":3`))
	s.wantSeries(t, "calinix_prefill_failures_total", map[string]float64{
		`reason="refused_5xx"`: 1, `reason="lost_waiting"`: 1, `reason="cut"`: 1, `reason="unusable"`: 1, `reason="timed_out"`: 1, `reason="no_pod"`: 1,
	})
}

// TestMetricRetries: by what ended the try before.
func TestMetricRetries(t *testing.T) {
	ps := pods(t, "a", "b")
	s := serve(t, "tie_break pod_id\nretry_budget 1\nretry_status 503\n"+single(ps), testcaddy.Plain())
	cl := s.Client(t, testcaddy.H1)
	for range 2 {
		ps.Pod("a").Next(fakepod.Reply{Status: 503})
		if a := cl.Post(t, "/any", "x"); a.Pod() != "b" {
			t.Fatal(a)
		}
		s.waitNone(t)
	}
	ps.Pod("a").Refuse()
	if a := cl.Post(t, "/any", "x"); a.Pod() != "b" {
		t.Fatal(a)
	}
	s.wantSeries(t, "calinix_retries_total", map[string]float64{`reason="refused_5xx"`: 2, `reason="unreachable"`: 1})
	s.wantSeries(t, "calinix_requests_total", map[string]float64{
		legLabels("single", "single", "a", "503"): 2, legLabels("single", "single", "a", "502"): 1, legLabels("single", "single", "b", "200"): 3,
	})
}
