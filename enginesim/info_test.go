package enginesim

import (
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// scrape parses /metrics as Prometheus does.
func (l *live) scrape(t *testing.T) map[string]*dto.MetricFamily {
	t.Helper()
	_, text := l.do(t, "GET", "/metrics", "")
	p := expfmt.NewTextParser(model.UTF8Validation)
	f, err := p.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return f
}

func TestMetrics(t *testing.T) {
	set := quick()
	set.Models = []string{`a"b`}
	l := newLive(t, set)
	for range 2 {
		if status, v := l.post(t, "/v1/completions", `{`+kvPrompt+`,"max_tokens":3}`); status != 200 {
			t.Fatalf("%d %v", status, v)
		}
	}
	f := l.scrape(t)
	for name, want := range map[string]float64{
		"vllm:num_requests_running": 0, "vllm:num_requests_waiting": 0, "vllm:kv_cache_usage_perc": 0,
		"vllm:prefix_cache_queries_total": 36, "vllm:prefix_cache_hits_total": 16, "vllm:external_prefix_cache_hits_total": 0,
		"vllm:prompt_tokens_total": 36, "vllm:generation_tokens_total": 6, "vllm:num_preemptions_total": 0, "vllm:cache_config_info": 1,
	} {
		m := f[name]
		if m == nil {
			t.Errorf("%s is missing", name)
			continue
		}
		v := m.Metric[0]
		if got := v.GetGauge().GetValue() + v.GetCounter().GetValue(); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
		if got := labelsOf(v); got["model_name"] != `a"b` || got["engine"] != "0" {
			t.Errorf("%s has labels %v", name, got)
		}
	}
	if got := labelsOf(f["vllm:cache_config_info"].Metric[0]); got["block_size"] != "16" || got["num_gpu_blocks"] != "28800" {
		t.Errorf("cache_config_info %v", got)
	}
	for _, m := range f["vllm:request_success_total"].Metric {
		if want := map[string]float64{"length": 2}[labelsOf(m)["finished_reason"]]; m.GetCounter().GetValue() != want {
			t.Errorf("request_success_total %v", m)
		}
	}
}

func labelsOf(m *dto.Metric) map[string]string {
	out := map[string]string{}
	for _, l := range m.Label {
		out[l.GetName()] = l.GetValue()
	}
	return out
}

func TestState(t *testing.T) {
	l := newLive(t, quick())
	l.post(t, "/v1/completions", `{`+kvPrompt+`,"max_tokens":3}`)
	_, text := l.do(t, "GET", "/inference_sim/state", "")
	for _, want := range []string{`"running":0`, `"blocks_cached":1`, `"prefix_queries":18`, `"requests":{"/v1/completions":1}`, `"finished":{"length":1}`, l.ID()} {
		if !strings.Contains(text, want) {
			t.Errorf("%s lacks %s", text, want)
		}
	}
}
