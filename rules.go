package calinix

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/calinix/caddy-calinix/config"
	"github.com/calinix/caddy-calinix/fleet"
	"github.com/calinix/caddy-calinix/selection"
)

// rules are how pods are picked, with the counters of what came of it.
type rules struct {
	strategy selection.Strategy
	weights  [fleet.Roles]selection.Weights

	keys      [keySources]prometheus.Counter
	fallbacks [len(fallbackReasons)]prometheus.Counter
	home      prometheus.Counter // the pod to which the key belongs
	passed    prometheus.Counter // another one, since that one had its share

	metrics  *metrics
	balancer string
	mu       sync.Mutex // guards others
	others   []*rules   // by other strategies
}

// fallbackReasons are the values of the metric's label reason, and the strategy
// that could not decide for it; "" is the one that was asked for.
var fallbackReasons = [...]struct {
	why          selection.Fallback
	reason, from string
}{
	{selection.NoKey, "no_key", ""},
	{selection.RingEmpty, "ring_empty", ""},
	{selection.LoadUnknown, "load_unknown", selection.LeastLoaded.String()},
}

// newRules makes the rules of the balancer of that name, or of one of its models.
func newRules(strategy string, w *config.RoleWeights, m *metrics, balancer string) (*rules, error) {
	s, err := selection.ParseStrategy(strategy)
	if err != nil {
		return nil, err
	}
	return makeRules(s, [fleet.Roles]selection.Weights{
		fleet.Single:  weightsOf(w.Single),
		fleet.Prefill: weightsOf(w.Prefill),
		fleet.Decode:  weightsOf(w.Decode),
	}, m, balancer), nil
}

func makeRules(s selection.Strategy, w [fleet.Roles]selection.Weights, m *metrics, balancer string) *rules {
	r := &rules{strategy: s, weights: w, metrics: m, balancer: balancer}
	for i, source := range keySourceNames {
		r.keys[i] = m.keys.WithLabelValues(balancer, s.String(), source)
	}
	for i, f := range fallbackReasons {
		from := f.from
		if from == "" {
			from = s.String()
		}
		r.fallbacks[i] = m.fallbacks.WithLabelValues(balancer, from, f.reason)
	}
	r.home = m.ringPicks.WithLabelValues(balancer, "home")
	r.passed = m.ringPicks.WithLabelValues(balancer, "passed")
	return r
}

// with returns the same rules with another strategy: that for which a model's pods
// ask.
func (r *rules) with(s selection.Strategy) *rules {
	if s == r.strategy {
		return r
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range r.others {
		if o.strategy == s {
			return o
		}
	}
	o := makeRules(s, r.weights, r.metrics, r.balancer)
	r.others = append(r.others, o)
	return o
}

// decided enters how a pod was picked.
func (r *rules) decided(l *fleet.Lease, from keySource) {
	r.keys[from].Inc()
	for i, f := range fallbackReasons {
		if l.Fallback&f.why != 0 {
			r.fallbacks[i].Inc()
		}
	}
	switch {
	case !l.Strategy.Hashes():
	case l.Home:
		r.home.Inc()
	default:
		r.passed.Inc()
	}
}
