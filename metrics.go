package calinix

import (
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/calinix/caddy-calinix/fleet"
	"github.com/calinix/caddy-calinix/outcome"
)

// metrics are the counters of every balancer of the process. They outlive
// configurations, so that a reload resets none of them; each configuration's
// registry gets the same collectors.
type metrics struct {
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

// shared is the one instance: balancers of several configurations of one
// process count into the same series.
var shared = newMetrics()

func newMetrics() *metrics {
	return &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "calinix_requests_total",
			Help: "Legs of requests that ended, by mode, role, pod (empty where none was reached) and code: the status, 499 if the client left, cut if the pod broke off.",
		}, []string{"balancer", "mode", "role", "pod", "code"}),
		decisions: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "calinix_decision_duration_seconds",
			Help:    "Time from the body being read to a pod being picked, both pods in dispatch mode.",
			Buckets: []float64{1e-6, 2e-6, 5e-6, 10e-6, 20e-6, 50e-6, 100e-6, 200e-6, 500e-6, 1e-3},
		}, []string{"balancer"}),
		prefixBlocks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "calinix_prefix_blocks_total",
			Help: "Blocks of routed prompts, by whether the picked pod was known to hold them.",
		}, []string{"balancer", "result"}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "calinix_retries_total",
			Help: "Further pods tried for a leg, prefill legs included, by what ended the try before.",
		}, []string{"balancer", "reason"}),
		prefillsSkipped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "calinix_prefills_skipped_total",
			Help: "Requests that a decode pod got without a prefill leg because it lacked little of the prompt, by the rule that said so.",
		}, []string{"balancer", "reason"}),
		prefillFailures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "calinix_prefill_failures_total",
			Help: "Prefill legs that failed, by how they ended.",
		}, []string{"balancer", "reason"}),
		prefillUnused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "calinix_prefill_unused_total",
			Help: "Prefill legs that were answered without the parameters (kv_transfer_params, disaggregated_params) with which the decode pod could fetch what was computed.",
		}, []string{"balancer", "pod"}),
		keys: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "calinix_routing_keys_total",
			Help: "Picks of pods, by the strategy that was asked for and where the request's session key or prefix came from.",
		}, []string{"balancer", "strategy", "source"}),
		fallbacks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "calinix_routing_fallbacks_total",
			Help: "Picks that a strategy could not decide, by what it lacked: no_key, ring_empty or load_unknown.",
		}, []string{"balancer", "strategy", "reason"}),
		ringPicks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "calinix_ring_picks_total",
			Help: "Picks by a key on the ring: at the pod to which it belongs (home), or at another one because that had its share of the load (passed).",
		}, []string{"balancer", "result"}),
		podChanges: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "calinix_endpoint_changes_total",
			Help: "Pods that came (added) and went (removed), by the model that they name (empty for any).",
		}, []string{"balancer", "model", "change_type"}),
		refreshes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "calinix_endpoint_refresh_duration_seconds",
			Help:    "Time from a source's report of pods to their being the balancer's.",
			Buckets: []float64{1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1},
		}, []string{"balancer"}),
		cacheTokens: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "calinix_cache_tokens_total",
			Help: "Tokens of answered prompts: prompt, all of them; available, what the pod that held most was known to hold; captured, what the pod that was picked was known to hold; and of those of which its engine has said so: expected, as captured, and delivered, what the engine has found in its cache.",
		}, []string{"balancer", "stage", "pod"}),
		holds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "calinix_hold_seconds",
			Help:    "Time for which requests were held because the pods were too busy, by those that were.",
			Buckets: []float64{0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 60},
		}, []string{"balancer"}),
		overloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "calinix_overload_refusals_total",
			Help: "Requests that were refused because the pods were too busy, by why they were not held (any longer): crowded or timeout.",
		}, []string{"balancer", "reason"}),
	}
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
	for _, c := range []prometheus.Collector{
		m.requests, m.decisions, m.prefixBlocks, m.retries, m.prefillFailures, m.prefillUnused, m.prefillsSkipped, m.keys, m.fallbacks, m.ringPicks,
		m.podChanges, m.refreshes, m.cacheTokens, m.holds, m.overloads,
		gauges{},
	} {
		if err := reg.Register(c); err != nil {
			return err
		}
	}
	return nil
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

