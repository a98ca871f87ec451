package calinix

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/headers"
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
	logger    *zap.Logger
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
	adaptive       bool
	prefillTimeout time.Duration
	retries        int
	retryShare     float64
	retryStatus    map[int]bool
	showHeaders    bool
	logTrace       bool
	keepHost       bool

	decisionTime            prometheus.Observer
	blocksHit, blocksMissed prometheus.Counter

	provisioned bool
}

// CaddyModule returns the Caddy module information.
func (*Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.calinix", New: func() caddy.Module { return new(Handler) }}
}

// Provision sets the handler up: it checks the configuration, prepares Caddy's
// proxy and takes a reference to the state of the balancer of its name.
func (h *Handler) Provision(ctx caddy.Context) error {
	h.logger = ctx.Logger()
	h.now = wallClock
	h.metrics = shared
	if err := h.Balancer.Validate(); err != nil {
		return err
	}
	for _, w := range h.Warnings() {
		h.logger.Warn(w.Error())
	}
	h.effective = h.Defaults()
	if err := h.settle(); err != nil {
		return err
	}
	if err := h.provisionProxy(ctx); err != nil {
		return err
	}
	events, err := ctx.App("events")
	if err != nil {
		return fmt.Errorf("loading the events app: %w", err)
	}
	h.emit = func(event string, data map[string]any) { events.(*caddyevents.App).Emit(ctx, event, data) }
	app, err := ctx.App("calinix")
	if err != nil {
		return fmt.Errorf("loading the calinix app: %w", err)
	}
	h.app = app.(*App)
	if h.claim, err = h.app.claim(ctx, h); err != nil {
		return err
	}
	h.state = h.claim.state
	for _, route := range h.models {
		if route.maxConns > 0 {
			route.running = h.state.models.of(route.name)
		}
	}
	name := h.effective.Name
	h.decisionTime = h.metrics.decisions.WithLabelValues(name)
	h.blocksHit = h.metrics.prefixBlocks.WithLabelValues(name, "hit")
	h.blocksMissed = h.metrics.prefixBlocks.WithLabelValues(name, "miss")
	return nil
}

// settle turns the effective configuration into what a request needs of it.
func (h *Handler) settle() (err error) {
	e := h.effective
	if h.rules, err = newRules(e.Strategy, e.Weights, h.metrics, e.Name); err != nil {
		return err
	}
	if h.tieBreak, err = selection.ParseTieBreak(e.TieBreak); err != nil {
		return err
	}
	if h.models, err = h.modelRoutes(); err != nil {
		return err
	}
	h.passUnknown = e.UnknownModel == "pass"
	h.virtualNodes, h.loadFactor = *e.Hashing.VirtualNodes, *e.Hashing.LoadFactor
	h.ttft = selection.TTFT{
		PrefillRate: *e.ExpectedTTFT.PrefillRate,
		Gamma:       *e.ExpectedTTFT.Gamma, Theta: *e.ExpectedTTFT.Theta,
		Eta: *e.ExpectedTTFT.Eta, Replicas: *e.ExpectedTTFT.Replicas,
	}
	h.bodies = bodyLimits{maxBytes: *e.MaxBodyBytes, memory: *e.BodyMemoryBytes}
	h.chain = chain.Options{BlockSize: *e.BlockSize, MaxTokenBytes: *e.MaxTokenBytes}
	h.indexed = *e.CacheRegistry.Enabled
	h.hasSingle, h.hasDispatch = e.HasSingle(), e.HasDispatch()
	h.defaultMode = modeSingle
	if e.Mode == "dispatch" {
		h.defaultMode = modeDispatch
	}
	h.retries = *e.Retries
	h.retryShare = *e.RetryBudget
	h.retryStatus = make(map[int]bool, len(e.RetryStatus))
	for _, status := range e.RetryStatus {
		h.retryStatus[status] = true
	}
	h.showHeaders = *e.ResponseHeaders
	h.logTrace = *e.LogTrace
	if d := e.Dispatch; d != nil {
		if h.connector, err = dispatch.New(d.Connector); err != nil {
			return err
		}
		h.traits = h.connector.Traits()
		h.minUncached, h.adaptive = int64(*d.MinUncachedTokens), *d.Adaptive
		h.decodeOnly = d.OnPrefillFailure == "decodeOnly"
		h.prefillTimeout = time.Duration(*d.PrefillTimeout)
	}
	return nil
}

