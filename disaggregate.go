package calinix

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"go.uber.org/zap"

	"github.com/calinix/caddy-calinix/dispatch"
	"github.com/calinix/caddy-calinix/fleet"
	"github.com/calinix/caddy-calinix/index"
	"github.com/calinix/caddy-calinix/observe"
	"github.com/calinix/caddy-calinix/outcome"
)

// disaggregate serves the request in dispatch mode: a prefill leg at one pod,
// whose answer reaches nobody, then a decode leg at another, whose answer the
// client gets. Requests that do not generate one text go to one decode pod.
func (x *exchange) disaggregate() {
	// Each leg's body is a copy, of which there is one at a time. One that would
	// not fit at all has the memory to itself.
	room := min(x.body.size()+int64(len(x.body.decoded)), x.h.bodies.memory)
	if err := x.body.reserve(room, x.h.bodies); err != nil {
		x.refuse(x.leg(), outcome.Rejected, x.bodyError(err))
		return
	}
	payload, unfit := x.stripped()
	if unfit != nil {
		x.refuse(outcome.Decode, outcome.Rejected, unfit)
		return
	}
	if !x.asked.generates {
		x.prompt = false // by load alone
		x.carry(payload)
		x.serve(outcome.Decode, fleet.Decode, nil)
		return
	}
	prefill, decode, refused := x.pair()
	if refused != nil {
		if refused.leg == outcome.Prefill && x.h.decodeOnly {
			x.withoutPrefill(outcome.NoPod, payload, nil)
			return
		}
		x.refuse(refused.leg, outcome.NoPod, refused.answer)
		return
	}
	x.picked()
	x.route.decode = decode.Pod().ID
	reply, done := x.prefill(prefill, decode, payload)
	if done {
		return
	}
	payload, err := x.h.connector.Decode(nil, payload, reply)
	if err != nil {
		decode.End(x.h.now(), outcome.Unsent)
		x.refuse(outcome.Decode, outcome.Rejected, &apiError{status: http.StatusBadGateway, code: "prefill_reply_unusable", message: err.Error()})
		return
	}
	x.carry(payload)
	x.serve(outcome.Decode, fleet.Decode, decode)
}

// carry makes payload the body of the last leg; nothing else is needed of the
// client's from then on.
func (x *exchange) carry(payload []byte) {
	x.payload = payload
	x.body.raw, x.body.decoded = nil, nil
	x.body.shrink(int64(len(payload)))
}

// stripped is the client's body without the members that only Calinix may set.
// Of a body that is not one JSON object, or has none of them, every byte stays.
//
// A compressed body goes on decompressed, whatever is in it: engines differ in
// what they make of a Content-Encoding, many look at the bytes alone, and what is
// passed on must be what was searched. So one that cannot be undone is refused.
func (x *exchange) stripped() ([]byte, *apiError) {
	if x.body.coded != nil {
		return nil, badCoding(x.body.coded)
	}
	without, _, err := dispatch.Strip(nil, x.body.decoded)
	if err != nil {
		return nil, &apiError{status: http.StatusBadRequest, code: "bad_body", message: err.Error()}
	}
	if len(contentCodings(x.r.Header)) > 0 {
		x.r.Header.Del("Content-Encoding")
	}
	x.body.raw, x.body.decoded = nil, nil // what follows is made of without
	return without, nil
}

// badCoding is the answer to a body whose Content-Encoding cannot be undone.
func badCoding(err error) *apiError {
	if unknown := unknownCoding(""); errors.As(err, &unknown) {
		return &apiError{status: http.StatusUnsupportedMediaType, code: "unsupported_content_encoding", message: err.Error()}
	}
	return &apiError{status: http.StatusBadRequest, code: "bad_body", message: "the request body does not fit its Content-Encoding: " + err.Error()}
}

// refusal is a leg for which there is no pod.
type refusal struct {
	leg    outcome.Leg
	answer *apiError
}

// pair picks both pods before anything is sent, so that no prefill is computed
// for which there is no decode pod.
func (x *exchange) pair() (prefill, decode *fleet.Lease, refused *refusal) {
	now := x.h.now()
	ask := x.ask(fleet.Prefill, index.Bitmap{})
	prefill, err := x.begin(now, &ask)
	if err != nil {
		return nil, nil, &refusal{outcome.Prefill, noPod(err)}
	}
	ask = x.ask(fleet.Decode, index.Bitmap{})
	ask.Near, ask.HasNear = prefill.Ref(), true
	decode, err = x.begin(now, &ask)
	if err != nil {
		prefill.End(now, outcome.Unsent)
		return nil, nil, &refusal{outcome.Decode, noPod(err)}
	}
	x.decided(prefill)
	return prefill, decode, nil
}

// prefillTries is at how many pods a prefill leg is tried.
const prefillTries = 2

