package calinix

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"golang.org/x/net/http2"

	"github.com/calinix/caddy-calinix/outcome"
)

// staleWindow is how long after a request was fully written on a reused
// connection the connection's end, with no byte of an answer seen, still counts
// as the race between our write and the engine's idle timeout. Later than that
// the engine may have begun to work, and a repeat could generate twice.
const staleWindow = 100 * time.Millisecond

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

// newPodTransport loads Caddy's HTTP transport from raw (JSON of
// http.reverse_proxy.transport.http, may be empty) twice. withTLS makes https
// pods possible where raw has no tls settings of its own.
func newPodTransport(ctx caddy.Context, raw json.RawMessage, withTLS bool) (*podTransport, error) {
	settings, err := transportSettings(raw, withTLS)
	if err != nil {
		return nil, err
	}
	pooled, err := loadTransport(ctx, settings)
	if err != nil {
		return nil, err
	}
	settings["keep_alive"] = map[string]any{"enabled": false}
	fresh, err := loadTransport(ctx, settings)
	if err != nil {
		return nil, err
	}
	return &podTransport{pooled: pooled, fresh: fresh}, nil
}

// Defaults where the user said nothing. Caddy keeps idle connections for two
// minutes, but vLLM (VLLM_HTTP_TIMEOUT_KEEP_ALIVE) and llama.cpp close theirs
// after 5 s; one stream a connection makes Caddy's 32 idle ones too few for a
// pod; a transport that adds Accept-Encoding would change the pod's answer.
const (
	defaultDialTimeout      = 3 * time.Second // Caddy's own, which it does not tell
	defaultKeepAlive        = 4 * time.Second
	defaultIdleConnsPerHost = 1024
)

// transportSettings merges our defaults below the user's settings.
func transportSettings(raw json.RawMessage, withTLS bool) (map[string]any, error) {
	settings := map[string]any{}
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &settings); err != nil {
			return nil, fmt.Errorf("decoding transport: %w", err)
		}
	}
	if p, ok := settings["protocol"]; ok && p != "http" {
		return nil, fmt.Errorf("transport %q: pods speak HTTP, want transport http", p)
	}
	delete(settings, "protocol")
	if _, ok := settings["proxy_protocol"]; ok {
		return nil, errors.New("transport: proxy_protocol is not supported: probes have no client to tell of; X-Forwarded-For has the client's address")
	}
	setDefault(settings, "compression", false)
	setDefault(settings, "versions", []string{"1.1"})
	if withTLS {
		setDefault(settings, "tls", map[string]any{})
	}
	if tls, ok := settings["tls"].(map[string]any); ok {
		// A pod that accepts and never shakes hands is as gone as one that
		// never accepts; without a limit its requests would wait for ever.
		setDefault(settings, "dial_timeout", int64(defaultDialTimeout))
		setDefault(tls, "handshake_timeout", settings["dial_timeout"])
	}
	keep, ok := settings["keep_alive"].(map[string]any)
	if !ok {
		keep = map[string]any{}
		settings["keep_alive"] = keep
	}
	setDefault(keep, "idle_timeout", int64(defaultKeepAlive))
	setDefault(keep, "max_idle_conns_per_host", defaultIdleConnsPerHost)
	return settings, nil
}

func setDefault(m map[string]any, key string, value any) {
	if _, ok := m[key]; !ok {
		m[key] = value
	}
}

func loadTransport(ctx caddy.Context, settings map[string]any) (*reverseproxy.HTTPTransport, error) {
	raw, err := json.Marshal(settings)
	if err != nil {
		return nil, fmt.Errorf("encoding transport: %w", err)
	}
	mod, err := ctx.LoadModuleByID("http.reverse_proxy.transport.http", raw)
	if err != nil {
		return nil, fmt.Errorf("loading transport: %w", err)
	}
	return mod.(*reverseproxy.HTTPTransport), nil
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

// shown are the headers whose values a log line about a leg may have, beside ours.
// Every other one may be a credential, or a session's key, under a name that only
// its sender knows; of those the line has the name.
var shown = map[string]bool{
	"Accept": true, "Accept-Encoding": true, "Accept-Language": true, "Connection": true, "Content-Encoding": true,
	"Content-Length": true, "Content-Type": true, "Origin": true, "Te": true, "Traceparent": true, "Upgrade": true,
	"User-Agent": true, "Via": true, "X-Forwarded-For": true, "X-Forwarded-Host": true, "X-Forwarded-Proto": true,
	"X-Request-Id": true,
}

// hidden stands for the values of the others, as Caddy writes it.
var hidden = []string{"REDACTED"}

// loggable makes req what Caddy's log lines about this round trip may have of it.
func loggable(req *http.Request) {
	req.RequestURI, _, _ = strings.Cut(req.RequestURI, "?") // some put their key into the query
	header, copied := req.Header, false
	for name := range header {
		if shown[name] || isOwnHeader(name) {
			continue
		}
		if !copied {
			req.Header, copied = maps.Clone(header), true
		}
		req.Header[name] = hidden
	}
}

// notHTTP is an error about an answer that breaks HTTP's rules. What net/http
// says of it quotes the answer, which no log line may have.
type notHTTP struct{ error }

// Error implements error.
func (notHTTP) Error() string { return "the pod's answer is not HTTP" }

// Unwrap returns the error.
func (e notHTTP) Unwrap() error { return e.error }

// tellable is err as a log line may have it. answering says that a part of an
// answer had come.
func tellable(err error, answering bool) error {
	var op *net.OpError
	var stream http2.StreamError
	switch {
	case !answering, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, context.Canceled),
		isTimeout(err), errors.As(err, &op), errors.As(err, &stream):
		return err
	}
	return notHTTP{err}
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

// stale reports whether err is the end of a reused connection that the pod had
// closed before, or while, the request was written. A stream of an HTTP/2
// connection that the pod has reset is not: the pod has the request, unless it
// says that it refused the stream.
func (a *attempt) stale(err error) bool {
	if !a.reused.Load() || a.answering.Load() || isDialError(err) || isTimeout(err) {
		return false
	}
	var stream http2.StreamError
	if errors.As(err, &stream) && stream.Code != http2.ErrCodeRefusedStream {
		return false
	}
	wrote := a.wroteAt.Load()
	return wrote == 0 || time.Since(time.Unix(0, wrote)) < staleWindow
}

// rewound gives req a fresh reader over the leg's body.
func (l *leg) rewound(req *http.Request) *http.Request {
	again := req.WithContext(req.Context())
	again.Body = l.bodyReader()
	return again
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
	return errors.As(err, &dial)
}

// isTimeout reports whether err is a time limit that passed.
func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}
