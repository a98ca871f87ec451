package calinix

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/calinix/caddy-calinix/fleet"
	"github.com/calinix/caddy-calinix/outcome"
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
	now     func() time.Time

	keepHost bool // the user's header_up sets Host

	// Observed by the connection's goroutines.
	connected atomic.Bool
	reused    atomic.Bool
	answering atomic.Bool
	wroteAt   atomic.Int64 // unix ns when the request was fully written; 0 before

	// Observed by the goroutine that serves the request.
	status  int   // the pod's, 0 before
	err     error // of the round trip
	bodyErr error // that ended the answer early
	begun   bool  // a byte of the answer's body was seen
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
// headers are no sign: vLLM sends those of a stream before the prefill.
func (l *leg) firstByte() {
	if !l.begun {
		l.begun = true
		l.lease.FirstByte(l.now())
	}
}

// bodyReader returns a new reader over the whole body; nil without one. Each
// round trip gets its own: the transport may still close an earlier one.
func (l *leg) bodyReader() io.ReadCloser {
	if len(l.payload) == 0 {
		return nil
	}
	return io.NopCloser(bytes.NewReader(l.payload))
}

// run sends the leg through proxy and returns how it ended. Until the pod has
// answered nothing is written to w. The second value is what the proxy panicked
// with once the answer had begun; the caller passes it on after its own
// clean-up.
func (l *leg) run(proxy *reverseproxy.Handler, w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) (out outcome.Outcome, panicked any) {
	ctx := context.WithValue(r.Context(), legKey{}, l)
	rec := &legWriter{ResponseWriterWrapper: &caddyhttp.ResponseWriterWrapper{ResponseWriter: w}}
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
	if panicked == nil && (l.err == nil || l.status != 0) && !(gone && l.err != nil) {
		// The pod answered; an error then is of what came after it.
		return outcome.OfStatus(l.kind, l.status)
	}
	return outcome.OfBreak(outcome.Break{
		Connected:   l.connected.Load() && !isDialError(l.err),
		BodyWritten: l.wroteAt.Load() != 0,
		Began:       l.status != 0,
		TimedOut:    l.status == 0 && l.connected.Load() && isTimeout(l.err),
		// The proxy panics when the pod broke off, or when the client could
		// not be written to; only the former leaves an error of the pod's.
		ClientGone: gone || panicked != nil && l.bodyErr == nil,
	})
}

// legWriter swallows the status 499 that Caddy's proxy writes by itself when
// the client has left: the handler decides what is written.
type legWriter struct {
	*caddyhttp.ResponseWriterWrapper
}

const statusClientClosed = 499

// WriteHeader implements [http.ResponseWriter].
func (w *legWriter) WriteHeader(status int) {
	if status == statusClientClosed {
		return
	}
	w.ResponseWriterWrapper.WriteHeader(status)
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
}

func newTarget(scheme, address string) *target {
	return &target{
		scheme:   scheme,
		address:  address,
		upstream: &reverseproxy.Upstream{Host: new(reverseproxy.Host), Dial: address},
	}
}

// legRole is the role that a pod has in a leg of that kind.
func legRole(kind outcome.Leg) fleet.Role {
	return [...]fleet.Role{outcome.Single: fleet.Single, outcome.Prefill: fleet.Prefill, outcome.Decode: fleet.Decode}[kind]
}
