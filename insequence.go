package calinix

import (
	"net/http"

	"github.com/calinix/caddy-calinix/dispatch"
	"github.com/calinix/caddy-calinix/fleet"
	"github.com/calinix/caddy-calinix/index"
	"github.com/calinix/caddy-calinix/outcome"
)

// inSequence serves the request with a connector whose decode leg is made from
// the prefill leg's reply.
//
// What a finished prefill leg has handed over serves one decode leg: engines free
// the blocks when these have been fetched. So a decode leg that is tried at
// another pod carries the same parameters if the first pod cannot have fetched
// anything (unreachable, lost_sending, or a 429 or 503, which engines say before
// they begin). Otherwise, or if the parameters are for one decode pod alone, the
// prefill leg runs again, which finds its prompt in the pod's cache.
func (x *exchange) inSequence(prefill, decode *fleet.Lease) {
	withoutPrefill := false
	x.serve(outcome.Decode, fleet.Decode, func(lease *fleet.Lease, before lastTry) (cargo, bool) {
		switch {
		case withoutPrefill, before.out != outcome.Unended && x.reusable(before):
			return x.handed, true
		case before.out != outcome.Unended:
			if !x.roomForPrefill(lease) {
				return cargo{}, false
			}
			ask := x.askBeside(fleet.Prefill, index.Bitmap{}, lease)
			again, err := x.begin(x.h.now(), &ask)
			if err != nil {
				return x.noPrefill(lease, err, &withoutPrefill)
			}
			prefill = again
		}
		end := x.prefill(prefill, lease)
		withoutPrefill = end == decodeAlone
		return x.handed, end != requestEnded
	}, decode)
}

// reusable says whether what was handed over for a decode leg that ended so can
// serve another one.
func (x *exchange) reusable(last lastTry) bool {
	t := &x.h.traits
	switch {
	case t.Lasting:
		return true
	case t.Bound:
		return false
	case last.status != 0:
		return last.status == http.StatusTooManyRequests || last.status == http.StatusServiceUnavailable
	default:
		return last.out == outcome.Unreachable || last.out == outcome.LostSending
	}
}

// roomForPrefill lets go of what the decode leg before carried, and reserves memory
// for the copy that a further prefill leg carries. Without any the request has ended.
func (x *exchange) roomForPrefill(decode *fleet.Lease) bool {
	x.handed = cargo{}
	room := min(2*int64(len(x.payload)), x.h.bodies.memory)
	err := x.body.reserve(room, x.h.bodies)
	if err == nil {
		return true
	}
	decode.End(x.h.now(), outcome.Unsent)
	x.route.decode = ""
	x.refuse(outcome.Prefill, outcome.Rejected, x.bodyError(err))
	return false
}

// noPrefill is what becomes of a decode leg when no pod is up for the prefill leg
// that it needs.
func (x *exchange) noPrefill(decode *fleet.Lease, err error, without *bool) (cargo, bool) {
	if x.h.decodeOnly {
		*without = true
		x.alone(outcome.NoPod)
		x.handed = cargo{payload: x.payload}
		return x.handed, true
	}
	decode.End(x.h.now(), outcome.Unsent)
	x.route.decode = ""
	x.refuse(outcome.Prefill, outcome.NoPod, noPod(err))
	return cargo{}, false
}

// prefillEnd is what follows from a prefill leg.
type prefillEnd uint8

const (
	handedOver   prefillEnd = iota // the decode leg gets what it handed over
	decodeAlone                    // the decode leg gets the client's request
	requestEnded                   // the client has its answer, or has left; the decode leg is over too
)

// prefill runs the prefill leg, at a second pod if need be, and notes what the
// decode leg carries.
func (x *exchange) prefill(lease, decode *fleet.Lease) prefillEnd {
	ctx, cancel := until(x.r.Context(), x.h.prefillTimeout)
	defer cancel()
	var tried index.Bitmap
	for n := 1; ; n++ {
		tried.Set(int(lease.Ref().Slot))
		x.enroute(outcome.Prefill, lease)
		try := x.newTry(lease, decode)
		payload, err := x.h.connector.Prefill(nil, try)
		if err != nil {
			now := x.h.now()
			lease.End(now, outcome.Unsent)
			decode.End(now, outcome.Unsent)
			x.route.decode = ""
			x.refuse(outcome.Prefill, outcome.Rejected, badBody(err.Error()))
			return requestEnded
		}
		got := newCapture(dispatch.MaxReply)
		l := x.newLeg(outcome.Prefill, targetOf(lease), lease)
		l.payload, l.requestID = payload, x.h.connector.RequestID(try)
		lease.Start()
		out, panicked := l.run(x.h.legs, got, x.r.WithContext(ctx), x.next)
		if panicked != nil && panicked != http.ErrAbortHandler {
			x.endLeg(outcome.Prefill, lease, l, out)
			decode.End(x.h.now(), outcome.Unsent)
			panic(panicked) // not the pod's doing
		}
		reply, out := x.readReply(ctx, l, got, out)
		if out == outcome.Answered {
			l.firstByte()
		}
		x.prefillEnded(lease, l, out)
		if out == outcome.Answered {
			return x.handOver(try, reply, decode)
		}
		if n < prefillTries && out.Retryable(outcome.Prefill, false) && ctx.Err() == nil {
			ask := x.askBeside(fleet.Prefill, tried, decode)
			if next, err := x.begin(x.h.now(), &ask); err == nil {
				x.prefillRetried(out)
				lease = next
				continue
			}
		}
		if out.PrefillFailed() && x.h.decodeOnly {
			x.alone(out)
			x.handed = cargo{payload: x.payload}
			return decodeAlone
		}
		decode.End(x.h.now(), outcome.Unsent)
		x.prefillFailed(out, l, got, x.replacer())
		return requestEnded
	}
}

// handOver makes the decode leg from a prefill leg's reply.
func (x *exchange) handOver(try *dispatch.Try, reply dispatch.Handover, decode *fleet.Lease) prefillEnd {
	payload, err := x.h.connector.Decode(nil, try, reply)
	if err != nil {
		decode.End(x.h.now(), outcome.Unsent)
		x.refuse(outcome.Decode, outcome.Rejected, &apiError{status: http.StatusBadGateway, code: "prefill_reply_unusable", message: err.Error()})
		return requestEnded
	}
	if reply.Params == nil && x.h.traits.Params {
		x.h.metrics.prefillUnused.WithLabelValues(x.h.state.name, x.route.prefill).Inc()
	}
	x.handed = cargo{payload: payload, requestID: x.h.connector.RequestID(try)}
	held := len(payload)
	if len(payload) == 0 || len(x.payload) == 0 || &payload[0] != &x.payload[0] {
		held += len(x.payload)
	}
	x.body.shrink(int64(held))
	return handedOver
}
