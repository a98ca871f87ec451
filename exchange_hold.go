package calinix

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/calinix/caddy-calinix/config"
	"github.com/calinix/caddy-calinix/fleet"
	"github.com/calinix/caddy-calinix/outcome"
	"github.com/calinix/caddy-calinix/selection"
)

// overloadOf is when the fleet holds requests under a configuration.
func overloadOf(e *config.Balancer) fleet.Overload {
	o := e.Overload
	if o == nil {
		return fleet.Overload{}
	}
	return fleet.Overload{
		Above: time.Duration(*o.Hold), Ageing: fleet.DefaultOverload().Ageing, Max: *o.MaxHeld,
	}
}

// mayHold says whether the leg that asks may be held. One without a prompt makes a
// pod no work that is known, and a decode pod is idle but for what it decodes.
func (x *exchange) mayHold(a *fleet.Ask) bool {
	return x.h.overload != nil && x.prompt && a.Strategy == selection.ExpectedTTFT && a.Role != fleet.Decode
}

// beginInTurn is begin for a leg that may be held: it returns when a pod has the
// leg, or when it is not to have one any more.
func (x *exchange) beginInTurn(a *fleet.Ask) (*fleet.Lease, error) {
	since := x.h.now()
	if !x.mayHold(a) {
		return x.begin(since, a)
	}
	turn := make(chan struct{}, 1) // nobody has two turns without using the first
	a.Hold = &fleet.Hold{Turn: func() { turn <- struct{}{} }}
	lease, err := x.begin(since, a)
	switch {
	case errors.Is(err, fleet.ErrCrowded):
		x.h.metrics.overloads.WithLabelValues(x.h.state.name, "crowded").Inc()
		return nil, overloaded("no more than " + strconv.Itoa(*x.h.overload.MaxHeld) + " requests may wait for one")
	case !errors.Is(err, fleet.ErrHeld):
		return lease, err
	}
	x.settleDown()
	defer func() {
		now := x.h.now()
		x.h.state.fleet.Leave(now, a.Hold)
		x.held = now.Sub(since)
		x.h.metrics.holds.WithLabelValues(x.h.state.name).Observe(x.held.Seconds())
	}()
	timeout := time.NewTimer(time.Duration(*x.h.overload.Timeout))
	defer timeout.Stop()
	for {
		select {
		case <-turn:
			if lease, err = x.begin(x.h.now(), a); !errors.Is(err, fleet.ErrHeld) {
				return lease, err
			}
		case <-timeout.C:
			x.h.metrics.overloads.WithLabelValues(x.h.state.name, "timeout").Inc()
			return nil, overloaded("no pod was free for this request in " + x.h.overload.Timeout.String())
		case <-x.r.Context().Done():
			return nil, errClientGone
		}
	}
}

// settleDown gives back what a request should not keep while it waits: the memory
// in which its prompt was read, and its place among the large bodies. The chain is
// hashed as a whole.
func (x *exchange) settleDown() {
	if x.h.indexed || x.h.logTrace {
		x.chain.Finish()
	}
	x.parted()
}

// overloaded is the answer to a request that could not be held, or any longer.
func overloaded(why string) *apiError {
	return &apiError{
		status: http.StatusServiceUnavailable, code: "overloaded", retryAfter: overloadRetryAfter,
		message: "all pods are busy: " + why,
	}
}

// overloadRetryAfter is what a client is told to wait then, in seconds.
const overloadRetryAfter = 5

// unserved is what becomes of a request for which no pod was picked.
func unserved(err error) (outcome.Outcome, *apiError) {
	var own *apiError
	if errors.As(err, &own) { // refuse knows one whose client has left
		return outcome.Overloaded, own
	}
	return outcome.NoPod, noPod(err)
}
