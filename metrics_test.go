package calinix_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// series are the samples of a metric of the site's balancer, by their other
// labels: `code="200",mode="single",…`.
func (s *site) series(t testing.TB, name string) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	prefix := fmt.Sprintf("%s{balancer=%q", name, s.balancer)
	for key, v := range s.Metrics(t) {
		if rest, ok := strings.CutPrefix(key, prefix); ok {
			out[strings.TrimPrefix(strings.TrimSuffix(rest, "}"), ",")] = v
		}
	}
	return out
}

// wantSeries waits until a metric has exactly these samples.
func (s *site) wantSeries(t testing.TB, name string, want map[string]float64) {
	t.Helper()
	sum := 0.0
	for _, v := range want {
		sum += v
	}
	s.waitCount(t, sum, name)
	if got := s.series(t, name); !maps.Equal(got, want) {
		for _, key := range slices.Sorted(maps.Keys(got)) {
			if got[key] != want[key] {
				t.Errorf("%s{%s} is %v, want %v", name, key, got[key], want[key])
			}
		}
		for key, v := range want {
			if _, ok := got[key]; !ok {
				t.Errorf("%s{%s} is missing, want %v", name, key, v)
			}
		}
	}
}

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

// TestMetricDecisions: one observation a decision, in buckets from 1 µs to 1 ms.
func TestMetricDecisions(t *testing.T) {
	ps, pre, dec := pods(t, "a"), pods(t, "p"), pods(t, "d")
	s := serve(t, single(ps)+dispatch(pre, dec, "connector plain"), testcaddy.Plain())
	cl := s.Client(t, testcaddy.H1)
	for i, mode := range []string{"single", "dispatch", "single", "dispatch", "single"} {
		cl.Post(t, chatPath, chat(fmt.Sprint(i), `"max_tokens":3`), "x-calinix-mode", mode)
	}
	cl.Get(t, "/v1/models")                                    // a decision too, without a prompt
	cl.Post(t, chatPath, chat("hi"), "x-calinix-mode", "auto") // none
	s.waitCount(t, 6, "calinix_decision_duration_seconds_count")
	m := s.Metrics(t)
	if sum := m.Sum("calinix_decision_duration_seconds_sum", "balancer", s.balancer); sum <= 0 || sum > 60 {
		t.Errorf("the six took %v s", sum)
	}
	var bounds []float64
	for key := range s.series(t, "calinix_decision_duration_seconds_bucket") {
		bound, err := strconv.ParseFloat(strings.Trim(strings.TrimPrefix(key, "le="), `"`), 64)
		if err != nil {
			t.Fatalf("bucket %q: %v", key, err)
		}
		bounds = append(bounds, bound)
	}
	slices.Sort(bounds)
	if n := len(bounds); n < 5 || bounds[0] != 1e-6 || bounds[n-2] != 1e-3 {
		t.Errorf("buckets %v, want 1e-6 to 1e-3 and +Inf", bounds)
	}
	before := 0.0
	for _, b := range bounds {
		le := strconv.FormatFloat(b, 'g', -1, 64)
		v := m.Get("calinix_decision_duration_seconds_bucket", "balancer", s.balancer, "le", le)
		if v < before || v > 6 {
			t.Errorf("bucket %s: %v after %v", le, v, before)
		}
		before = v
	}
	if before != 6 {
		t.Errorf("%v observations at most +Inf", before)
	}
}

// TestMetricPrefixBlocks: a prompt's blocks are hits as far as the pod holds
// them, the rest misses; in dispatch mode the prefill pod's.
func TestMetricPrefixBlocks(t *testing.T) {
	ps, pre, dec := pods(t, "a"), pods(t, "p"), pods(t, "d")
	s := serve(t, "block_size 4\n"+single(ps)+dispatch(pre, dec, "connector plain"), testcaddy.Plain())
	cl := s.Client(t, testcaddy.H1)
	hits, misses := 0, 0
	for _, mode := range []string{"single", "dispatch"} {
		for _, prompt := range []string{words("w", 30), words("w", 30), words("w", 30) + words("x", 21), words("y", 9)} {
			body := chat(prompt, `"max_tokens":3`)
			blocks := len(s.explain(t, "", body, "x-calinix-mode", mode).Chain)
			a := cl.Post(t, chatPath, body, "x-calinix-mode", mode)
			depth, err := strconv.Atoi(a.Header.Get("X-Calinix-Cache-Prefix-Depth"))
			if err != nil || depth > blocks {
				t.Fatalf("depth of %d blocks: %v", blocks, a)
			}
			hits, misses = hits+depth, misses+blocks-depth
		}
	}
	if hits < 4*7 || misses < 2*(8+5+2) {
		t.Errorf("%d hits, %d misses: the test's prompts are not what they should be", hits, misses)
	}
	cl.Get(t, "/v1/models") // has no blocks
	s.wantSeries(t, "calinix_prefix_blocks_total", map[string]float64{`result="hit"`: float64(hits), `result="miss"`: float64(misses)})
}

