package calinix

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/calinix/caddy-calinix/dispatch"
	"github.com/calinix/caddy-calinix/fleet"
	"github.com/calinix/caddy-calinix/index"
	"github.com/calinix/caddy-calinix/observe"
	"github.com/calinix/caddy-calinix/outcome"
	"github.com/calinix/caddy-calinix/prompt"
)

// disaggregate serves the request in dispatch mode: a prefill leg at one pod,
// whose answer reaches nobody, and a decode leg at another, whose answer the
// client gets. Requests that cannot be handed over go to one decode pod.
func (x *exchange) disaggregate() {
	// Each leg's body is a copy, of which there is one at a time, or two. One that
	// would not fit at all has the memory to itself.
	copies := int64(1)
	if x.h.traits.Concurrent {
		copies = 2
	}
	room := min(x.body.size()+copies*int64(len(x.body.decoded)), x.h.bodies.memory)
	if err := x.body.reserve(room, x.h.bodies); err != nil {
		x.refuse(x.leg(), outcome.Rejected, x.bodyError(err))
		return
	}
	if unfit := x.strip(); unfit != nil {
		x.refuse(outcome.Decode, outcome.Rejected, unfit)
		return
	}
	if x.asked.sequences == 0 {
		x.prompt = false // by load alone
		x.body.shrink(int64(len(x.payload)))
		x.serve(outcome.Decode, fleet.Decode, x.whole, nil)
		return
	}
	if alone := x.shortcut(); alone != nil {
		x.body.shrink(int64(len(x.payload)))
		x.serve(outcome.Decode, fleet.Decode, x.whole, alone)
		return
	}
	prefill, decode, refused := x.pair()
	if refused != nil {
		if refused.leg == outcome.Prefill && refused.out == outcome.NoPod && x.h.decodeOnly {
			x.alone(outcome.NoPod)
			x.serve(outcome.Decode, fleet.Decode, x.whole, nil)
			return
		}
		x.refuse(refused.leg, refused.out, refused.answer)
		return
	}
	x.picked()
	x.route.decode = decode.Pod().ID
	if x.h.traits.Concurrent {
		x.together(prefill, decode)
		return
	}
	x.inSequence(prefill, decode)
}

// maxSequences bounds the answers of a request that is handed over.
const maxSequences = 1024

// sequences is how many answers of text the request asks for, if it can be handed
// over, else 0: most connectors hand one prompt over for one answer.
func (h *Handler) sequences(r *prompt.Request) int {
	switch {
	case r.Generates:
		return 1
	case !h.traits.Batches || !r.OK || r.API != prompt.Chat && r.API != prompt.Completions,
		r.N < 1 || r.Prompts < 1 || r.N > maxSequences/r.Prompts:
		return 0
	default:
		return r.N * r.Prompts
	}
}

// strip makes the payload: the client's body without the members that only Calinix may set.
// Of a body that is not one JSON object, or has none of them, every byte stays.
//
// A compressed body goes on decompressed, whatever is in it: engines differ in
// what they make of a Content-Encoding, many look at the bytes alone, and what is
// passed on must be what was searched. So one that cannot be undone is refused.
func (x *exchange) strip() *apiError {
	if x.body.coded != nil {
		return badCoding(x.body.coded)
	}
	without, _, err := dispatch.Strip(nil, x.body.decoded)
	if err != nil {
		return badBody(err.Error())
	}
	if len(contentCodings(x.r.Header)) > 0 {
		x.r.Header.Del("Content-Encoding")
	}
	dropEngineAddresses(x.r.Header)
	x.body.raw, x.body.decoded = nil, nil // what follows is made of without
	x.payload = without
	return nil
}

// badCoding is the answer to a body whose Content-Encoding cannot be undone.
func badCoding(err error) *apiError {
	if unknown := unknownCoding(""); errors.As(err, &unknown) {
		return &apiError{status: http.StatusUnsupportedMediaType, code: "unsupported_content_encoding", message: err.Error()}
	}
	return badBody("the request body does not fit its Content-Encoding: " + err.Error())
}

// refusal is a leg for which there is no pod.
type refusal struct {
	leg    outcome.Leg
	out    outcome.Outcome
	answer *apiError
}

