package calinix

import (
	"context"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/calinix/caddy-calinix/dispatch"
	"github.com/calinix/caddy-calinix/fleet"
	"github.com/calinix/caddy-calinix/outcome"
)

// pair is one try at both legs, sent at once. The decode leg runs in the
// goroutine that serves the request, the prefill leg in one of its own, which
// ends before run does.
type pair struct {
	x               *exchange
	prefill, decode *leg
	spare           *spare // of the decode leg

	got    *capture        // of the prefill leg
	answer *heldAnswer     // of the decode leg
	repl   *caddy.Replacer // of the prefill leg
	apart  *http.Request   // the request as the prefill leg sees it
	ctx    context.Context // of the decode leg

	stopPrefill, stopDecode context.CancelFunc

	given atomic.Bool   // the prefill leg was given up
	over  chan struct{} // closed when the prefill leg has ended; then these hold:

	prefillOut   outcome.Outcome
	prefillPanic any

	mu    sync.Mutex
	state pairState // guarded by mu
}

// pairState is how far a pair is.
type pairState uint8

const (
	pairWaiting pairState = iota // nothing of the answer has reached the client
	pairBegun                    // something has, or is about to
	pairBroken                   // the prefill leg has failed before that
	pairLost                     // the decode leg has failed before that
)

// pairEnd is what follows from a pair.
type pairEnd uint8

const (
	pairServed        pairEnd = iota // the request has ended
	pairPrefillFailed                // the prefill leg failed, and nothing has reached the client
	pairDecodeFailed                 // the decode leg did, and the spare has a pod for another try
)

// newPair makes both legs for the pods.
func (x *exchange) newPair(t *tries, prefill, decode *fleet.Lease) *pair {
	p := &pair{x: x, over: make(chan struct{}), got: newCapture(dispatch.MaxReply)}
	tried := t.tried
	tried.Set(int(decode.Ref().Slot))
	p.spare = x.spare(outcome.Decode, fleet.Decode, t.decode, &tried)
	p.prefill = x.newLeg(outcome.Prefill, targetOf(prefill), prefill)
	p.decode = x.newLeg(outcome.Decode, targetOf(decode), decode)
	p.decode.retryOn, p.decode.shown = p.retryOn, x.shown()
	var prefillCtx context.Context
	prefillCtx, p.stopPrefill = context.WithCancel(t.ctx)
	p.ctx, p.stopDecode = context.WithCancel(x.r.Context())
	p.apart, p.repl = apart(prefillCtx, x.r)
	return p
}

// apart is r for a leg that runs beside another one: with placeholders and
// variables of its own, above those of the request.
func apart(ctx context.Context, r *http.Request) (*http.Request, *caddy.Replacer) {
	repl := caddy.NewEmptyReplacer()
	if all, ok := ctx.Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok {
		repl.Map(all.Get)
	}
	ctx = context.WithValue(ctx, caddy.ReplacerCtxKey, repl)
	if vars, ok := ctx.Value(caddyhttp.VarsCtxKey).(map[string]any); ok {
		ctx = context.WithValue(ctx, caddyhttp.VarsCtxKey, maps.Clone(vars))
	}
	return r.WithContext(ctx), repl
}

func (p *pair) is(s pairState) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state == s
}

// turn moves a waiting pair on to a state and reports whether it is there.
func (p *pair) turn(to pairState) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == pairWaiting {
		p.state = to
	}
	return p.state == to
}

// begin is called before anything of the decode leg's answer goes to the client.
// It reports whether it may. To a client that has left it does not: what the decode
// pod says then may be that the prefill pod's leg has ended.
func (p *pair) begin() bool {
	if p.x.gone() || !p.turn(pairBegun) {
		return false
	}
	if p.decode.status < http.StatusBadRequest {
		p.prefill.lease.FirstByte(p.x.h.now()) // it has computed the prompt, and is done with its chain
		p.decode.payload = nil
		p.x.answering()
	}
	return true
}

