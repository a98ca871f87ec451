package calinix

import (
	"github.com/calinix/caddy-calinix/outcome"
)

// serveRequest takes the request through its stages. Everything that a client
// can see of the request is written below here.
func (x *exchange) serveRequest() {
	x.ended = outcome.Rejected
	if refused := x.prepare(); refused != nil {
		x.refuse(x.leg(), outcome.Rejected, refused)
		return
	}
	if x.gone() {
		x.refuse(x.leg(), outcome.ClientGone, errClientGone)
		return
	}
	if x.listsModels() {
		x.listModels()
		return
	}
	x.h.state.budget.Count(x.read)
	if x.route.mode == modeDispatch {
		x.disaggregate()
		return
	}
	x.payload = x.body.raw
	x.serve(outcome.Single, legRole(outcome.Single), x.whole, nil)
}

// leg is the leg under which a request is counted that ended before one was
// begun.
func (x *exchange) leg() outcome.Leg {
	if x.h.modeFor(x.route.mode) == modeDispatch {
		return outcome.Prefill
	}
	return outcome.Single
}
