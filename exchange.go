package calinix

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/calinix/caddy-calinix/chain"
	"github.com/calinix/caddy-calinix/fleet"
	"github.com/calinix/caddy-calinix/observe"
	"github.com/calinix/caddy-calinix/outcome"
	"github.com/calinix/caddy-calinix/prompt"
)

// exchange is one request on its way through Calinix: what was read of it, what
// was decided, and how it ended. It belongs to the goroutine that serves the
// request.
type exchange struct {
	h    *Handler
	w    http.ResponseWriter
	r    *http.Request
	next caddyhttp.Handler

	body    *body
	payload []byte // what the legs' bodies are made of, or the one leg's
	handed  cargo  // in dispatch mode: what the decode leg carries
	asked   asked
	// request and chain are pooled. The request is given back when the pods are
	// picked, the chain when the answer has begun; both are nil then.
	request  *prompt.Request
	chain    *chain.Chain
	heavy    bool // holds a place in heavies
	route    route
	rules    *rules
	model    []byte         // that pods must serve, as they name it; nil: any pod will do
	running  *atomic.Int64  // counts the requests of the model; nil: nobody asks
	renaming *renaming      // of the model in the answer; nil: none
	told     routingHeaders // what the client's headers say
	session  uint64         // hash of the session key, 0 without one
	key      routingKey
	prompt   bool // the chain is that of a prompt

	read   time.Time     // when the body had been read
	held   time.Duration // for which the request then waited for a pod; 0: it did not
	leases []*fleet.Lease
	first  fleet.Lease     // one of them; most requests take no other
	room   [2]*fleet.Lease // of leases
	known  placeholders
	// offered says that the request's replacer knows them: the decision is made.
	offered bool
	// prefilling is the latest prefill leg, nil without one.
	prefilling *fleet.Lease
	depth      int  // how much of the prompt the pod was known to hold that computes it
	late       bool // all pods are picked that are to be picked at first
	settled    sync.Once
	said       observe.Usage // by the engine that computed the prompt
	heard      bool          // said.Cached is known, if only from silence
	traced     *traced       // for the log, if it wants to be a trace
	output     int64         // the answer's tokens, for that
	ended      outcome.Outcome
	// handedOverAt is when the prefill leg had answered.
	handedOverAt time.Time
	err          error // of a response handler, for the site's error routes
}

// asked is what the legs need to know of what the client asked for.
type asked struct {
	api       prompt.API
	sequences int // answers of text that a prompt may be handed over for, 0: none
	stream    bool
	key       uint64 // of the prompt
	tokens    int    // of the prompt
}

// serveRequest takes the request through its stages. Everything that a client
// can see of the request is written below here.
func (x *exchange) serveRequest() {
	x.ended = outcome.Rejected
	if refused := x.prepare(); refused != nil {
		x.refuse(x.leg(), outcome.Rejected, refused)
		return
	}
	if x.gone() {
		x.refuse(x.leg(), outcome.ClientGone, errClientGone)
		return
	}
	if x.listsModels() {
		x.listModels()
		return
	}
	x.h.state.budget.Count(x.read)
	if x.route.mode == modeDispatch {
		x.disaggregate()
		return
	}
	x.payload = x.body.raw
	x.serve(outcome.Single, legRole(outcome.Single), x.whole, nil)
}

// leg is the leg under which a request is counted that ended before one was
// begun.
func (x *exchange) leg() outcome.Leg {
	if x.h.modeFor(x.route.mode) == modeDispatch {
		return outcome.Prefill
	}
	return outcome.Single
}

// refuse answers with an error of ours and counts the leg that was not sent.
func (x *exchange) refuse(kind outcome.Leg, out outcome.Outcome, e *apiError) {
	if e.status == statusClientClosed {
		out = outcome.ClientGone
	}
	x.h.count(x.route.mode, kind, "", out.MetricCode(kind, e.status))
	x.finish(out, e)
}

// finish notes the outcome of the request, and answers with e if no answer was
// begun.
func (x *exchange) finish(out outcome.Outcome, e *apiError) {
	x.ended = out
	if e == nil {
		if x.err != nil {
			x.show() // what follows is the site's to write
		}
		return
	}
	if e.status == statusClientClosed {
		// The status is for the access log; there is nobody to read it.
		x.w.WriteHeader(statusClientClosed)
		return
	}
	x.show()
	x.placeholders() // of a decision that was not made, they are empty
	e.write(x.w)
}

// gone reports whether the client has left.
func (x *exchange) gone() bool { return x.r.Context().Err() != nil }
