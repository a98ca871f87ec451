package calinix

import (
	"errors"
	"net/http"
	"strconv"

	"go.uber.org/zap"

	"github.com/calinix/caddy-calinix/fleet"
	"github.com/calinix/caddy-calinix/index"
	"github.com/calinix/caddy-calinix/outcome"
)

// cargo is what one try of a leg carries beside what the client sent.
type cargo struct {
	payload   []byte
	requestID string // see leg
}

// loader gives the cargo of the next try of a leg, at the pod of the lease;
// before is how the try before ended, zero at the first. If nothing is to be sent
// any more, ok is false: the loader has ended the lease and the request.
type loader func(lease *fleet.Lease, before lastTry) (c cargo, ok bool)

// lastTry is how a try ended after which there is another one.
type lastTry struct {
	out    outcome.Outcome
	status int // the pod's, 0 without one
}

// whole is the loader of a leg that carries the client's request to every pod.
func (x *exchange) whole(*fleet.Lease, lastTry) (cargo, bool) { return cargo{payload: x.payload}, true }

// serve sends the request to one pod after another of role until one has
// answered or no further one may be tried, and answers the client. It is the
// whole of single mode, and the decode leg of dispatch mode. load says what the leg
// carries; lease, if it is held already, names the first pod.
func (x *exchange) serve(kind outcome.Leg, role fleet.Role, load loader, lease *fleet.Lease) {
	var tried index.Bitmap
	var before lastTry
	if lease == nil {
		var err error
		if lease, err = x.choose(role); err != nil {
			out, answer := unserved(err)
			x.refuse(kind, out, answer)
			return
		}
	}
	for try := 0; ; try++ {
		if x.gone() {
			lease.End(x.h.now(), outcome.Unsent)
			x.refuse(kind, outcome.ClientGone, errClientGone)
			return
		}
		tried.Set(int(lease.Ref().Slot))
		c, ok := load(lease, before)
		if !ok {
			return
		}
		x.enroute(kind, lease)
		x.picked()
		next := x.spare(kind, role, try, &tried)
		l := x.newLeg(kind, targetOf(lease), lease)
		l.payload, l.requestID = c.payload, c.requestID
		l.answering, l.rename, l.shown = x.answering, x.renaming, x.shown()
		l.watch, l.shape = x.watches(kind) || x.h.logTrace, x.asked.api
		l.retryOn = func(status int) bool {
			return x.h.retryStatus[status] && next.take(outcome.OfStatus(kind, status))
		}
		lease.Start()
		out, panicked := l.run(x.h.Proxy, x.w, x.r, x.next)
		if panicked != nil {
			x.endLeg(kind, lease, l, out)
			x.finish(out, nil)
			panic(panicked)
		}
		if errors.Is(l.err, errStatusRetried) || out.Retryable(kind, false) && !x.gone() && next.take(out) {
			x.endLeg(kind, lease, l, out)
			lease, before = next.lease, lastTry{out, l.status}
			continue
		}
		x.endLeg(kind, lease, l, out)
		switch {
		case l.status == 0:
			x.finish(out, failure(kind, out, lease.Pod().ID))
		case l.err != nil:
			// A route of handle_response failed: what follows is the site's.
			x.err = l.err
			x.finish(out, nil)
		default:
			if l.status != http.StatusSwitchingProtocols {
				x.flushEnd()
			}
			x.finish(out, nil)
		}
		return
	}
}

// flushEnd writes out the end of an answer whose length was not known. Without it
// an HTTP/1 answer whose last byte came more than a minute before its end is cut: the
// server's expired write deadline is armed anew only by a write. An answer of known
// length ends with its last byte; written out now it would be whole for the client
// before the connection is ready for the next request, which is lost if the server
// closes the connection for a reload in between.
func (x *exchange) flushEnd() {
	if x.w.Header().Get("Content-Length") == "" {
		_ = http.NewResponseController(x.w).Flush()
	}
}

// endLeg settles everything that follows from how a leg ended.
func (x *exchange) endLeg(kind outcome.Leg, lease *fleet.Lease, l *leg, out outcome.Outcome) {
	now := x.h.now()
	ref, id := lease.Ref(), lease.Pod().ID
	x.compare(now, kind, lease, l, out)
	x.measure(lease, l, out)
	if out == outcome.ClientGone && !l.last.connected.Load() {
		lease.End(now, outcome.Unsent) // the pod has seen nothing of the prompt
	} else {
		lease.End(now, out)
	}
	x.h.state.failed(now, ref, out)
	x.h.count(x.route.mode, kind, id, out.MetricCode(kind, l.status))
	if out.PassiveFailure() {
		if c := x.h.logger.Check(zap.WarnLevel, "leg failed"); c != nil {
			c.Write(zap.String("pod", id), zap.Stringer("outcome", out), zap.Int("status", l.status),
				zap.String("request_id", x.route.requestID), zap.Error(l.cause()))
		}
	}
}

