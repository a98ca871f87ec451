package calinix

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/calinix/caddy-calinix/enginesim"
)

func init() {
	caddy.RegisterModule(new(InferenceSim))
}

// InferenceSim serves a simulated inference engine, for demonstrations, tests and
// benchmarks without a GPU: it answers the OpenAI and Anthropic APIs with made-up
// words, but keeps time, memory, queue and hand-over of KV as a vLLM server does.
//
// Without a name, each address that the site listens on is an engine of its own,
// named after the address. With a name, all handlers of that name are one engine.
// An engine's cache, queue and leases are kept over a reload, unless block_size,
// num_gpu_blocks or max_token_bytes changed.
type InferenceSim struct {
	enginesim.Settings

	generation int64
	engines    []servedEngine
	logger     *zap.Logger
}

// servedEngine is an engine and where this handler serves it.
type servedEngine struct {
	key    simKey
	at     string // host:port, "" if the handler's one engine serves everywhere
	engine *enginesim.Engine
	config enginesim.Settings // to be applied by begin
	begin  *sync.Once
}

// simKey tells engines apart: one whose cache has another shape is another engine.
type simKey struct{ name, shape string }

// pooledEngine is an engine as the pool holds it.
type pooledEngine struct{ *enginesim.Engine }

// Destruct implements [caddy.Destructor].
func (p pooledEngine) Destruct() error {
	p.Close() // requests that still run end normally
	return nil
}

var (
	simEngines     = caddy.NewUsagePool() // simKey → pooledEngine
	simPeers       = enginesim.NewPeers()
	simGenerations atomic.Int64 // orders configurations
)

// CaddyModule returns the Caddy module information.
func (*InferenceSim) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.inference_sim", New: func() caddy.Module { return new(InferenceSim) }}
}

// Provision checks the settings and takes a reference to the engines. Engines that
// live already are changed only by the first request that this handler serves: a
// configuration may still fail.
func (s *InferenceSim) Provision(ctx caddy.Context) error {
	s.logger = ctx.Logger()
	s.generation = simGenerations.Add(1)
	if _, err := s.WithDefaults(); err != nil {
		return err
	}
	addresses := []string{""}
	if server, ok := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server); ok && s.Name == "" {
		var err error
		if addresses, err = listenAddresses(server.Listen); err != nil {
			return err
		}
	}
	for _, at := range addresses {
		if err := s.take(at); err != nil {
			return err
		}
	}
	return nil
}

// take adds the engine that is served at an address.
func (s *InferenceSim) take(at string) error {
	set := s.Settings
	if set.Name == "" {
		set.Name = at
	}
	full, err := set.WithDefaults()
	if err != nil {
		return err
	}
	key := simKey{full.Name, full.Shape()}
	v, _, err := simEngines.LoadOrNew(key, func() (caddy.Destructor, error) {
		e, err := enginesim.New(set, enginesim.SystemClock(), simPeers)
		return pooledEngine{e}, err
	})
	if err != nil {
		return err
	}
	s.engines = append(s.engines, servedEngine{key: key, at: at, engine: v.(pooledEngine).Engine, config: set, begin: new(sync.Once)})
	return nil
}

// listenAddresses expands a server's addresses to one host:port or path each.
func listenAddresses(listen []string) ([]string, error) {
	var all []string
	for _, l := range listen {
		addr, err := caddy.ParseNetworkAddress(l)
		if err != nil {
			return nil, fmt.Errorf("listener address %q: %w", l, err)
		}
		for offset := range max(1, addr.PortRangeSize()) {
			all = append(all, addr.JoinHostPort(offset))
		}
	}
	if len(all) == 0 {
		all = []string{""}
	}
	return all, nil
}

// Cleanup gives up the references to the engines.
func (s *InferenceSim) Cleanup() error {
	errs := make([]error, 0, len(s.engines))
	for _, e := range s.engines {
		_, err := simEngines.Delete(e.key)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// ServeHTTP implements [caddyhttp.MiddlewareHandler].
func (s *InferenceSim) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	e := s.engineFor(r)
	e.begin.Do(func() {
		if err := e.engine.Configure(e.config, s.generation); err != nil {
			s.logger.Error("changing a simulated engine", zap.Error(err)) // checked before: cannot happen
		}
	})
	e.engine.ServeHTTP(w, r)
	return nil
}

// engineFor finds the engine by the address at which the request arrived: the same
// host and port, else the same port, else the first engine.
func (s *InferenceSim) engineFor(r *http.Request) *servedEngine {
	best := &s.engines[0]
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok || len(s.engines) == 1 {
		return best
	}
	at := local.String()
	port := at[strings.LastIndexByte(at, ':')+1:]
	found := false
	for i := range s.engines {
		e := &s.engines[i]
		if e.at == at {
			return e
		}
		if !found && e.at[strings.LastIndexByte(e.at, ':')+1:] == port {
			best, found = e, true
		}
	}
	return best
}

// Interface guards.
var (
	_ caddy.Provisioner           = (*InferenceSim)(nil)
	_ caddy.CleanerUpper          = (*InferenceSim)(nil)
	_ caddyhttp.MiddlewareHandler = (*InferenceSim)(nil)
)