var (
	podInflight = prometheus.NewDesc("calinix_pod_inflight", "Legs that now run at the pod, by the role in which.", []string{"balancer", "pod", "role"}, nil)
	podUp       = prometheus.NewDesc("calinix_pod_up", "1 while the pod is up, 0 while it is down.", []string{"balancer", "pod", "role"}, nil)
	podCount    = prometheus.NewDesc("calinix_endpoint_count", "Pods that are known, up or not, by the model that they serve (empty for any).", []string{"balancer", "model"}, nil)
	podStale    = prometheus.NewDesc("calinix_pod_stale", "1 while the pod delivers less than half of what its cache is expected to hold.", []string{"balancer", "pod"}, nil)
	indexBlocks = prometheus.NewDesc("calinix_index_blocks", "Distinct blocks in the prefix index.", []string{"balancer"}, nil)
	ringChanges = prometheus.NewDesc("calinix_ring_changes_total", "How often the pods on the ring of hashes have changed.", []string{"balancer", "virtual_nodes"}, nil)
	ringMoved   = prometheus.NewDesc("calinix_ring_moved_ratio_total", "Shares of all keys that these changes moved to another pod, added up: 1 is all keys once.", []string{"balancer", "virtual_nodes"}, nil)
	bodyBytes   = prometheus.NewDesc("calinix_body_bytes", "Bytes that are reserved for request bodies, of bodyMemoryBytes.", []string{"balancer"}, nil)
	held        = prometheus.NewDesc("calinix_held", "Requests that are held now because the pods are too busy.", []string{"balancer"}, nil)
	indexBytes  = prometheus.NewDesc("calinix_index_bytes", "Memory of the prefix index in bytes.", []string{"balancer"}, nil)
)

var discoveryFailing = prometheus.NewDesc("calinix_discovery_failing", "1 while a source cannot find out which pods there are; those known last stay.", []string{"balancer", "list", "source"}, nil)

// gauges reads the state of every balancer when it is asked, so that no gauge
// outlives its pod.
type gauges struct{}

// Describe implements [prometheus.Collector].
func (gauges) Describe(out chan<- *prometheus.Desc) {
	out <- podInflight
	out <- podUp
	out <- ringChanges
	out <- ringMoved
	out <- podCount
	out <- podStale
	out <- discoveryFailing
	out <- indexBlocks
	out <- indexBytes
	out <- bodyBytes
	out <- held
}

// Collect implements [prometheus.Collector].
func (gauges) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for _, b := range allBalancers() {
		count := map[string]int{}
		for _, s := range b.fleet.Snapshot() {
			for _, model := range modelLabels(s.Models) {
				count[model]++
			}
			up, stale := 0.0, 0.0
			if s.Up {
				up = 1
			}
			if s.Stale {
				stale = 1
			}
			gauge(podStale, stale, b.name, s.ID)
			for role, name := range roleNames {
				if !s.Roles.Has(legRole(outcome.Leg(role))) {
					continue
				}
				gauge(podInflight, float64(s.Running[role]), b.name, s.ID, name)
				gauge(podUp, up, b.name, s.ID, name)
			}
		}
		for _, r := range b.fleet.Rings() {
			nodes := strconv.Itoa(r.Nodes)
			out <- prometheus.MustNewConstMetric(ringChanges, prometheus.CounterValue, float64(r.Changes), b.name, nodes)
			out <- prometheus.MustNewConstMetric(ringMoved, prometheus.CounterValue, r.Moved, b.name, nodes)
		}
		for model, n := range count {
			gauge(podCount, float64(n), b.name, model)
		}
		for s, fails := range b.searches() {
			gauge(discoveryFailing, fails, b.name, s.list, s.source)
		}
		gauge(indexBlocks, float64(b.blocks.Blocks()), b.name)
		gauge(indexBytes, float64(b.blocks.Bytes()), b.name)
		gauge(bodyBytes, float64(b.bodies.used.Load()), b.name)
		gauge(held, float64(b.fleet.Held()), b.name)
	}
}
