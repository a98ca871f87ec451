package calinix

import (
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/calinix/caddy-calinix/chain"
	"github.com/calinix/caddy-calinix/config"
	"github.com/calinix/caddy-calinix/dispatch"
	"github.com/calinix/caddy-calinix/selection"
)

func init() {
	caddy.RegisterModule(new(Handler))
}

// Handler is a load balancer for LLM inference: it sends each request to the
// pod that has most of its prompt in its cache and least to do.
//
// It answers every request itself and never calls the next handler, but for the
// routes of a handle_response. These placeholders are set:
//
// Placeholder | Description
// ------------|---------------
// `{http.calinix.mode}` | How the request is served: `single` or `disaggregated`
// `{http.calinix.pod}` | The pod of a request in single mode
// `{http.calinix.prefill_pod}` | The pod of the prefill leg
// `{http.calinix.decode_pod}` | The pod of the decode leg
// `{http.calinix.depth}` | How many blocks of the prompt the pod was known to hold
//
// The placeholders of reverse_proxy, such as `{http.reverse_proxy.upstream.hostport}`,
// are set too. Access logs get the fields calinix_outcome, calinix_mode,
// calinix_request_id, calinix_pod (or calinix_prefill_pod and
// calinix_decode_pod) and calinix_depth.
//
// When a pod goes down or comes up again, the events `unhealthy` and `healthy`
// are emitted, with the data `balancer`, `pod`, `host` and `reason`.
type Handler struct {
	config.Balancer

	// Caddy's own proxy, which carries requests and answers: transport, headers,
	// handle_response, flush_interval and so on have their usual meaning. Its
	// upstreams, load_balancing and health_checks are Calinix's business and
	// must be left out.
	Proxy *reverseproxy.Handler `json:"reverse_proxy,omitempty"`

	effective *config.Balancer
	legs      *reverseproxy.Handler // sends prefill legs: Proxy without response handlers
	transport *podTransport
	app       *App
	claim     *claim
	state     *balancer
	metrics   *metrics
	logger    *zap.Logger // its lines name the balancer
	emit      func(event string, data map[string]any)
	now       func() time.Time

	bodies         bodyLimits
	chain          chain.Options
	indexed        bool // prompts are looked up and learnt
	rules          *rules
	tieBreak       selection.TieBreak
	models         map[string]*modelRoute // by the client's name
	passUnknown    bool                   // a model that no pod serves may go to any
	virtualNodes   int
	loadFactor     float64
	ttft           selection.TTFT
	defaultMode    mode
	hasSingle      bool
	hasDispatch    bool
	connector      dispatch.Connector
	traits         dispatch.Traits
	decodeOnly     bool
	minUncached    int64
	overload       *config.Overload // nil: nothing is held
	adaptive       bool
	prefillTimeout time.Duration
	retries        int
	retryShare     float64
	retryStatus    map[int]bool
	showHeaders    bool
	logTrace       bool
	keepHost       bool
	namespaces     namespaces

	decisionTime            prometheus.Observer
	blocksHit, blocksMissed prometheus.Counter

	provisioned bool
}

// CaddyModule returns the Caddy module information.
func (*Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.calinix", New: func() caddy.Module { return new(Handler) }}
}

// ServeHTTP implements [caddyhttp.MiddlewareHandler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	h.app.await(r.Context())
	h.claim.searched.await(r.Context())
	x := &exchange{h: h, w: w, r: r, next: next}
	defer x.release()
	x.serveRequest()
	return x.err
}

// modeFor returns the mode of a request that asked for wanted ("" for none). A
// mode for which there are no pods is ignored.
func (h *Handler) modeFor(wanted mode) mode {
	if wanted == "" {
		wanted = h.defaultMode
	}
	switch {
	case wanted == modeSingle && !h.hasSingle:
		return modeDispatch
	case wanted == modeDispatch && !h.hasDispatch:
		return modeSingle
	}
	return wanted
}

// Interface guards.
var (
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddy.CleanerUpper          = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
)