// TestMetricGauges: one series for each role of each pod, which live and die
// with the pod.
func TestMetricGauges(t *testing.T) {
	ps := pods(t, "a", "b", "p", "d")
	keys := func(more string) string {
		return single(ps[1:2]) + fmt.Sprintf("dispatch {\nconnector plain\nprefill {\npod p %s {\ncapabilities decode\n}\n}\ndecode {\npod d %s {\ndraining\n}\n}\n}\n%s", ps[2].URL, ps[3].URL, more) + quickHealth
	}
	s := serve(t, keys(""), testcaddy.Plain())
	label := func(pod, role string) string { return fmt.Sprintf("pod=%q,role=%q", pod, role) }
	ps.Pod("b").Healthy(false)
	s.waitUp(t, false, "b")
	up := map[string]float64{label("b", "single"): 0, label("p", "prefill"): 1, label("p", "decode"): 1, label("d", "decode"): 1}
	s.wantSeries(t, "calinix_pod_up", up)
	ps.Pod("b").Healthy(true)
	s.waitUp(t, true, "b")
	up[label("b", "single")] = 1
	s.wantSeries(t, "calinix_pod_up", up)

	// p serves both legs, d drains: each leg counts under its role
	cl := s.Client(t, testcaddy.H1)
	inflight := map[string]float64{label("b", "single"): 0, label("p", "prefill"): 0, label("p", "decode"): 0, label("d", "decode"): 0}
	s.wantSeries(t, "calinix_pod_inflight", inflight)
	p := ps.Pod("p")
	first, second := make(chan struct{}), make(chan struct{})
	p.Next(fakepod.Reply{Hold: first}, fakepod.Reply{Hold: second})
	done := make(chan *testcaddy.Answer)
	go func() { done <- cl.Post(t, chatPath, chat("hi", `"max_tokens":3`), "x-calinix-mode", "dispatch") }()
	p.WaitRequests(t, 1)
	inflight[label("p", "prefill")] = 1
	s.wantSeries(t, "calinix_pod_inflight", inflight)
	close(first)
	p.WaitRequests(t, 2)
	inflight[label("p", "prefill")], inflight[label("p", "decode")] = 0, 1
	s.wantSeries(t, "calinix_pod_inflight", inflight)

	// a reload: the leg goes on; b goes, a comes
	s.reload(t, strings.Replace(keys("retries 2\n"), "pod b "+ps[1].URL, "pod a "+ps[0].URL, 1))
	delete(inflight, label("b", "single"))
	inflight[label("a", "single")] = 0
	s.wantSeries(t, "calinix_pod_inflight", inflight)
	close(second)
	if a := <-done; a.Status != 200 || a.Pod() != "p" {
		t.Errorf("the request over the reload: %v", a)
	}
	inflight[label("p", "decode")] = 0
	s.wantSeries(t, "calinix_pod_inflight", inflight)
	if got := s.series(t, "calinix_pod_up"); len(got) != 4 || got[label("a", "single")] != 1 {
		t.Errorf("%v", got)
	}
}

// TestMetricsOverReloads: counters go on, whatever is reloaded, and the scrape
// itself never fails.
func TestMetricsOverReloads(t *testing.T) {
	ps := pods(t, "a", "b")
	s := serve(t, single(ps), testcaddy.Plain())
	for i := range 5 {
		s.Client(t, testcaddy.H1).Post(t, chatPath, chat(words("w", 100)))
		s.waitCount(t, float64(i+1), "calinix_requests_total")
		before := s.Metrics(t)
		keys := single(ps, fmt.Sprintf("max_conns %d", i+5))
		if i == 3 {
			keys = single(ps[:1])
		}
		s.reload(t, keys)
		after := s.Metrics(t)
		for key, v := range before {
			name, _, _ := strings.Cut(key, "{")
			counter := strings.HasSuffix(name, "_total") || strings.HasPrefix(name, "calinix_decision")
			if strings.HasPrefix(name, "calinix_ring_") || strings.HasPrefix(name, "calinix_endpoint_") {
				if counter && after[key] < v {
					t.Errorf("reload %d: %s was %v, is %v", i, key, v, after[key])
				}
				continue // pods come and go
			}
			if strings.HasPrefix(name, "calinix_") && counter && after[key] != v {
				t.Errorf("reload %d: %s was %v, is %v", i, key, v, after[key])
			}
		}
	}
	// the same name in a configuration that comes after none
	s.ReloadSite(t, "respond ok")
	if got := s.series(t, "calinix_pod_up"); len(got) != 0 {
		t.Errorf("gauges of a balancer that is gone: %v", got)
	}
	s.reload(t, single(ps))
	s.Client(t, testcaddy.H1).Post(t, chatPath, chat("hi"))
	s.waitCount(t, 6, "calinix_requests_total")
}

