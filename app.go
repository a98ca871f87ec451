package calinix

import (
	"fmt"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/calinix/caddy-calinix/config"
)

func init() {
	caddy.RegisterModule(new(App))
}

// App owns the balancers of one configuration: it makes sure that handlers which
// share a name agree on what they share, and puts their common state into
// effect only when the configuration starts. It needs no configuration of its
// own; a handler brings it into being.
type App struct {
	logger *zap.Logger
	mu     sync.Mutex
	claims map[string]*claim // by balancer's name
}

// CaddyModule returns the Caddy module information.
func (*App) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "calinix", New: func() caddy.Module { return new(App) }}
}

// claim is what one configuration wants of a balancer.
type claim struct {
	settings
	config  *config.Balancer
	state   *balancer
	handler *Handler // one of those that share the name
}

// Provision prepares the app and registers the metrics.
func (a *App) Provision(ctx caddy.Context) error {
	a.logger = ctx.Logger()
	a.claims = map[string]*claim{}
	return shared.register(ctx.GetMetricsRegistry())
}

// claim joins a handler to the balancer of its name. The first handler of a
// name creates the claim; all others must agree with it.
func (a *App) claim(h *Handler) (*balancer, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	name := h.effective.Name
	if c, ok := a.claims[name]; ok {
		if err := config.Agree(c.config, h.effective); err != nil {
			return nil, fmt.Errorf("%w: the same name is the same state, so give one of them another name, or both the same values", err)
		}
		return c.state, nil
	}
	s := h.settings()
	if _, err := s.prober.header(); err != nil {
		return nil, err
	}
	state, err := loadBalancer(name, s)
	if err != nil {
		return nil, err
	}
	a.claims[name] = &claim{settings: s, config: h.effective, state: state, handler: h}
	return state, nil
}

// Start implements [caddy.App]: from here on the balancers have the pods and
// settings of this configuration.
func (a *App) Start() error {
	for _, c := range a.claims {
		if err := c.state.adopt(c); err != nil {
			return err
		}
	}
	return nil
}

// Stop implements [caddy.App]. If the configuration that follows has started,
// nothing changes; if this one is given up because another app failed to start,
// the balancers go back to what they were.
func (a *App) Stop() error {
	for _, c := range a.claims {
		if err := c.state.abandon(c); err != nil {
			a.logger.Error("going back to the configuration before", zap.Error(err))
		}
	}
	return nil
}

// Cleanup implements [caddy.CleanerUpper]: it gives up the references to the
// balancers' state. Requests that still run keep theirs.
func (a *App) Cleanup() error {
	for name := range a.claims {
		if _, err := balancers.Delete(name); err != nil {
			return err
		}
	}
	return nil
}

// Interface guards.
var (
	_ caddy.App          = (*App)(nil)
	_ caddy.Provisioner  = (*App)(nil)
	_ caddy.CleanerUpper = (*App)(nil)
)