func weightsOf(w *config.Weights) selection.Weights {
	return selection.Weights{Cache: *w.Cache, Load: *w.Load, Sticky: *w.Sticky, Locality: *w.Locality}
}

// provisionProxy prepares Caddy's proxy: one for what clients see, and one for
// prefill legs, which share transport and header rules.
func (h *Handler) provisionProxy(ctx caddy.Context) error {
	if h.Proxy == nil {
		h.Proxy = new(reverseproxy.Handler)
	}
	p := h.Proxy
	switch {
	case len(p.Upstreams) > 0 || p.DynamicUpstreamsRaw != nil:
		return errors.New("reverse_proxy.upstreams: pods are listed under single and dispatch instead")
	case p.LoadBalancing != nil:
		return errors.New("reverse_proxy.load_balancing: use strategy, retries and retry_status instead")
	case p.HealthChecks != nil:
		return errors.New("reverse_proxy.health_checks: use health instead")
	case p.RequestBuffers != 0:
		return errors.New("reverse_proxy.request_buffers: bodies are buffered anyway, see max_body_bytes")
	case p.Rewrite != nil && p.Rewrite.Method != "":
		return errors.New("reverse_proxy.rewrite.method: pods get the client's method")
	}
	var err error
	h.transport, err = newPodTransport(ctx, p.TransportRaw, h.hasTLSPods())
	if err != nil {
		return err
	}
	if p.Headers != nil && p.Headers.Request != nil {
		for name := range p.Headers.Request.Set { // JSON may have any case
			h.keepHost = h.keepHost || strings.EqualFold(name, "Host")
		}
	}
	p.TransportRaw = nil // it has been loaded; Caddy's own loading would do so again
	h.legs = &reverseproxy.Handler{Headers: requestRules(p.Headers), Rewrite: p.Rewrite, TrustedProxies: p.TrustedProxies, VerboseLogs: p.VerboseLogs}
	for _, proxy := range []*reverseproxy.Handler{h.Proxy, h.legs} {
		proxy.Transport = h.transport
		proxy.LoadBalancing = &reverseproxy.LoadBalancing{SelectionPolicy: pickedPod{}}
		if err := proxy.Provision(ctx); err != nil {
			return fmt.Errorf("provisioning reverse_proxy: %w", err)
		}
	}
	h.provisioned = true
	return nil
}

// requestRules are the header rules of requests alone: those of answers are
// applied when a prefill leg's answer reaches the client, see capture.replay.
func requestRules(rules *headers.Handler) *headers.Handler {
	if rules == nil {
		return nil
	}
	return &headers.Handler{Request: rules.Request}
}

// hasTLSPods tells whether a pod may speak TLS. What sources will find is not
// known yet.
func (h *Handler) hasTLSPods() bool {
	if len(h.effective.Sources()) > 0 {
		return true
	}
	for _, m := range h.effective.Members() {
		if a, err := config.ParseURL(m.URL); err == nil && a.Scheme == "https" {
			return true
		}
	}
	return false
}

// Cleanup ends what Provision began. Requests of this configuration may still
// be running; they keep what they use.
func (h *Handler) Cleanup() error {
	if !h.provisioned {
		return nil // Caddy's proxy must not be cleaned up before it was provisioned
	}
	return errors.Join(h.Proxy.Cleanup(), h.legs.Cleanup())
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

// ServeHTTP implements [caddyhttp.MiddlewareHandler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	h.app.await(r.Context())
	h.claim.searched.await(r.Context())
	x := &exchange{h: h, w: w, r: r, next: next}
	defer x.release()
	x.serveRequest()
	return x.err
}

// Interface guards.
var (
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddy.CleanerUpper          = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
)
