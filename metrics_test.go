package calinix_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

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
