package calinix

import (
	"errors"
	"net/http"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/calinix/caddy-calinix/chain"
	"github.com/calinix/caddy-calinix/prompt"
)

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
	x.route.namespace = x.h.namespaces.of(req.Model, x.h.chain.BlockSize)
	x.route.policy = x.rules.strategy.String()
	return nil
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
			status: http.StatusServiceUnavailable, code: "no_memory_for_body", retryAfter: retryAfter,
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
		return badBody("the request body could not be read to its end")
	}
}

// errClientGone stands for a request whose client has left: there is nobody to
// answer.
var errClientGone = &apiError{status: statusClientClosed, code: "client_gone", message: "the client left"}
