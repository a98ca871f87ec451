package calinix

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"sync"

	"github.com/caddyserver/caddy/v2"

	"github.com/calinix/caddy-calinix/health"
)

// prober sends the probes of a configuration. The placeholders in its headers
// are looked up for each probe, so that a token in a file ({file.…}) may change.
type prober struct {
	transport *podTransport
	endpoint  string
	headers   map[string]string
}

// Probe implements [health.Prober].
func (p *prober) Probe(ctx context.Context, pod health.Pod) health.Result {
	header, err := p.header()
	if err != nil {
		return health.Result{Kind: health.Failed, Detail: err.Error()}
	}
	probe := health.HTTP{Transport: p.transport, Endpoint: p.endpoint, Header: header}
	return probe.Probe(ctx, pod)
}

// header returns the headers of a probe. A placeholder that is unknown or empty
// is an error: the pod would refuse the probe, and nobody would know why.
func (p *prober) header() (http.Header, error) {
	out := make(http.Header, len(p.headers))
	repl := caddy.NewReplacer()
	for name, value := range p.headers {
		v, err := repl.ReplaceOrErr(value, true, true)
		if err != nil {
			return nil, fmt.Errorf(`health.headers.%s: %w (a plain brace is written \{)`, name, err)
		}
		out.Set(name, v)
	}
	return out, nil
}

// probe sends a probe. The error of a dial that failed is that of the system:
// Caddy's own hides what it was, and whether a port refused decides whether the
// pod keeps its index entries.
func (t *podTransport) probe(req *http.Request) (*http.Response, error) {
	var mu sync.Mutex // a dial may go on when the probe is over
	var dials []error
	trace := &httptrace.ClientTrace{ConnectDone: func(_, _ string, err error) {
		mu.Lock()
		defer mu.Unlock()
		dials = append(dials, err)
	}}
	resp, err := t.pooled.RoundTrip(forProbe(req.WithContext(httptrace.WithClientTrace(req.Context(), trace))))
	if isDialError(err) {
		mu.Lock()
		defer mu.Unlock()
		if cause := errors.Join(dials...); cause != nil { // nil: no address was found
			err = cause
		}
	}
	return resp, err
}

// forProbe gives a probe what Caddy's transport expects of a request: that of a
// proxied one has a replacer, which names the upstream.
func forProbe(r *http.Request) *http.Request {
	repl := caddy.NewReplacer()
	repl.Set("http.reverse_proxy.upstream.address", r.URL.Host)
	repl.Set("http.reverse_proxy.upstream.hostport", r.URL.Host)
	repl.Set("http.reverse_proxy.upstream.host", r.URL.Hostname())
	repl.Set("http.reverse_proxy.upstream.port", r.URL.Port())
	return r.WithContext(context.WithValue(r.Context(), caddy.ReplacerCtxKey, repl))
}
