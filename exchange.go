package calinix

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/calinix/caddy-calinix/chain"
	"github.com/calinix/caddy-calinix/fleet"
	"github.com/calinix/caddy-calinix/index"
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

	read    time.Time // when the body had been read
	leases  []*fleet.Lease
	depth   int  // how much of the prompt the pod was known to hold that computes it
	late    bool // all pods are picked that are to be picked at first
	settled sync.Once
	said    observe.Usage // by the engine that computed the prompt
	heard   bool          // said.Cached is known, if only from silence
	traced  *traced       // for the log, if it wants to be a trace
	output  int64         // the answer's tokens, for that
	ended   outcome.Outcome
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

// What is expensive to make anew for each request.
var (
	requests = sync.Pool{New: func() any { return new(prompt.Request) }}
	chains   = sync.Pool{New: func() any { return new(chain.Chain) }}
)

// keptBlocks is the longest chain whose memory is kept for the next request.
const keptBlocks = 1 << 13

// heavies holds a place for each large body between being read and a pod being
// picked: in that time its prompt takes as much memory once more. More at once
// than there are processors would not be faster.
var heavies = make(chan struct{}, runtime.GOMAXPROCS(0))

// heavyBody is the size from which on a body is a large one.
const heavyBody = 256 << 10

// picked begins, beside the leg, what the decision has left undone: the rest of
// the prompt's chain is hashed and registered. Then what was needed to pick pods
// is given back. Nobody may use the chain before settle has returned.
func (x *exchange) picked() {
	switch {
	case x.late:
	case x.prompt && x.h.indexed:
		x.late = true
		go x.settle()
	default:
		x.late = true
		x.settle()
	}
}

// settle returns when what picked has begun is done; if nobody does it yet, it does
// it itself. Of a further pick the chain then tells enough.
func (x *exchange) settle() {
	if !x.late {
		return
	}
	x.settled.Do(func() {
		if x.prompt && x.h.indexed {
			for _, l := range x.leases {
				l.Complete(x.read)
			}
			x.chain.Finish()
			x.h.blocksHit.Add(float64(x.depth))
			x.h.blocksMissed.Add(float64(len(x.chain.Hashes()) - x.depth))
		}
		if x.prompt && x.h.logTrace {
			x.chain.Finish()
			x.trace()
		}
		x.parted()
	})
}

// parted gives back what was made of the body.
func (x *exchange) parted() {
	if x.request != nil {
		x.request.Reset()
		requests.Put(x.request)
		x.request = nil
	}
	if x.heavy {
		x.heavy = false
		<-heavies
	}
}

// answering gives back what no further leg needs: the answer has begun.
func (x *exchange) answering() {
	x.settle()
	x.payload, x.handed = nil, cargo{}
	if x.body != nil {
		x.body.release()
	}
	if x.chain != nil {
		if len(x.chain.Hashes()) <= keptBlocks {
			x.chain.Reset(chain.Options{}, 0, nil)
			chains.Put(x.chain)
		}
		x.chain = nil
	}
}

// prepare reads the request: routing headers, body, prompt. It is stage one of
// four; nothing has been asked of the fleet when it returns.
func (x *exchange) prepare() *apiError {
	if refused := x.takeHeaders(); refused != nil {
		return refused
	}
	// net/http has answered 100 at the first read of the body; a copy of the
	// header would make the pod send a second one.
	x.r.Header.Del("Expect")
	dropHTTP2Upgrade(x.r.Header)
	b, err := readBody(x.r, &x.h.state.bodies, x.h.bodies)
	if err != nil {
		return x.bodyError(err)
	}
	stripRoutingHeaders(x.r.Trailer)
	x.body, x.read = b, x.h.now()
	if len(b.decoded) >= heavyBody {
		select {
		case heavies <- struct{}{}:
			x.heavy = true
		case <-x.r.Context().Done():
			return errClientGone
		}
	}
	return x.understand()
}

// takeHeaders reads and removes what the client says about its routing.
func (x *exchange) takeHeaders() *apiError {
	headers, refused := takeRoutingHeaders(x.r.Header)
	x.told = headers
	x.route.requestID = headers.requestID
	if refused != nil {
		return refused
	}
	x.route.mode = x.h.modeFor(headers.mode)
	return nil
}

// understand finds in the body what the decision needs.
func (x *exchange) understand() *apiError {
	x.request, x.chain = requests.Get().(*prompt.Request), chains.Get().(*chain.Chain)
	req := x.request
	req.Parse(prompt.APIOf(x.r.Method, x.r.URL.Path), x.body.decoded)
	if refused := x.chooseModel(); refused != nil {
		return refused
	}
	session := sessionOf(x.told, req)
	x.session = session.hash
	x.key = keyFor(x.rules.strategy, session, req)
	x.asked = asked{api: req.API, sequences: x.h.sequences(req), stream: req.Stream}
	if req.OK {
		x.prompt = true
		x.asked.key, x.asked.tokens = req.Key(), req.Tokens()
		x.chain.Reset(x.h.chain, req.Seed, req.Text)
	}
	x.route.namespace = cacheNamespace(req.Model, x.h.chain.BlockSize)
	x.route.policy = x.rules.strategy.String()
	return nil
}

// choose takes a lease on the pod for the first leg of the request.
func (x *exchange) choose(role fleet.Role) (*fleet.Lease, error) {
	ask := x.ask(role, index.Bitmap{})
	lease, err := x.begin(x.h.now(), &ask)
	if err != nil {
		return nil, err
	}
	x.decided(lease)
	return lease, nil
}

