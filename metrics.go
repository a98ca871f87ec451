package calinix

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/calinix/caddy-calinix/fleet"
	"github.com/calinix/caddy-calinix/outcome"
)

// metrics are the counters of every balancer of the process. They outlive
// configurations, so that a reload resets none of them; each configuration's
// registry gets the same collectors.
type metrics struct {
	all []vector // those that follow

	requests        *prometheus.CounterVec
	decisions       *prometheus.HistogramVec
	prefixBlocks    *prometheus.CounterVec
	retries         *prometheus.CounterVec
	prefillFailures *prometheus.CounterVec
	prefillsSkipped *prometheus.CounterVec
	prefillUnused   *prometheus.CounterVec
	keys            *prometheus.CounterVec
	fallbacks       *prometheus.CounterVec
	ringPicks       *prometheus.CounterVec
	podChanges      *prometheus.CounterVec
	refreshes       *prometheus.HistogramVec
	cacheTokens     *prometheus.CounterVec
	holds           *prometheus.HistogramVec
	overloads       *prometheus.CounterVec
}

// vector is a metric with the label balancer, and perhaps more.
type vector interface {
	prometheus.Collector
	DeletePartialMatch(prometheus.Labels) int
}

// metricsNamespace is what the names of all metrics begin with.
const metricsNamespace = "calinix"

// counter adds a counter. Its first label is balancer.
func (m *metrics) counter(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: metricsNamespace, Name: name, Help: help}, append([]string{"balancer"}, labels...))
	m.all = append(m.all, v)
	return v
}

// histogram adds a histogram of seconds. Its label is balancer.
func (m *metrics) histogram(name, help string, buckets ...float64) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: metricsNamespace, Name: name, Help: help, Buckets: buckets}, []string{"balancer"})
	m.all = append(m.all, v)
	return v
}

// shared is the one instance: balancers of several configurations of one
// process count into the same series.
var shared = newMetrics()

func newMetrics() *metrics {
	m := new(metrics)
	m.requests = m.counter("requests_total",
		"Legs of requests that ended, by mode, role, pod (empty where none was reached) and code: the status, 499 if the client left, cut if the pod broke off.",
		"mode", "role", "pod", "code")
	m.decisions = m.histogram("decision_duration_seconds",
		"Time from the body being read to a pod being picked, both pods in dispatch mode.",
		1e-6, 2e-6, 5e-6, 10e-6, 20e-6, 50e-6, 100e-6, 200e-6, 500e-6, 1e-3)
	m.prefixBlocks = m.counter("prefix_blocks_total",
		"Blocks of routed prompts, by whether the picked pod was known to hold them.",
		"result")
	m.retries = m.counter("retries_total",
		"Further pods tried for a leg, prefill legs included, by what ended the try before.",
		"reason")
	m.prefillsSkipped = m.counter("prefills_skipped_total",
		"Requests that a decode pod got without a prefill leg because it lacked little of the prompt, by the rule that said so.",
		"reason")
	m.prefillFailures = m.counter("prefill_failures_total",
		"Prefill legs that failed, by how they ended.",
		"reason")
	m.prefillUnused = m.counter("prefill_unused_total",
		"Prefill legs that were answered without the parameters (kv_transfer_params, disaggregated_params) with which the decode pod could fetch what was computed.",
		"pod")
	m.keys = m.counter("routing_keys_total",
		"Picks of pods, by the strategy that was asked for and where the request's session key or prefix came from.",
		"strategy", "source")
	m.fallbacks = m.counter("routing_fallbacks_total",
		"Picks that a strategy could not decide, by what it lacked: no_key, ring_empty or load_unknown.",
		"strategy", "reason")
	m.ringPicks = m.counter("ring_picks_total",
		"Picks by a key on the ring: at the pod to which it belongs (home), or at another one because that had its share of the load (passed).",
		"result")
	m.podChanges = m.counter("endpoint_changes_total",
		"Pods that came (added) and went (removed), by the model that they name (empty for any).",
		"model", "change_type")
	m.refreshes = m.histogram("endpoint_refresh_duration_seconds",
		"Time from a source's report of pods to their being the balancer's.",
		1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1)
	m.cacheTokens = m.counter("cache_tokens_total",
		"Tokens of answered prompts: prompt, all of them; available, what the pod that held most was known to hold; captured, what the pod that was picked was known to hold; and of those of which its engine has said so: expected, as captured, and delivered, what the engine has found in its cache.",
		"stage", "pod")
	m.holds = m.histogram("hold_seconds",
		"Time for which requests were held because the pods were too busy, by those that were.",
		0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 60)
	m.overloads = m.counter("overload_refusals_total",
		"Requests that were refused because the pods were too busy, by why they were not held (any longer): crowded or timeout.",
		"reason")
	return m
}

// changed counts those of the pods whose ids are given, under each of their models.
func (m *metrics) changed(balancer, change string, pods []fleet.Pod, ids []string) {
	for _, p := range pods {
		if slices.Contains(ids, p.ID) {
			for _, model := range modelLabels(p.Models) {
				m.podChanges.WithLabelValues(balancer, model, change).Inc()
			}
		}
	}
}

// modelLabels are the values of the label model for a pod: its models, or "" for
// one that takes any.
func modelLabels(models []string) []string {
	if len(models) == 0 {
		return []string{""}
	}
	return models
}

// register adds every collector to the registry of a configuration.
func (m *metrics) register(reg *prometheus.Registry) error {
	for _, v := range m.all {
		if err := reg.Register(v); err != nil {
			return err
		}
	}
	return reg.Register(gauges{})
}

// roleNames are the values of the label role.
var roleNames = [...]string{outcome.Single: "single", outcome.Prefill: "prefill", outcome.Decode: "decode"}

// count enters one leg; code "" is a leg that was never sent and is not
// counted.
func (h *Handler) count(m mode, kind outcome.Leg, pod, code string) {
	if code == "" {
		return
	}
	if m == "" { // the client named a mode that does not exist
		m = h.modeFor("")
	}
	h.metrics.requests.WithLabelValues(h.state.name, string(m), roleNames[kind], pod, code).Inc()
}
