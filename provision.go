package calinix

import (
	"errors"
	"fmt"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
	"go.uber.org/zap"

	"github.com/calinix/caddy-calinix/chain"
	"github.com/calinix/caddy-calinix/config"
	"github.com/calinix/caddy-calinix/dispatch"
	"github.com/calinix/caddy-calinix/selection"
)

// Provision sets the handler up: it checks the configuration, prepares Caddy's
// proxy and takes a reference to the state of the balancer of its name.
func (h *Handler) Provision(ctx caddy.Context) error {
	h.now = time.Now
	h.metrics = shared
	if err := h.Balancer.Validate(); err != nil {
		return err
	}
	for _, w := range h.Warnings() {
		ctx.Logger().Warn(w.Error())
	}
	h.effective = h.Defaults()
	h.logger = ctx.Logger().With(zap.String("balancer", h.effective.Name))
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
	h.overload = e.Overload
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
		h.minUncached, h.adaptive = int64(*d.MinUncachedTokens), *d.Adaptive && !h.traits.Waits
		h.decodeOnly = d.OnPrefillFailure == "decodeOnly"
		h.prefillTimeout = time.Duration(*d.PrefillTimeout)
	}
	return nil
}

func weightsOf(w *config.Weights) selection.Weights {
	return selection.Weights{Cache: *w.Cache, Load: *w.Load, Sticky: *w.Sticky, Locality: *w.Locality}
}

// Cleanup ends what Provision began. Requests of this configuration may still
// be running; they keep what they use.
func (h *Handler) Cleanup() error {
	if !h.provisioned {
		return nil // Caddy's proxy must not be cleaned up before it was provisioned
	}
	return errors.Join(h.Proxy.Cleanup(), h.legs.Cleanup())
}
