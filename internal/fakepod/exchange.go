package fakepod

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"time"
)

// exchange is one request and its answer.
type exchange struct {
	pod    *Pod
	c      *conn
	rec    *Request // guarded by the pod's lock
	req    *http.Request
	w      wire
	ctx    context.Context // ends when the peer leaves or the pod goes
	cancel context.CancelCauseFunc
}

// wire is the answering side of an exchange in one protocol.
type wire interface {
	// head sends the status line and the header; length is -1 if unknown.
	head(status int, h http.Header, f Framing, length int) error
	// piece sends a piece of the body at once; of a piece that is to be cut,
	// only the first n bytes.
	piece(b []byte, n int) error
	// end ends the body.
	end() error
	// raw writes bytes outside of any protocol.
	raw(b []byte) error
	// proceed tells a peer that waits for it to send its body.
	proceed() error
	// cut breaks off.
	cut(how Cut)
}

// peerLeft is the cause of an exchange whose peer went away.
type peerLeft struct{ err error }

func (e peerLeft) Error() string { return "the peer left: " + e.err.Error() }
func (e peerLeft) Unwrap() error { return e.err }

// begin records a request whose head has been read.
func (p *Pod) begin(c *conn, onConn int, r *http.Request, w wire) *exchange {
	x := &exchange{pod: p, c: c, req: r, w: w}
	x.ctx, x.cancel = context.WithCancelCause(c.ctx)
	x.rec = &Request{
		Pod: p.Name, Probe: r.Method == http.MethodGet && r.URL.Path == p.opts.HealthPath,
		Conn: c.rec.N, OnConn: onConn, TLS: c.tls, Remote: c.tcp.RemoteAddr().String(), Time: time.Now(),
		Proto: r.Proto, Method: r.Method, Target: r.RequestURI, Path: r.URL.Path, Host: r.Host,
		Header: r.Header, ContentLength: r.ContentLength, TransferEncoding: r.TransferEncoding,
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	c.rec.Requests++
	p.bookOf(x.rec).add(x.rec, p.opts.Keep)
	if !x.rec.Probe {
		p.inFlight++
		p.maxSeen = max(p.maxSeen, p.inFlight)
	}
	p.notify()
	return x
}

// update changes the record and wakes the waiters.
func (x *exchange) update(f func(*Request)) {
	x.pod.mu.Lock()
	defer x.pod.mu.Unlock()
	f(x.rec)
	x.pod.notify()
}

// serve reads the body, answers and reports whether the connection may go on.
// watch notices the peer's leaving once the body has been read.
func (x *exchange) serve(watch func(left func(error)) (stop func())) (keep bool) {
	defer x.cancel(nil)
	script := x.pod.early(x.rec)
	if u, ok := script.(Unread); ok {
		if err := x.readBody(u.Bytes); err != nil {
			return x.finish(BadInput, err)
		}
		x.answer(u.Reply)
		return false // what is left of the body stands in the way of a next request
	}
	if err := x.readBody(-1); err != nil {
		return x.finish(BadInput, err)
	}
	stop := watch(func(err error) { x.cancel(peerLeft{err}) })
	defer stop()
	if script == nil {
		script = x.pod.late(x.rec)
	}
	return x.answer(x.choose(script))
}

// readBody reads the body, or limit bytes of it if limit is not negative.
func (x *exchange) readBody(limit int64) error {
	if limit != 0 {
		if err := x.w.proceed(); err != nil {
			return err
		}
	}
	var body bytes.Buffer
	var err error
	for step := int64(32 << 10); ; {
		if limit >= 0 {
			step = min(step, limit-int64(body.Len()))
		}
		if step == 0 {
			break
		}
		if !x.pod.gate(x.ctx) {
			err = context.Cause(x.ctx)
			break
		}
		if _, err = io.CopyN(&body, x.req.Body, step); err != nil {
			break
		}
	}
	whole := err == io.EOF
	if whole {
		err = nil
	}
	digest := sha256.Sum256(body.Bytes())
	x.update(func(q *Request) {
		q.Body, q.SHA256 = body.Bytes(), hex.EncodeToString(digest[:])
		q.BodyRead, q.BodyErr, q.BodyDone = whole, err, time.Now()
		q.Trailer = x.req.Trailer
		if b := x.pod.bookOf(q); b.generation == q.generation {
			b.read++
		}
	})
	return err
}

// answer carries the reply out and reports whether the connection may go on.
func (x *exchange) answer(r Reply) (keep bool) {
	end, err := x.act(&r)
	keep = x.finish(end, err)
	if end == CutByPod {
		x.w.cut(r.Cut)
		return false
	}
	return keep && !r.Close && r.Framing != UntilClose && r.Raw == nil && !x.req.Close
}

// act sends the answer up to its end or its cut. An error means that it went
// no further.
func (x *exchange) act(r *Reply) (End, error) {
	if !x.wait(r.Delay) {
		return 0, context.Cause(x.ctx)
	}
	if r.HoldAfter == 0 && !x.held(r.Hold) {
		return 0, context.Cause(x.ctx)
	}
	if r.Silent {
		<-x.ctx.Done()
		return 0, context.Cause(x.ctx)
	}
	if r.Cut != NoCut && r.At == BeforeHeaders && r.Raw == nil {
		return CutByPod, nil
	}
	if !x.pod.gate(x.ctx) {
		return 0, context.Cause(x.ctx)
	}
	if r.Raw != nil {
		x.update(func(q *Request) { q.FirstByte = time.Now() })
		if err := x.w.raw(r.Raw); err != nil {
			return 0, err
		}
		if r.Cut != NoCut {
			return CutByPod, nil
		}
		return Whole, nil
	}
	a := x.compose(r)
	x.update(func(q *Request) { q.Status, q.FirstByte = a.status, time.Now() })
	if err := x.w.head(a.status, a.header, a.framing, a.length); err != nil {
		return 0, err
	}
	return x.body(r, &a)
}

// body sends the pieces with their pauses up to the end or the cut.
func (x *exchange) body(r *Reply, a *answer) (End, error) {
	limit := a.limit(r)
	if limit == 0 {
		return CutByPod, nil
	}
	sent := 0
	for k, piece := range a.pieces {
		pause := a.gap(k)
		if k == 0 {
			pause = r.FirstChunk
		}
		if r.Pause > 0 && k == r.PauseAfter {
			pause += r.Pause
		}
		if k > 0 && k == r.HoldAfter && !x.held(r.Hold) || !x.wait(pause) {
			return 0, context.Cause(x.ctx)
		}
		n := len(piece)
		if limit >= 0 {
			n = min(n, limit-sent)
		}
		if err := x.w.piece(piece, n); err != nil {
			return 0, err
		}
		if sent += n; n == len(piece) {
			x.update(func(q *Request) { q.Sent = append(q.Sent, time.Now()) })
		}
		if sent == limit {
			return CutByPod, nil
		}
	}
	if r.Cut != NoCut { // a place beyond the end: before the end is told
		return CutByPod, nil
	}
	if !x.wait(r.LateEnd) {
		return 0, context.Cause(x.ctx)
	}
	if err := x.w.end(); err != nil {
		return 0, err
	}
	return Whole, nil
}

// held waits for the channel to be closed, if there is one. It is false if the
// exchange is over.
func (x *exchange) held(until <-chan struct{}) bool {
	if until == nil {
		return true
	}
	select {
	case <-until:
		return true
	case <-x.ctx.Done():
		return false
	}
}

// wait lets time pass, and while the pod is frozen, more. It is false if the
// exchange is over.
func (x *exchange) wait(d time.Duration) bool {
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-x.ctx.Done():
			return false
		}
	}
	return x.pod.gate(x.ctx)
}