// retryOn says that an answer of the decode pod is not the client's: the prefill
// leg has failed, or its status may be tried elsewhere.
func (p *pair) retryOn(status int) bool {
	if status < http.StatusBadRequest {
		return false
	}
	return p.is(pairBroken) || p.x.h.retryStatus[status] && p.spare.take(outcome.OfStatus(outcome.Decode, status))
}

// linger is how long a prefill leg may go on when the decode leg's answer has
// come whole: its own is then due at any moment.
const linger = 100 * time.Millisecond

// run runs both legs to their ends.
func (p *pair) run() pairEnd {
	x := p.x
	defer p.stopDecode()
	defer p.stopPrefill()
	if x.gone() {
		p.unsent()
		x.refuse(outcome.Prefill, outcome.ClientGone, errClientGone)
		return pairServed
	}
	x.enroute(outcome.Prefill, p.prefill.lease)
	x.enroute(outcome.Decode, p.decode.lease)
	p.answer = &heldAnswer{w: x.w, pair: p, header: x.w.Header().Clone()}
	if end, ok := p.load(); !ok {
		return end
	}
	p.startPrefill()
	p.decode.lease.Start()
	out, panicked := p.decode.run(x.h.Proxy, p.answer, x.r.WithContext(p.ctx), x.next)
	own := panicked != nil && panicked != http.ErrAbortHandler
	if !own && p.decode.status != 0 && p.decode.err == nil && !x.gone() {
		p.answer.end() // it has no body, or was cut before it
	}
	begun := p.answer.sent
	if begun && panicked == nil && out == outcome.Answered {
		_ = http.NewResponseController(x.w).Flush() // the client need not wait for what follows
		p.await(linger)
	}
	lost := !begun && p.turn(pairLost)
	p.given.Store(true)
	p.stopPrefill()
	<-p.over

	if !begun && !lost && !x.gone() && (out.Retry(outcome.Decode) == outcome.RetryListed || out == outcome.ClientGone || out == outcome.Answered) {
		out = outcome.Dropped // of what the prefill leg's failure did to it
	}
	x.endLeg(outcome.Decode, p.decode.lease, p.decode, out)
	if x.h.traits.AsksEngine && (!begun || p.decode.status >= http.StatusInternalServerError) {
		p.prefill.target.engine.forget()
	}
	switch {
	case own:
		x.finish(out, nil)
		panic(panicked)
	case p.prefillPanic != nil:
		panic(p.prefillPanic) // not the pod's doing
	case begun:
		x.err = p.decode.err // of a response handler
		x.finish(out, nil)
		if panicked != nil {
			panic(panicked)
		}
		return pairServed
	case x.gone():
		x.finish(outcome.ClientGone, errClientGone)
		return pairServed
	case !lost:
		p.spare.giveBack()
		return pairPrefillFailed
	default:
		return p.decodeFailed(out)
	}
}

// decodeFailed follows a decode leg that has failed by itself, with nothing of its
// answer at the client.
func (p *pair) decodeFailed(out outcome.Outcome) pairEnd {
	x := p.x
	if p.spare.lease != nil || out.Retryable(outcome.Decode, false) && p.spare.take(out) {
		return pairDecodeFailed
	}
	if p.decode.status != 0 { // a response handler failed before it wrote anything
		x.err = p.decode.err
		x.finish(out, nil)
		return pairServed
	}
	x.finish(out, failure(outcome.Decode, out, p.decode.lease.Pod().ID))
	return pairServed
}

// unsent gives both pods back.
func (p *pair) unsent() {
	now := p.x.h.now()
	p.prefill.lease.End(now, outcome.Unsent)
	p.decode.lease.End(now, outcome.Unsent)
}

// await waits for the end of the prefill leg, but no longer than limit, and not for
// a client that has left.
func (p *pair) await(limit time.Duration) {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-p.over:
	case <-t.C:
	case <-p.x.r.Context().Done():
	}
}
