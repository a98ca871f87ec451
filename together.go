package calinix

import (
	"context"

	"github.com/calinix/caddy-calinix/fleet"
	"github.com/calinix/caddy-calinix/index"
	"github.com/calinix/caddy-calinix/outcome"
)

// together serves the request with a connector whose legs are sent at once.
//
// The two legs of a try live and die together until the first byte of the decode
// leg's answer. Before it nothing has reached the client, not even headers, and
// the decode pod waits for the prefill pod: if the prefill leg fails, the decode
// leg is cancelled (its connection is closed, upon which engines abort), and only
// when it has ended are both sent again, with a fresh id. So no two generations
// run at a time for one request, and none is given up that somebody has begun to
// read. A decode leg that fails before its first byte takes the prefill leg along
// in the same way: its blocks are for the id of that try alone, and are freed
// when the prefill leg's connection ends or the engine's time limit passes. From
// the first byte on the prompt is known to be handed over; what becomes of the
// prefill leg then is counted and changes nothing.
func (x *exchange) together(prefill, decode *fleet.Lease) {
	t := &tries{x: x, end: func() {}}
	defer func() { t.end() }()
	t.begin()
	for prefill != nil {
		p := x.newPair(t, prefill, decode)
		switch p.run() {
		case pairServed:
			return
		case pairPrefillFailed:
			prefill, decode = t.afterPrefill(p)
		case pairDecodeFailed:
			prefill, decode = t.afterDecode(p)
		}
	}
}

// tries is what the tries at a request share.
type tries struct {
	x       *exchange
	ctx     context.Context // of the prefill legs of one decode try
	end     context.CancelFunc
	prefill int          // prefill legs that have failed since begin
	failed  index.Bitmap // their pods
	decode  int          // decode legs that have failed
	tried   index.Bitmap // their pods
}

// begin starts the time limit of a prefill leg as a whole.
func (t *tries) begin() {
	t.end()
	t.ctx, t.end = until(t.x.r.Context(), t.x.h.prefillTimeout)
	t.prefill, t.failed = 0, index.Bitmap{}
}

// afterPrefill follows a prefill leg that has failed. It returns the pods of the
// next try, or nil: then the request has ended.
func (t *tries) afterPrefill(p *pair) (prefill, decode *fleet.Lease) {
	x, out := t.x, p.prefillOut
	t.failed.Set(int(p.prefill.lease.Ref().Slot))
	t.prefill++
	if t.prefill < prefillTries && out.Retryable(outcome.Prefill, false) && t.ctx.Err() == nil {
		asks := x.askPair(t.failed, t.tried)
		if lease, err := x.begin(x.h.now(), &asks.prefill); err == nil {
			if prefill, decode = t.withDecode(lease, asks); prefill != nil {
				x.prefillRetried(out)
			}
			return prefill, decode
		}
	}
	if out.PrefillFailed() && x.h.decodeOnly {
		x.alone(out)
		x.serve(outcome.Decode, fleet.Decode, x.whole, nil)
		return nil, nil
	}
	x.prefillFailed(out, p.prefill, p.got, p.repl)
	return nil, nil
}

// withDecode picks the decode pod of a next try.
func (t *tries) withDecode(prefill *fleet.Lease, asks *pairAsks) (_, decode *fleet.Lease) {
	x := t.x
	asks.decode.Near = prefill.Ref()
	decode, err := x.begin(x.h.now(), &asks.decode)
	if err != nil {
		prefill.End(x.h.now(), outcome.Unsent)
		x.route.prefill, x.route.decode = "", ""
		x.refuse(outcome.Decode, outcome.NoPod, noPod(err))
		return nil, nil
	}
	return prefill, decode
}

// afterDecode follows a decode leg that has failed before its first byte and is to
// be tried at the pod of the pair's spare.
func (t *tries) afterDecode(p *pair) (prefill, decode *fleet.Lease) {
	x := t.x
	decode = p.spare.lease
	t.tried.Set(int(p.decode.lease.Ref().Slot))
	t.decode++
	t.begin()
	ask := x.askBeside(fleet.Prefill, index.Bitmap{}, decode)
	prefill, err := x.begin(x.h.now(), &ask)
	if err == nil {
		return prefill, decode
	}
	if x.h.decodeOnly {
		x.alone(outcome.NoPod)
		x.serve(outcome.Decode, fleet.Decode, x.whole, decode)
		return nil, nil
	}
	decode.End(x.h.now(), outcome.Unsent)
	x.route.prefill, x.route.decode = "", ""
	x.refuse(outcome.Prefill, outcome.NoPod, noPod(err))
	return nil, nil
}
