package calinix

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/calinix/caddy-calinix/outcome"
)

// References returns how many configurations hold the state of a balancer; 0 if
// there is none of that name.
func References(name string) int {
	n, _ := balancers.References(name)
	return n
}

// ForgetCounters removes the counters of a balancer. The product keeps them for
// as long as the process runs; hundreds of tests' balancers would make each
// scrape cost more than the test that asks for it.
func ForgetCounters(name string) {
	for _, v := range shared.all {
		v.DeletePartialMatch(prometheus.Labels{"balancer": name})
	}
}

// Running returns how many legs run at the pods of a balancer, as the fleet has
// it. It costs next to nothing, unlike the metrics that show the same.
func Running(name string) (n int) {
	for _, b := range allBalancers() {
		if b.name != name {
			continue
		}
		for _, s := range b.fleet.Snapshot() {
			for _, role := range []outcome.Leg{outcome.Single, outcome.Prefill, outcome.Decode} {
				n += s.Running[role]
			}
		}
	}
	return n
}

// Held returns how many requests a balancer holds.
func Held(name string) (n int) {
	for _, b := range allBalancers() {
		if b.name == name {
			n += b.fleet.Held()
		}
	}
	return n
}
