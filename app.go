package calinix

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
	"go.uber.org/zap"

	"github.com/calinix/caddy-calinix/config"
)

func init() {
	caddy.RegisterModule(new(App))
}

// App owns the balancers of one configuration: it makes sure that handlers which
// share a name agree on what they share, and puts their common state into
// effect only when the whole configuration has started. It needs no
// configuration of its own; a handler brings it into being.
type App struct {
	logger *zap.Logger
	mu     sync.Mutex        // guards claims during provisioning; later they stay
	claims map[string]*claim // by balancer's name

	decide  sync.Once     // whether the configuration begins, or is given up
	decided chan struct{} // closed after that
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
	sources []source

	searched *search
	unwatch  context.CancelFunc // ends the sources; nil before they run
}

// Provision prepares the app and registers the metrics.
func (a *App) Provision(ctx caddy.Context) error {
	a.decided = make(chan struct{})
	a.logger = ctx.Logger()
	a.claims = map[string]*claim{}
	events, err := ctx.App("events")
	if err != nil {
		return fmt.Errorf("loading the events app: %w", err)
	}
	if err := events.(*caddyevents.App).On("started", whenStarted{a}); err != nil {
		return fmt.Errorf("subscribing to Caddy's start: %w", err)
	}
	return shared.register(ctx.GetMetricsRegistry())
}

// claim joins a handler to the balancer of its name. The first handler of a
// name creates the claim; all others must agree with it.
func (a *App) claim(ctx caddy.Context, h *Handler) (*claim, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	name := h.effective.Name
	if c, ok := a.claims[name]; ok {
		if err := config.Agree(c.config, h.effective); err != nil {
			return nil, fmt.Errorf("%w: the same name is the same state, so give one of them another name, or both the same values", err)
		}
		if !slices.Contains(c.rings, h.virtualNodes) {
			c.rings = append(c.rings, h.virtualNodes)
		}
		if s := h.scraping(); s.enabled && !c.scraping.enabled {
			c.scraping, c.capacity.Learn = s, h.effective.LearnsCaches()
		}
		return c, nil
	}
	s := h.settings()
	if _, err := s.prober.header(); err != nil {
		return nil, err
	}
	sources, err := h.loadSources(ctx)
	if err != nil {
		return nil, err
	}
	state, err := loadBalancer(name, s)
	if err != nil {
		return nil, err
	}
	c := &claim{
		settings: s, config: h.effective, state: state, handler: h,
		sources: sources, searched: newSearch(len(sources)),
	}
	a.claims[name] = c
	return c, nil
}

// Start implements [caddy.App]. It changes nothing: Caddy starts its apps in any
// order, so another one may still fail, and then the configuration before goes
// on. Nor may the pods be probed yet, which this very configuration may serve.
func (a *App) Start() error {
	for _, c := range a.claims {
		if err := c.state.fits(c); err != nil {
			return err
		}
	}
	return nil
}

// whenStarted is called by Caddy when all apps have started.
type whenStarted struct{ app *App }

// Handle implements [caddyevents.Handler].
func (s whenStarted) Handle(context.Context, caddy.Event) error {
	s.app.begin()
	return nil
}

// begin puts the configuration into effect: from here on the balancers have its
// pods and settings.
func (a *App) begin() {
	a.decide.Do(func() {
		defer close(a.decided)
		for _, c := range a.claims {
			if err := c.state.adopt(c); err != nil {
				a.logger.Error("the pods stay those of the configuration before", zap.Error(err))
				c.searched.all() // nobody will search
			}
		}
	})
}

// startPatience bounds how long a request waits for the start of the rest of its
// configuration, which takes milliseconds.
const startPatience = time.Second

// await returns when the configuration has begun, or is given up: its server may
// get requests before that. If Caddy does not tell (it calls the event
// experimental), the request that has waited for so long takes it for granted.
func (a *App) await(ctx context.Context) {
	select {
	case <-a.decided:
		return
	default:
	}
	timer := time.NewTimer(startPatience)
	defer timer.Stop()
	select {
	case <-a.decided:
	case <-ctx.Done():
	case <-timer.C:
		a.begin()
	}
}

// Stop implements [caddy.App]. If the configuration that follows has begun,
// nothing changes.
func (a *App) Stop() error {
	a.end()
	return nil
}

// end takes the configuration back, however far it has come.
func (a *App) end() {
	a.decide.Do(func() { close(a.decided) })
	for _, c := range a.claims {
		c.searched.all()
		if err := c.state.abandon(c); err != nil {
			a.logger.Error("going back to the configuration before", zap.Error(err))
		}
	}
}

// Cleanup implements [caddy.CleanerUpper]: it gives up the references to the
// balancers' state. Requests that still run keep theirs.
func (a *App) Cleanup() error {
	a.end() // Caddy stops no app of a configuration that fails after its start
	for name := range a.claims {
		if _, err := balancers.Delete(name); err != nil {
			return err
		}
	}
	return nil
}

// Interface guards.
var (
	_ caddy.App           = (*App)(nil)
	_ caddy.Provisioner   = (*App)(nil)
	_ caddy.CleanerUpper  = (*App)(nil)
	_ caddyevents.Handler = whenStarted{}
)