// TestMetricsOfTwoBalancers: each has its label; one without a name is default.
func TestMetricsOfTwoBalancers(t *testing.T) {
	ps := pods(t, "x", "y")
	one, two := testcaddy.Port(t), testcaddy.Port(t)
	s := &site{balancer: "metrics-other"}
	s.Caddy = testcaddy.Load(t, fmt.Sprintf("http://:%d {\ncalinix {\n%s}\n}\nhttp://:%d {\ncalinix {\nname %s\n%s}\n}\n", one, single(ps[:1]), two, s.balancer, single(ps[1:])))
	was := s.Metrics(t) // default is other tests' too
	for i, port := range []int{one, two, two} {
		a := testcaddy.NewClient(t, testcaddy.H1, fmt.Sprintf("http://localhost:%d", port)).Post(t, chatPath, chat("hello"))
		if a.Status != 200 {
			t.Fatalf("request %d: %v", i, a)
		}
	}
	for name, more := range map[string]map[string]float64{
		"calinix_requests_total":                  {"default": 1, s.balancer: 2},
		"calinix_decision_duration_seconds_count": {"default": 1, s.balancer: 2},
	} {
		for balancer, n := range more {
			s.WaitMetric(t, was.Sum(name, "balancer", balancer)+n, name, "balancer", balancer)
		}
	}
	m := s.Metrics(t)
	for _, balancer := range []string{"default", s.balancer} {
		if m.Sum("calinix_pod_up", "balancer", balancer) != 1 || m.Sum("calinix_index_blocks", "balancer", balancer) < 1 || m.Sum("calinix_index_bytes", "balancer", balancer) <= 0 ||
			m.Sum("calinix_prefix_blocks_total", "balancer", balancer) < 1 {
			t.Errorf("balancer %s lacks something", balancer)
		}
	}
	for key := range m {
		if strings.HasPrefix(key, "calinix_") && (!strings.Contains(key, "balancer=") || strings.Contains(key, `balancer=""`)) {
			t.Errorf("%s names no balancer", key)
		}
	}
}

// TestMetricsAreWellFormed: names, types, help and units as Prometheus wants
// them, and nothing that a client writes becomes a label.
func TestMetricsAreWellFormed(t *testing.T) {
	ps, pre, dec := pods(t, "a", "b"), pods(t, "p"), pods(t, "d")
	ps[0].Set(fakepod.Reply{Status: 503})
	s := serve(t, "tie_break pod_id\nretry_status 503\n"+single(ps)+dispatch(pre, dec), testcaddy.Plain())
	cl := s.Client(t, testcaddy.H1)
	secret := "clientword"
	cl.Post(t, "/"+secret, `{"model":"`+secret+`"}`, "X-Session-ID", secret, "x-calinix-request-id", secret, "Host", secret)
	cl.Post(t, chatPath, strings.ReplaceAll(chat(secret), `"m"`, `"`+secret+`"`), "x-calinix-mode", secret)
	pre[0].Next(fakepod.Reply{Status: 500})
	cl.Post(t, chatPath, chat(secret, `"max_tokens":3`), "x-calinix-mode", "dispatch")
	s.waitCount(t, 1, "calinix_prefill_failures_total")
	s.waitCount(t, 1, "calinix_retries_total")
	cl.Post(t, chatPath, chat(secret, `"max_tokens":3`), "x-calinix-mode", "dispatch")
	s.waitCount(t, 1, "calinix_prefill_unused_total")

	a := s.AdminGet(t, "/metrics")
	var ours bytes.Buffer
	families := map[string]bool{}
	for line := range strings.Lines(string(a.Body)) {
		name := strings.TrimPrefix(strings.TrimPrefix(line, "# HELP "), "# TYPE ")
		if strings.HasPrefix(name, "calinix_") {
			ours.WriteString(line)
			if strings.HasPrefix(line, "# TYPE") {
				family, kind, _ := strings.Cut(strings.TrimSpace(name), " ")
				families[family+" "+kind] = true
			}
		}
	}
	delete(families, "calinix_prefills_skipped_total counter") // of other tests of the process
	want := []string{
		"calinix_body_bytes gauge", "calinix_cache_tokens_total counter",
		"calinix_decision_duration_seconds histogram",
		"calinix_endpoint_changes_total counter", "calinix_endpoint_count gauge", "calinix_held gauge", "calinix_index_blocks gauge", "calinix_index_bytes gauge", "calinix_pod_inflight gauge",
		"calinix_pod_stale gauge", "calinix_pod_up gauge", "calinix_prefill_failures_total counter", "calinix_prefill_unused_total counter", "calinix_prefix_blocks_total counter", "calinix_requests_total counter", "calinix_retries_total counter",
		"calinix_ring_changes_total counter", "calinix_ring_moved_ratio_total counter", "calinix_ring_picks_total counter",
		"calinix_routing_fallbacks_total counter", "calinix_routing_keys_total counter",
	}
	delete(families, "calinix_endpoint_refresh_duration_seconds histogram") // is there once a source has reported
	if got := slices.Sorted(maps.Keys(families)); !slices.Equal(got, want) {
		t.Errorf("metrics %q, want %q", got, want)
	}
	if strings.Contains(ours.String(), secret) {
		t.Errorf("a client's word is in the metrics:\n%s", ours.String())
	}
	problems, err := promlint.New(&ours).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if p.Metric == "calinix_endpoint_count" {
			continue // a name that dashboards of others have
		}
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}
