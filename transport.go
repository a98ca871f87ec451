package calinix

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/calinix/caddy-calinix/outcome"
)

// podTransport carries every leg to its pod: Caddy's own HTTP transport, plus
// what a balancer needs to know of a round trip and Caddy does not tell.
//
// It reports to the leg in the request's context (was the body sent whole, did
// a byte come back, what broke), picks http or https by the pod's URL, repeats a
// request once on a fresh connection of the same pod when a reused one turned
// out to be closed already, and drops x-calinix-* headers that a pod answers
// with, so that the ones a client sees are ours.
type podTransport struct {
	pooled *reverseproxy.HTTPTransport
	fresh  *reverseproxy.HTTPTransport // same settings, never reuses a connection
}

// RoundTrip implements [http.RoundTripper]. The request's context must carry a
// leg, or a probe's scheme in the URL.
func (t *podTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	l := legFrom(req.Context())
	if l == nil {
		return t.probe(req)
	}
	req.URL.Scheme = l.target.scheme
	if l.target.scheme == "https" && !l.keepHost {
		req.Host = l.target.address
	}
	// GetBody stays unset on purpose: with it net/http would itself repeat a
	// POST that carries an Idempotency-Key, however late the connection broke.
	req.GetBody = nil
	header := req.Header
	l.mark(header)
	if l.sent != nil {
		l.sent()
	}
	loggable(req) // Caddy logs it when this returns
	resp, err := t.pooled.RoundTrip(l.traced(req, header))
	if err != nil && l.last.stale(err) && req.Context().Err() == nil {
		resp, err = t.fresh.RoundTrip(l.traced(l.rewound(req), header))
	}
	if err != nil {
		err = tellable(err, l.last.answering.Load())
		l.failed(err)
		return nil, err
	}
	l.answered(resp.StatusCode)
	stripOwnHeaders(resp.Header)
	if l.retryOn != nil && l.retryOn(resp.StatusCode) {
		go drain(resp.Body)
		return nil, errStatusRetried
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		stripOwnHeaders(resp.Trailer) // names that were announced; values come with the end
		resp.Body = &legBody{ReadCloser: resp.Body, leg: l, resp: resp}
		l.listen(resp)
		if l.rename != nil {
			l.rename.apply(resp)
		}
	}
	return resp, nil
}

// errStatusRetried ends an attempt whose status is in retryStatus while another
// pod may still be tried. It never reaches a client.
var errStatusRetried = errors.New("status of the pod is to be retried elsewhere")

// maxDrain bounds what is read of an answer that nobody wants, so that its
// connection can be used again; a longer one is closed.
const maxDrain = 64 << 10

// drain reads an answer that nobody wants. It may take as long as the pod likes,
// but ends with the request.
func drain(body io.ReadCloser) {
	_, _ = io.CopyN(io.Discard, body, maxDrain)
	_ = body.Close()
}

// CloseIdleConnections closes connections that wait for a next request.
func (t *podTransport) CloseIdleConnections() {
	t.pooled.Transport.CloseIdleConnections()
}

// traced is req with this header, and with observers of one round trip.
func (l *leg) traced(req *http.Request, header http.Header) *http.Request {
	a := new(attempt)
	l.last = a
	trace := &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			a.reused.Store(info.Reused)
			a.connected.Store(true)
		},
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			if info.Err == nil {
				a.wroteAt.Store(time.Now().UnixNano())
			}
		},
		GotFirstResponseByte: func() { a.answering.Store(true) },
	}
	out := req.WithContext(httptrace.WithClientTrace(ownVars(req.Context()), trace))
	out.Header = header
	return out
}

// ownVars gives a round trip a table of Caddy's variables of its own. A dial may
// go on when its round trip has found another connection; Caddy's dialer reads
// the table in it, into which the request's next leg writes by then.
func ownVars(ctx context.Context) context.Context {
	vars, ok := ctx.Value(caddyhttp.VarsCtxKey).(map[string]any)
	if !ok {
		return ctx
	}
	return context.WithValue(ctx, caddyhttp.VarsCtxKey, maps.Clone(vars))
}

// legBody tells the leg of the first byte of an answer and of the error that
// ended it early.
type legBody struct {
	io.ReadCloser
	leg  *leg
	resp *http.Response
}

func (b *legBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.leg.meter.Write(p[:n])
	if n > 0 && b.leg.kind != outcome.Prefill {
		b.leg.firstByte()
	}
	switch {
	case errors.Is(err, io.EOF):
		stripOwnHeaders(b.resp.Trailer)
	case err != nil:
		err = tellable(err, true)
		b.leg.broke(err)
	}
	return n, err
}

// isDialError reports whether no connection to the pod could be made; nothing
// of the request has left then.
func isDialError(err error) bool {
	var dial reverseproxy.DialError
	var op *net.OpError // see podTransport.probe
	return errors.As(err, &dial) || errors.As(err, &op) && op.Op == "dial"
}

// isTimeout reports whether err is a time limit that passed.
func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}
