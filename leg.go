package calinix

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/calinix/caddy-calinix/dispatch"
	"github.com/calinix/caddy-calinix/fleet"
	"github.com/calinix/caddy-calinix/observe"
	"github.com/calinix/caddy-calinix/outcome"
	"github.com/calinix/caddy-calinix/prompt"
)

// leg is one try at one pod: the body that it carries, the lease that counts
// it, and what was seen of it. Caddy's proxy runs it; the transport fills in
// what Caddy keeps to itself. A leg is used once.
type leg struct {
	kind    outcome.Leg
	target  *target
	lease   *fleet.Lease
	payload []byte                // the request's body on this leg; empty sends none
	retryOn func(status int) bool // nil: every status is final
	// answering, if not nil, is told when the answer's body has begun, and
	// nothing can be sent again.
	answering func()
	now       func() time.Time

	keepHost  bool      // the user's header_up sets Host
	requestID string    // X-Request-Id that the connector wants; "": as it is
	rename    *renaming // of the model in the answer; nil: none
	shown     *route    // what the answer says of the decision; nil: nothing

	// sent is called when the leg's request has been made, before it is sent;
	// may be nil.
	sent func()

	watch bool          // what the engine says of the prompt's tokens is of interest
	shape prompt.API    // of the answer
	meter observe.Meter // looks at the answer that a client gets
	said  observe.Usage // by the engine, when the leg has ended

	last *attempt // its latest round trip, an empty one before the first

	// Observed by the goroutine that serves the request.
	status  int   // the pod's, 0 before
	err     error // of the round trip
	bodyErr error // that ended the answer early
	begun   bool  // a byte of the answer's body was seen

	started, firstAt time.Time // of the leg and of that byte
}

// newLeg is a leg of the request to a pod, without a body.
func (x *exchange) newLeg(kind outcome.Leg, t *target, lease *fleet.Lease) *leg {
	return &leg{kind: kind, target: t, lease: lease, now: x.h.now, keepHost: x.h.keepHost, last: new(attempt)}
}

// attempt is what the goroutines of a connection tell of one round trip. Each
// round trip has its own: those of one that has failed may yet tell of it.
type attempt struct {
	connected atomic.Bool
	reused    atomic.Bool
	answering atomic.Bool  // a byte of an answer was seen, be it an informational one
	wroteAt   atomic.Int64 // unix ns when the request was fully written; 0 before
}

type legKey struct{}

// legFrom returns the leg that runs under ctx, nil without one.
func legFrom(ctx context.Context) *leg {
	l, _ := ctx.Value(legKey{}).(*leg)
	return l
}

func (l *leg) failed(err error)    { l.err = err }
func (l *leg) answered(status int) { l.status = status }
func (l *leg) broke(err error)     { l.bodyErr = err }

// firstByte tells the lease, once, that the answer's body has begun. Response
// headers are no sign: vLLM sends those of a stream before the prefill. Nor is the
// body of a refusal: for that no prompt was computed. What a prefill pod's answer
// is worth is known when it has been read.
func (l *leg) firstByte() {
	if !l.begun && l.status < http.StatusBadRequest {
		l.begun, l.firstAt = true, l.now()
		l.lease.FirstByte(l.firstAt)
		if l.answering != nil {
			l.payload = nil
			l.answering()
		}
	}
}

// mark sets the headers by which engines tell each other's requests, and their own
// ranks, apart. No header_up overrules them.
func (l *leg) mark(h http.Header) {
	if l.requestID != "" {
		h["X-Request-Id"] = []string{l.requestID}
	}
	if p := &l.target.peer; p.HasRank {
		h["X-Data-Parallel-Rank"] = []string{strconv.Itoa(p.Rank)}
	}
}

// bodyReader returns a new reader over the whole body; nil without one. Each
// round trip gets its own: the transport may still close an earlier one.
func (l *leg) bodyReader() io.ReadCloser {
	if len(l.payload) == 0 {
		return nil
	}
	p := new(payloadReader)
	p.left.Store(bytes.NewReader(l.payload))
	return p
}

// payloadReader lets go of the bytes when it is closed: the transport keeps the
// request for as long as the answer runs.
type payloadReader struct {
	left atomic.Pointer[bytes.Reader] // nil once closed
}