// prefill runs the prefill leg. With done it has answered the client itself, or
// the client has left, and the decode leg is over too.
func (x *exchange) prefill(lease, decode *fleet.Lease, stripped []byte) (reply dispatch.Handover, done bool) {
	ctx, cancel := until(x.r.Context(), x.h.prefillTimeout)
	defer cancel()
	payload, err := x.h.connector.Prefill(nil, x.asked.api, stripped)
	if err != nil {
		now := x.h.now()
		lease.End(now, outcome.Unsent)
		decode.End(now, outcome.Unsent)
		x.refuse(outcome.Prefill, outcome.Rejected, &apiError{status: http.StatusBadRequest, code: "bad_body", message: err.Error()})
		return nil, true
	}
	var tried index.Bitmap
	for try := 1; ; try++ {
		tried.Set(int(lease.Ref().Slot))
		x.enroute(outcome.Prefill, lease)
		got := newCapture(dispatch.MaxReply)
		l := &leg{kind: outcome.Prefill, target: targetOf(lease), lease: lease, payload: payload, now: x.h.now, keepHost: x.h.keepHost}
		lease.Start()
		out, panicked := l.run(x.h.legs, got, x.r.WithContext(ctx), x.next)
		if panicked != nil && panicked != http.ErrAbortHandler {
			x.endLeg(outcome.Prefill, lease, l, out)
			decode.End(x.h.now(), outcome.Unsent)
			panic(panicked) // not the pod's doing
		}
		reply, out = x.readReply(ctx, l, got, out)
		if out == outcome.Answered {
			l.firstByte()
		}
		x.endLeg(outcome.Prefill, lease, l, out)
		if out == outcome.Answered {
			return reply, false
		}
		if out.PrefillFailed() {
			x.h.metrics.prefillFailures.WithLabelValues(x.h.state.name, out.LogName()).Inc()
		}
		if try < prefillTries && out.Retryable(outcome.Prefill, false) && ctx.Err() == nil {
			ask := x.ask(fleet.Prefill, tried)
			if next, err := x.begin(x.h.now(), &ask); err == nil {
				lease = next
				continue
			}
		}
		return nil, x.prefillGaveUp(out, l, got, stripped, decode)
	}
}

// readReply judges the answer of a prefill leg and takes from it what the
// decode leg needs.
func (x *exchange) readReply(ctx context.Context, l *leg, got *capture, out outcome.Outcome) (dispatch.Handover, outcome.Outcome) {
	switch {
	case x.gone():
		return nil, outcome.ClientGone
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, outcome.TimedOut
	case got.full:
		l.bodyErr = errCaptureFull
		return nil, outcome.Unusable
	case out != outcome.Answered:
		return nil, out
	}
	plain, err := got.plain()
	if err == nil {
		l.said = observe.Find(plain, observe.JSON)
		var reply dispatch.Handover
		if reply, err = x.h.connector.ReadPrefill(plain); err == nil {
			return reply, outcome.Answered
		}
	}
	l.bodyErr = err
	return nil, outcome.Unusable
}

// prefillGaveUp ends a request whose prefill leg has failed for good, or goes
// on without it where the operator allows that. It always returns true.
func (x *exchange) prefillGaveUp(out outcome.Outcome, l *leg, got *capture, stripped []byte, decode *fleet.Lease) bool {
	if out.PrefillFailed() && x.h.decodeOnly {
		x.withoutPrefill(out, stripped, decode)
		return true
	}
	decode.End(x.h.now(), outcome.Unsent)
	x.route.decode = ""
	switch out {
	case outcome.Refused4xx:
		if x.h.showHeaders {
			x.route.set(x.w.Header())
		}
		got.replay(x.w)
		x.finish(out, nil)
	case outcome.Refused5xx:
		e := &apiError{
			status: out.Status(outcome.Prefill, l.status), code: "prefill_failed",
			message: "the prefill leg failed, pod " + strconv.Quote(l.lease.Pod().ID) + " with status " + strconv.Itoa(l.status),
		}
		if e.status == http.StatusServiceUnavailable {
			e.retryAfter = retryAfter
		}
		x.finish(out, e)
	default:
		x.finish(out, failure(outcome.Prefill, out, l.lease.Pod().ID))
	}
	return true
}

// decodeOnlyMark shows in x-calinix-route-policy that a prefill leg was given
// up and the decode pod computes the prompt itself.
const decodeOnlyMark = ";decode-only"

// withoutPrefill gives the whole request to a decode pod.
func (x *exchange) withoutPrefill(why outcome.Outcome, payload []byte, decode *fleet.Lease) {
	if why == outcome.NoPod {
		x.h.metrics.prefillFailures.WithLabelValues(x.h.state.name, why.LogName()).Inc()
	}
	if c := x.h.logger.Check(zap.WarnLevel, "serving without a prefill leg"); c != nil {
		c.Write(zap.Stringer("reason", why), zap.String("request_id", x.route.requestID))
	}
	x.route.mark = decodeOnlyMark
	x.route.prefill = ""
	x.carry(payload)
	x.serve(outcome.Decode, fleet.Decode, decode)
}