// bodyError turns a failed read of the body into an answer.
func (x *exchange) bodyError(err error) *apiError {
	var tooLarge *http.MaxBytesError
	var handled caddyhttp.HandlerError
	switch {
	case x.r.Context().Err() != nil:
		return errClientGone
	case errors.Is(err, errBodyMemory):
		return &apiError{
			status: http.StatusServiceUnavailable, code: "no_memory_for_body", retryAfter: 1,
			message: "too many bytes of request bodies are held already, try again later",
		}
	case errors.Is(err, errBodyTooLarge), errors.As(err, &tooLarge),
		errors.As(err, &handled) && handled.StatusCode == http.StatusRequestEntityTooLarge:
		return &apiError{
			status: http.StatusRequestEntityTooLarge, code: "body_too_large",
			message: "the request body is larger than this server accepts",
		}
	case errors.As(err, &handled):
		return &apiError{status: handled.StatusCode, code: "bad_body", message: "the request body could not be read"}
	case x.r.ProtoMajor == 3:
		// A stream that the client has reset fails its reads before its context
		// ends, and HTTP/3 has no framing of bodies that could be at fault.
		return errClientGone
	default:
		return &apiError{
			status: http.StatusBadRequest, code: "bad_body",
			message: "the request body could not be read to its end",
		}
	}
}

// errClientGone stands for a request whose client has left: there is nobody to
// answer.
var errClientGone = &apiError{status: statusClientClosed, code: "client_gone", message: "the client left"}

// ask is the question to the fleet for one leg.
func (x *exchange) ask(role fleet.Role, tried index.Bitmap) fleet.Ask {
	a := fleet.Ask{
		Role:     role,
		Model:    x.model,
		Session:  x.session,
		Exclude:  tried,
		Strategy: x.rules.strategy,
		Weights:  x.rules.weights[role],
		TieBreak: x.h.tieBreak,
		TTFT:     x.h.ttft,
		// A prefill leg's answer comes when the prompt is computed.
		Whole: role != fleet.Prefill && !x.asked.stream,
	}
	a.Hash, a.HasHash = x.key.hash, x.key.from != keyNone
	a.VirtualNodes, a.LoadFactor = x.h.virtualNodes, x.h.loadFactor
	if x.prompt && x.h.indexed {
		a.Chain = x.chain
	}
	if x.prompt {
		a.Key, a.HasKey = x.asked.key, true
		a.Tokens = x.asked.tokens
	}
	return a
}

// begin takes a lease on a pod. Who drives the leg ends it; release makes sure
// of that.
func (x *exchange) begin(now time.Time, a *fleet.Ask) (*fleet.Lease, error) {
	x.settle()
	a.Later = !x.late
	l := new(fleet.Lease)
	if err := x.h.state.fleet.Begin(now, a, l); err != nil {
		return nil, err
	}
	x.leases = append(x.leases, l)
	x.rules.decided(l, x.key.from)
	return l, nil
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
		return
	}
	if e.status == statusClientClosed {
		// The status is for the access log; there is nobody to read it.
		x.w.WriteHeader(statusClientClosed)
		return
	}
	if x.h.showHeaders {
		x.route.set(x.w.Header())
	}
	x.placeholders() // of a decision that was not made, they are empty
	e.write(x.w)
}

// release gives back what the exchange holds, and writes the log fields. It
// runs also when the request ends in a panic.
func (x *exchange) release() {
	for _, l := range x.leases {
		l.End(x.h.now(), outcome.Unsent) // has no effect unless something has panicked
	}
	x.settle()
	if x.running != nil {
		x.running.Add(-1)
	}
	x.parted()
	x.answering()
	x.log()
}

// log adds what was decided to the access log's line. Never a prompt, never a
// session key, never a credential.
func (x *exchange) log() {
	extra, ok := x.r.Context().Value(caddyhttp.ExtraLogFieldsCtxKey).(*caddyhttp.ExtraLogFields)
	if !ok {
		return
	}
	extra.Add(zap.String("calinix_outcome", x.ended.LogName()))
	extra.Add(zap.String("calinix_mode", string(x.route.mode)))
	extra.Add(zap.String("calinix_request_id", x.route.requestID))
	for _, pod := range []struct{ field, id string }{
		{"calinix_pod", x.route.target},
		{"calinix_prefill_pod", x.route.prefill},
		{"calinix_decode_pod", x.route.decode},
	} {
		if pod.id != "" {
			extra.Add(zap.String(pod.field, pod.id))
		}
	}
	extra.Add(zap.Int("calinix_depth", x.route.depth))
	if x.heard {
		extra.Add(zap.Int64("calinix_prompt_tokens", x.said.Prompt))
		extra.Add(zap.Int64("calinix_cached_tokens", x.said.Cached))
	}
	if x.traced != nil {
		x.traced.Output = x.output
		extra.Add(zap.Any("calinix_trace", x.traced))
	}
}

// placeholders makes the decision available to the rest of a Caddy
// configuration, for instance to log_append or header.
func (x *exchange) placeholders() {
	repl, ok := x.r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	if !ok {
		return
	}
	repl.Set("http.calinix.pod", x.route.target)
	repl.Set("http.calinix.prefill_pod", x.route.prefill)
	repl.Set("http.calinix.decode_pod", x.route.decode)
	repl.Set("http.calinix.mode", string(x.route.mode))
	repl.Set("http.calinix.depth", x.route.depth)
}

// decided enters the time of the decision; l is the lease on the pod that computes
// the prompt.
func (x *exchange) decided(l *fleet.Lease) {
	x.h.decisionTime.Observe(x.h.now().Sub(x.read).Seconds())
	x.depth = l.Depth
}

// gone reports whether the client has left.
func (x *exchange) gone() bool { return x.r.Context().Err() != nil }

// until returns the request's context with a time limit; 0 is none.
func until(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if limit <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, limit)
}