// pair picks both pods before anything is sent, so that no prefill is computed
// for which there is no decode pod.
func (x *exchange) pair() (prefill, decode *fleet.Lease, refused *refusal) {
	asks := x.askPair(index.Bitmap{}, index.Bitmap{})
	prefill, err := x.beginInTurn(&asks.prefill)
	if err != nil {
		out, answer := unserved(err)
		return nil, nil, &refusal{outcome.Prefill, out, answer}
	}
	now := x.h.now()
	asks.decode.Near = prefill.Ref()
	decode, err = x.begin(now, &asks.decode)
	if err != nil {
		prefill.End(now, outcome.Unsent)
		return nil, nil, &refusal{outcome.Decode, outcome.NoPod, noPod(err)}
	}
	x.decided(prefill)
	return prefill, decode, nil
}

// pairAsks are the questions to the fleet for both legs. Near is to be set in that for
// the decode leg when the prefill pod is known.
type pairAsks struct{ prefill, decode fleet.Ask }

// askPair asks for a prefill pod that is none of failed and a decode pod that is none
// of tried, which are to make a pair.
func (x *exchange) askPair(failed, tried index.Bitmap) *pairAsks {
	p := &pairAsks{prefill: x.ask(fleet.Prefill, failed), decode: x.ask(fleet.Decode, tried)}
	p.decode.HasNear = true
	p.prefill.Toward = &p.decode
	return p
}

// askBeside asks for the pod of one leg when that of the other one is known.
func (x *exchange) askBeside(role fleet.Role, tried index.Bitmap, other *fleet.Lease) fleet.Ask {
	a := x.ask(role, tried)
	a.Near, a.HasNear = other.Ref(), true
	a.Weights.Locality = x.rules.weights[fleet.Decode].Locality // of the pair, as when both are picked
	return a
}

// prefillTries is at how many pods a prefill leg is tried.
const prefillTries = 2

// newTry is a try at these pods, with an id of its own.
func (x *exchange) newTry(prefill, decode *fleet.Lease) *dispatch.Try {
	return &dispatch.Try{
		API: x.asked.api, Body: x.payload, Sequences: x.asked.sequences,
		Prefill: &targetOf(prefill).peer, Decode: &targetOf(decode).peer,
		ID: dispatch.NewID(), RequestID: x.r.Header.Get("X-Request-Id"),
	}
}

// until returns the request's context with a time limit; 0 is none.
func until(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if limit <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, limit)
}

// readReply judges the answer of a prefill leg and takes from it what the
// decode leg needs.
func (x *exchange) readReply(ctx context.Context, l *leg, got *capture, out outcome.Outcome) (dispatch.Handover, outcome.Outcome) {
	switch {
	case x.gone():
		return dispatch.Handover{}, outcome.ClientGone
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return dispatch.Handover{}, outcome.TimedOut
	case got.full:
		l.bodyErr = errCaptureFull
		return dispatch.Handover{}, outcome.Unusable
	case out != outcome.Answered:
		return dispatch.Handover{}, out
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
	return dispatch.Handover{}, outcome.Unusable
}

// prefillEnded counts a prefill leg that has ended.
func (x *exchange) prefillEnded(lease *fleet.Lease, l *leg, out outcome.Outcome) {
	x.endLeg(outcome.Prefill, lease, l, out)
	if out.PrefillFailed() {
		x.h.metrics.prefillFailures.WithLabelValues(x.h.state.name, out.LogName()).Inc()
	}
}

// prefillRetried counts that a prefill leg which ended so is tried once more.
func (x *exchange) prefillRetried(out outcome.Outcome) {
	x.h.metrics.retries.WithLabelValues(x.h.state.name, out.LogName()).Inc()
}

// prefillFailed ends a request whose prefill leg has failed for good. repl has the
// leg's placeholders.
func (x *exchange) prefillFailed(out outcome.Outcome, l *leg, got *capture, repl *caddy.Replacer) {
	x.route.decode = ""
	switch out {
	case outcome.Refused4xx:
		x.show()
		got.replay(x.w, x.h.answerRules(), repl)
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
}

// decodeOnlyMark shows in x-calinix-route-policy that a prefill leg was given
// up and the decode pod computes the prompt itself.
const decodeOnlyMark = ";decode-only"

// alone goes on without a prefill leg: a decode pod gets the whole request.
func (x *exchange) alone(why outcome.Outcome) {
	if why == outcome.NoPod {
		x.h.metrics.prefillFailures.WithLabelValues(x.h.state.name, why.LogName()).Inc()
	}
	if c := x.h.logger.Check(zap.WarnLevel, "serving without a prefill leg"); c != nil {
		c.Write(zap.Stringer("reason", why), zap.String("request_id", x.route.requestID))
	}
	x.route.mark = decodeOnlyMark
	x.route.prefill, x.prefilling = "", nil
	x.body.shrink(int64(len(x.payload)))
}
