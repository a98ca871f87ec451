package calinix

import (
	"time"

	"github.com/calinix/caddy-calinix/fleet"
	"github.com/calinix/caddy-calinix/index"
)

// choose takes a lease on the pod for the first leg of the request.
func (x *exchange) choose(role fleet.Role) (*fleet.Lease, error) {
	ask := x.ask(role, index.Bitmap{})
	lease, err := x.beginInTurn(&ask)
	if err != nil {
		return nil, err
	}
	x.decided(lease)
	return lease, nil
}

// ask is the question to the fleet for one leg.
func (x *exchange) ask(role fleet.Role, tried index.Bitmap) fleet.Ask {
	a := fleet.Ask{
		Role:     role,
		Model:    x.model,
		Session:  x.session,
		Exclude:  tried,
		Strategy: x.rules.strategy,
		Weights:  x.rules.weights[role],
		TieBreak: x.h.tieBreak,
		TTFT:     x.h.ttft,
		// A prefill leg's answer comes when the prompt is computed.
		Whole: role != fleet.Prefill && !x.asked.stream,
	}
	a.Hash, a.HasHash = x.key.hash, x.key.from != keyNone
	a.VirtualNodes, a.LoadFactor = x.h.virtualNodes, x.h.loadFactor
	if x.prompt && x.h.indexed {
		a.Chain = x.chain
	}
	if x.prompt {
		a.Key, a.HasKey = x.asked.key, true
		a.Tokens = x.asked.tokens
	}
	return a
}

// begin takes a lease on a pod. Who drives the leg ends it; release makes sure
// of that.
func (x *exchange) begin(now time.Time, a *fleet.Ask) (*fleet.Lease, error) {
	x.settle()
	a.Later = !x.late
	l := &x.first
	if len(x.leases) > 0 {
		l = new(fleet.Lease)
	}
	if err := x.h.state.fleet.Begin(now, a, l); err != nil {
		return nil, err
	}
	x.keep(l)
	x.rules.decided(l, x.key.from)
	return l, nil
}

// keep notes a lease, so that release ends it.
func (x *exchange) keep(l *fleet.Lease) {
	if x.leases == nil {
		x.leases = x.room[:0]
	}
	x.leases = append(x.leases, l)
}

// decided enters the time of the decision; l is the lease on the pod that computes
// the prompt.
func (x *exchange) decided(l *fleet.Lease) {
	x.h.decisionTime.Observe((x.h.now().Sub(x.read) - x.held).Seconds())
	x.depth = l.Depth
}
