package calinix

import (
	"net/http"
	"sync"

	"github.com/calinix/caddy-calinix/dispatch"
	"github.com/calinix/caddy-calinix/outcome"
)

// load makes what the legs carry. Without it, ok is false and both are over.
func (p *pair) load() (end pairEnd, ok bool) {
	x := p.x
	try := x.newTry(p.prefill.lease, p.decode.lease)
	if x.h.traits.AsksEngine {
		id, err := x.h.engineOf(p.apart.Context(), p.prefill.target)
		if err != nil {
			return p.engineUnknown(err), false
		}
		peer := *try.Prefill
		peer.EngineID, try.Prefill = id, &peer
	}
	id := x.h.connector.RequestID(try)
	p.prefill.requestID, p.decode.requestID = id, id
	var err error
	if p.prefill.payload, err = x.h.connector.Prefill(nil, try); err == nil {
		p.decode.payload, err = x.h.connector.Decode(nil, try, dispatch.Handover{})
	}
	if err != nil {
		p.unsent()
		x.route.prefill, x.route.decode = "", ""
		x.refuse(outcome.Prefill, outcome.Rejected, badBody(err.Error()))
		return pairServed, false
	}
	return pairServed, true
}

// engineUnknown ends a prefill leg whose pod's bootstrap server did not tell the
// engine's id: the leg has failed before it was sent.
func (p *pair) engineUnknown(err error) pairEnd {
	x := p.x
	p.prefill.err = err
	switch {
	case x.gone():
		p.prefillOut = outcome.ClientGone
	case p.apart.Context().Err() != nil, isTimeout(err) && !isDialError(err):
		p.prefillOut = outcome.TimedOut
	case isDialError(err):
		p.prefillOut = outcome.Unreachable
	default:
		p.prefillOut = outcome.Unusable
	}
	p.decode.lease.End(x.h.now(), outcome.Unsent)
	x.prefillEnded(p.prefill.lease, p.prefill, p.prefillOut)
	if p.prefillOut == outcome.ClientGone {
		x.finish(outcome.ClientGone, errClientGone)
		return pairServed
	}
	return pairPrefillFailed
}

// startPrefill starts the prefill leg and waits until its request has been made:
// from then on it reads nothing that the decode leg writes.
func (p *pair) startPrefill() {
	made := make(chan struct{})
	p.prefill.sent = sync.OnceFunc(func() { close(made) })
	p.prefill.lease.Start()
	go p.runPrefill()
	<-made
}

// runPrefill runs the prefill leg to its end.
func (p *pair) runPrefill() {
	defer close(p.over)
	defer p.prefill.sent()
	defer func() {
		// In this goroutine it would end the process, not the request.
		if p.prefillPanic = recover(); p.prefillPanic != nil && p.turn(pairBroken) {
			p.stopDecode()
		}
	}()
	x, l := p.x, p.prefill
	out, panicked := l.run(x.h.legs, p.got, p.apart, x.next)
	if panicked != nil && panicked != http.ErrAbortHandler {
		panic(panicked) // not the pod's doing
	}
	if _, out = x.readReply(p.apart.Context(), l, p.got, out); out == outcome.ClientGone && !x.gone() && p.given.Load() {
		out = outcome.Dropped
	}
	if out == outcome.Answered {
		l.firstByte()
	}
	p.prefillOut = out
	if (out.PrefillFailed() || out == outcome.Refused4xx) && p.turn(pairBroken) {
		p.stopDecode()
	}
	x.prefillEnded(l.lease, l, out)
}
