package calinix

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/calinix/caddy-calinix/chain"
	"github.com/calinix/caddy-calinix/fleet"
	"github.com/calinix/caddy-calinix/outcome"
	"github.com/calinix/caddy-calinix/prompt"
)

// policyBodyLimit is the largest body that a policy reads to find the prompt;
// what is longer is routed by load alone. Memory is not bounded over all
// requests here: that takes the calinix handler.
const policyBodyLimit = 8 << 20

// policyRequest is what a policy keeps of a request from one attempt to the
// next.
type policyRequest struct {
	policy  *Policy // whose attempts these are
	request prompt.Request
	chain   chain.Chain
	prompt  bool
	session uint64
	key     routingKey
	body    []byte
	whole   bool // body is the whole body
	tried   map[string]bool

	mu     sync.Mutex // guards lease against the end of the request
	lease  *fleet.Lease
	over   bool // the request is
	picked string
}

const policyVar = "calinix.policy"

// requestOf returns the state of r, which it makes at the first attempt.
func (p *Policy) requestOf(r *http.Request) *policyRequest {
	before, _ := caddyhttp.GetVar(r.Context(), policyVar).(*policyRequest)
	if before != nil && before.policy == p {
		return before
	}
	q := &policyRequest{policy: p, tried: map[string]bool{}}
	caddyhttp.SetVar(r.Context(), policyVar, q)
	context.AfterFunc(r.Context(), q.end)
	switch {
	case before != nil:
		// The request has come by another proxy, which has read the body.
		q.body, q.whole = before.body, before.whole
	case r.Body != nil && r.Body != http.NoBody && r.ContentLength != 0:
		q.read(r)
	}
	if q.whole {
		q.request.Parse(prompt.APIOf(r.Method, r.URL.Path), q.body)
		if q.request.OK {
			q.prompt = true
			q.chain.Reset(p.chain, q.request.Seed, q.request.Text)
		}
	}
	var headers routingHeaders
	headers.session, headers.from = sessionHeader(r.Header)
	session := sessionOf(headers, &q.request)
	q.session, q.key = session.hash, keyFor(p.strategy, session, &q.request)
	return q
}

// read reads r's body as far as the limit, and puts it back.
func (q *policyRequest) read(r *http.Request) {
	rest := r.Body
	body, err := io.ReadAll(io.LimitReader(rest, policyBodyLimit+1))
	switch {
	case err == nil && len(body) <= policyBodyLimit:
		q.body, q.whole = body, true
	case err == nil:
		r.Body = readCloser{io.MultiReader(bytes.NewReader(body), rest), rest}
	default:
		// The error comes again where it can be reported: at the transport.
		r.Body = readCloser{io.MultiReader(bytes.NewReader(body), failing{err}), rest}
	}
}

// rewind gives r the body anew for one attempt.
func (q *policyRequest) rewind(r *http.Request) {
	if !q.whole {
		return
	}
	r.ContentLength = int64(len(q.body))
	r.TransferEncoding = nil
	r.Body = nil
	if len(q.body) > 0 {
		r.Body = io.NopCloser(bytes.NewReader(q.body))
	}
}

func (q *policyRequest) hold(l *fleet.Lease, dial string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lease, q.picked = l, dial
	l.Start()
	if q.over {
		l.End(time.Now(), outcome.ClientGone)
	}
}

// end runs when the request is over, however it went.
func (q *policyRequest) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.over = true
	if q.lease != nil {
		q.lease.End(time.Now(), outcome.Answered)
	}
}

// readCloser reads from one place and closes another.
type readCloser struct {
	io.Reader
	io.Closer
}

// failing is a reader that only fails.
type failing struct{ err error }

// Read implements [io.Reader].
func (f failing) Read([]byte) (int, error) { return 0, f.err }