// Read implements [io.Reader].
func (p *payloadReader) Read(b []byte) (int, error) {
	if r := p.left.Load(); r != nil {
		return r.Read(b)
	}
	return 0, http.ErrBodyReadAfterClose
}

// WriteTo implements [io.WriterTo], which spares the transport a buffer.
func (p *payloadReader) WriteTo(w io.Writer) (int64, error) {
	if r := p.left.Load(); r != nil {
		return r.WriteTo(w)
	}
	return 0, http.ErrBodyReadAfterClose
}

// Close implements [io.Closer]. It may be called while the bytes are still read.
func (p *payloadReader) Close() error {
	p.left.Store(nil)
	return nil
}

// run sends the leg through proxy and returns how it ended. Until the pod has
// answered nothing but informational answers is written to w. The second value
// is what the proxy panicked with; the caller passes it on after its own
// clean-up.
func (l *leg) run(proxy *reverseproxy.Handler, w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) (out outcome.Outcome, panicked any) {
	l.started = l.now()
	ctx := context.WithValue(r.Context(), legKey{}, l)
	rec := &legWriter{ResponseWriterWrapper: &caddyhttp.ResponseWriterWrapper{ResponseWriter: w}, leg: l}
	defer func() {
		panicked = recover()
		out = l.outcome(r.Context(), panicked)
	}()
	if err := proxy.ServeHTTP(rec, r.WithContext(ctx), next); err != nil && l.err == nil && l.bodyErr == nil {
		// Not the round trip's doing: a response handler, or the request
		// could not be prepared.
		l.err = err
	}
	return
}

// outcome reads what was seen of the leg. client is the request's context,
// whose end means that the client left.
func (l *leg) outcome(client context.Context, panicked any) outcome.Outcome {
	gone := client.Err() != nil
	switch {
	case errors.Is(l.err, errStatusRetried):
		// It goes on at another pod, even if the client has left since.
		return outcome.OfStatus(l.kind, l.status)
	case panicked == http.ErrAbortHandler && l.bodyErr != nil && !gone:
		return outcome.Cut
	case panicked == http.ErrAbortHandler:
		// Or writing to the client failed before its context was cancelled.
		return outcome.ClientGone
	case gone && l.err != nil:
		return outcome.ClientGone
	case l.err == nil && panicked == nil, l.status != 0:
		// The pod answered; what failed, if anything, came after it.
		return outcome.OfStatus(l.kind, l.status)
	default:
		return outcome.OfBreak(outcome.Break{
			Connected: l.last.connected.Load() && !isDialError(l.err),
			// A pod that began to answer may have begun to work.
			BodyWritten: l.last.wroteAt.Load() != 0 || l.last.answering.Load(),
			TimedOut:    l.last.connected.Load() && isTimeout(l.err),
			ClientGone:  gone,
		})
	}
}

// pickedPod is the selection policy of the inner proxy: the pod has been
// picked already, and stands in the leg of the request's context. It also puts
// the leg's body into the request, which Caddy's clone took from the client.
type pickedPod struct{}

// Select implements [reverseproxy.Selector].
func (pickedPod) Select(_ reverseproxy.UpstreamPool, r *http.Request, _ http.ResponseWriter) *reverseproxy.Upstream {
	l := legFrom(r.Context())
	r.Body = l.bodyReader()
	r.ContentLength = int64(len(l.payload))
	r.TransferEncoding = nil
	r.GetBody = nil
	if r.Body == nil {
		// A non-nil body of length 0 would be sent chunked.
		r.Header.Del("Content-Length")
	}
	return l.target.upstream
}

// target is a pod as the transport sees it. Its Host is of its own: Caddy's
// table of hosts is keyed by address and knows nothing of our pods.
type target struct {
	scheme   string // http or https
	address  string // host:port, IPv6 in brackets
	upstream *reverseproxy.Upstream
	peer     dispatch.Peer
	engine   engineCache
}

func newTarget(scheme, address string, peer dispatch.Peer) *target {
	return &target{
		scheme:   scheme,
		address:  address,
		peer:     peer,
		upstream: &reverseproxy.Upstream{Host: new(reverseproxy.Host), Dial: address},
	}
}

// legRole is the role that a pod has in a leg of that kind.
func legRole(kind outcome.Leg) fleet.Role {
	return [...]fleet.Role{outcome.Single: fleet.Single, outcome.Prefill: fleet.Prefill, outcome.Decode: fleet.Decode}[kind]
}