// gate waits while the pod is frozen. It is false if ctx is over.
func (p *Pod) gate(ctx context.Context) bool {
	for {
		p.mu.Lock()
		frozen := p.frozen
		p.mu.Unlock()
		if frozen == nil {
			return ctx.Err() == nil
		}
		select {
		case <-frozen:
		case <-ctx.Done():
			return false
		}
	}
}

// finish records how the exchange ended. It is true if that was in good order.
func (x *exchange) finish(end End, err error) bool {
	p := x.pod
	p.mu.Lock()
	defer p.mu.Unlock()
	q := x.rec
	q.Ended = time.Now()
	cause := context.Cause(x.ctx)
	var left peerLeft
	switch {
	case err == nil:
		q.End = end
	case errors.Is(cause, errPodGone):
		q.End = PodGone
	case errors.As(cause, &left):
		q.End, q.ClosedEarly, q.ClosedAt, q.ClosedBy = PeerLeft, true, q.Ended, left.err
	case end == BadInput && !isGone(err):
		q.End = BadInput
	default: // reading or writing failed
		q.End, q.ClosedEarly, q.ClosedAt, q.ClosedBy = PeerLeft, true, q.Ended, err
	}
	if b := p.bookOf(q); b.generation == q.generation {
		b.ended++
	}
	if !q.Probe {
		p.inFlight--
	}
	p.notify()
	return err == nil
}
