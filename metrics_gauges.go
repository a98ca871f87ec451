package calinix

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/calinix/caddy-calinix/outcome"
)

// gauges reads the state of every balancer when it is asked, so that no gauge
// outlives its pod.
type gauges struct{}

// described are the metrics of gauges.
var described []*prometheus.Desc

// describe adds one. Its first label is balancer.
func describe(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc(prometheus.BuildFQName(metricsNamespace, "", name), help, append([]string{"balancer"}, labels...), nil)
	described = append(described, d)
	return d
}

var (
	podInflight      = describe("pod_inflight", "Legs that now run at the pod, by the role in which.", "pod", "role")
	podUp            = describe("pod_up", "1 while the pod is up, 0 while it is down.", "pod", "role")
	podCount         = describe("endpoint_count", "Pods that are known, up or not, by the model that they serve (empty for any).", "model")
	podStale         = describe("pod_stale", "1 while the pod delivers less than half of what its cache is expected to hold.", "pod")
	indexBlocks      = describe("index_blocks", "Distinct blocks in the prefix index.")
	ringChanges      = describe("ring_changes_total", "How often the pods on the ring of hashes have changed.", "virtual_nodes")
	ringMoved        = describe("ring_moved_ratio_total", "Shares of all keys that these changes moved to another pod, added up: 1 is all keys once.", "virtual_nodes")
	bodyBytes        = describe("body_bytes", "Bytes that are reserved for request bodies, of bodyMemoryBytes.")
	held             = describe("held", "Requests that are held now because the pods are too busy.")
	indexBytes       = describe("index_bytes", "Memory of the prefix index in bytes.")
	discoveryFailing = describe("discovery_failing", "1 while a source cannot find out which pods there are; those known last stay.", "list", "source")
)

// Describe implements [prometheus.Collector].
func (gauges) Describe(out chan<- *prometheus.Desc) {
	for _, d := range described {
		out <- d
	}
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
		gauge(held, float64(b.fleet.Held()), b.name)
		gauge(bodyBytes, float64(b.bodies.used.Load()), b.name)
	}
}