// cause is the error that ended the leg, nil if it was the pod's status.
func (l *leg) cause() error {
	if l.bodyErr != nil {
		return l.bodyErr
	}
	return l.err
}

// enroute notes the picked pod and writes the routing headers for it. The client
// gets them with the answer's head.
func (x *exchange) enroute(kind outcome.Leg, lease *fleet.Lease) {
	id := lease.Pod().ID
	switch kind {
	case outcome.Single:
		x.route.target = id
		x.route.decided(lease)
	case outcome.Decode:
		x.route.decode = id
		if x.route.prefill == "" {
			x.route.decided(lease)
		}
	case outcome.Prefill:
		x.route.prefill, x.prefilling = id, lease
		x.route.decided(lease)
	}
	x.route.set(x.r.Header)
	x.placeholders()
}

// decided takes over what the headers say of a decision.
func (rt *route) decided(l *fleet.Lease) {
	rt.hit, rt.depth = l.Depth > 0, l.Depth
	rt.policy = l.Strategy.String()
}

// spare is the pod that takes the request over if the present one fails. It is
// picked only when it is needed, and before what the present one answered is
// thrown away; that of a decode leg near the prefill pod, as the first one was.
type spare struct {
	x     *exchange
	kind  outcome.Leg
	role  fleet.Role
	tried *index.Bitmap
	left  int // further tries that the configuration allows
	lease *fleet.Lease
}

func (x *exchange) spare(kind outcome.Leg, role fleet.Role, try int, tried *index.Bitmap) *spare {
	return &spare{x: x, kind: kind, role: role, tried: tried, left: x.h.retries - try}
}

// take picks the spare pod, or reports that there is none to be had: no tries
// are left, the retry budget is spent, or no other pod is free.
func (s *spare) take(why outcome.Outcome) bool {
	if s.lease != nil {
		return true
	}
	if s.left <= 0 {
		return false
	}
	now := s.x.h.now()
	ask := s.x.ask(s.role, *s.tried)
	if s.role == fleet.Decode && s.x.prefilling != nil {
		ask = s.x.askBeside(s.role, *s.tried, s.x.prefilling)
	}
	lease, err := s.x.begin(now, &ask)
	if err != nil {
		return false
	}
	if !s.x.h.state.budget.Take(now, s.x.h.retryShare) {
		lease.End(now, outcome.Unsent)
		return false
	}
	s.lease = lease
	s.x.h.metrics.retries.WithLabelValues(s.x.h.state.name, why.LogName()).Inc()
	return true
}

// giveBack ends the hold on a spare pod that is not needed after all.
func (s *spare) giveBack() {
	if s.lease != nil {
		s.lease.End(s.x.h.now(), outcome.Unsent)
	}
}

// retryAfter is what a client is told to wait when no pod is free, in seconds.
const retryAfter = 1

// noPod is the answer when the fleet had no pod for a leg.
func noPod(err error) *apiError {
	return &apiError{
		status: http.StatusServiceUnavailable, code: "no_pod_available", retryAfter: retryAfter,
		message: err.Error(),
	}
}

// failure is the answer for a leg that ended without one of the pod's.
func failure(kind outcome.Leg, out outcome.Outcome, pod string) *apiError {
	status := out.Status(kind, 0)
	e := &apiError{status: status, code: "pod_" + out.LogName()}
	switch out {
	case outcome.ClientGone:
		return errClientGone
	case outcome.TimedOut:
		e.message = "pod " + strconv.Quote(pod) + " did not answer in time"
	case outcome.Unreachable:
		e.message = "pod " + strconv.Quote(pod) + " cannot be reached"
	case outcome.LostSending, outcome.LostWaiting:
		e.message = "the connection to pod " + strconv.Quote(pod) + " was lost before its answer"
	case outcome.Unusable:
		e.message = "pod " + strconv.Quote(pod) + " answered with what cannot be used"
	default:
		e.message = "pod " + strconv.Quote(pod) + " failed"
	}
	if e.status == 0 {
		e.status = http.StatusBadGateway
	}
	return e
}
