package calinix

import (
	"sync"
	"time"

	"github.com/calinix/caddy-calinix/fleet"
	"github.com/calinix/caddy-calinix/index"
	"github.com/calinix/caddy-calinix/outcome"
)

// shortcut picks the decode pod that serves the request alone, if that is to be
// preferred to a prefill leg: the pod lacks so little of the prompt that
// minUncachedTokens says so, or that computing it takes less than handing the
// prompt over (adaptive). Else it returns nil, and nothing is reserved.
//
// The pod is picked by the weights of single mode, for it would have the whole
// request, its cache above all.
func (x *exchange) shortcut() *fleet.Lease {
	if x.h.minUncached == 0 && !x.h.adaptive || !x.prompt {
		return nil
	}
	ask := x.ask(fleet.Decode, index.Bitmap{})
	ask.Weights = x.rules.weights[fleet.Single]
	l, now := new(fleet.Lease), x.h.now()
	if x.h.state.fleet.Begin(now, &ask, l) != nil {
		return nil
	}
	var why string
	tokens := l.Tokens
	if tokens == 0 { // there is no index
		tokens = int64(x.asked.tokens)
	}
	switch lacks := tokens - l.Covered; {
	case lacks < x.h.minUncached:
		why = "min_uncached_tokens"
	case x.h.adaptive && x.h.state.pace.cheaper(lacks, tokens):
		why = "adaptive"
	default:
		l.End(now, outcome.Unsent)
		return nil
	}
	x.keep(l)
	x.rules.decided(l, x.key.from)
	x.h.metrics.prefillsSkipped.WithLabelValues(x.h.state.name, why).Inc()
	x.decided(l)
	x.picked()
	return l
}

// pace is what a balancer has measured of its engines: how long they take to
// compute a token of a prompt, and to hand one over. It serves conditional
// dispatch alone. The zero value has measured nothing.
//
// Both are the least that was seen, for what is above that is queueing; the least
// is forgotten slowly, by a percent with each further measurement.
type pace struct {
	mu                sync.Mutex
	compute, handOver float64 // nanoseconds a token; 0: not measured yet
}

// leastMeasured is the shortest prompt, in tokens, that is measured by: of less,
// the time goes into other things.
const leastMeasured = 256

// prefilled tells how long a prefill leg took for the tokens that it computed.
func (p *pace) prefilled(took time.Duration, computed int64) { p.note(&p.compute, took, computed) }

// fetched tells how long after the prefill leg a decode leg began to answer.
func (p *pace) fetched(took time.Duration, tokens int64) { p.note(&p.handOver, took, tokens) }

func (p *pace) note(least *float64, took time.Duration, tokens int64) {
	if tokens < leastMeasured || took < 0 {
		return
	}
	each := float64(took) / float64(tokens)
	p.mu.Lock()
	defer p.mu.Unlock()
	if *least == 0 || each < *least*1.01 {
		*least = each
	} else {
		*least *= 1.01
	}
}

// cheaper says whether so many tokens are computed in less time than a prompt of
// that length is handed over in. Before both were measured it is not.
func (p *pace) cheaper(lacks, tokens int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.compute > 0 && p.handOver > 0 && float64(lacks)*p.compute < float64(tokens)*p.handOver
}

// measure takes the time of a leg that was answered.
func (x *exchange) measure(lease *fleet.Lease, l *leg, out outcome.Outcome) {
	switch {
	case !x.h.adaptive || out != outcome.Answered:
	case l.kind == outcome.Prefill:
		x.h.state.pace.prefilled(l.firstAt.Sub(l.started), lease.Tokens-lease.Covered)
		x.handedOverAt = l.firstAt
	case l.kind == outcome.Decode && x.route.prefill != "" && x.asked.stream && !x.handedOverAt.IsZero():
		x.h.state.pace.fetched(l.firstAt.Sub(x.handedOverAt), lease.Tokens)
	}
}
