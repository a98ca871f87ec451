package calinix

import (
	"time"

	"go.uber.org/zap"

	"github.com/calinix/caddy-calinix/chain"
	"github.com/calinix/caddy-calinix/config"
	"github.com/calinix/caddy-calinix/dispatch"
	"github.com/calinix/caddy-calinix/fleet"
	"github.com/calinix/caddy-calinix/health"
	"github.com/calinix/caddy-calinix/index"
	"github.com/calinix/caddy-calinix/selection"
)

// settings are what a configuration says of the state that handlers of the same
// name share, in the form in which the parts of a balancer take it.
type settings struct {
	pods     []fleet.Pod
	health   health.Settings
	prober   *prober
	index    index.Options
	indexed  bool // an index is kept
	capacity fleet.Capacity
	overload fleet.Overload
	scraping scraping
	sessions fleet.Sessions
	chain    chain.Options
	rings    []int    // virtual nodes of the rings that handlers look keys up on
	learner  *learner // nil: pods are not asked for their models
	logger   *zap.Logger
	emit     func(event string, data map[string]any) // to Caddy's event handlers
}

// settings reads them from the handler's effective configuration.
func (h *Handler) settings() settings {
	e := h.effective
	s := settings{
		pods: podsOf(e),
		health: health.Settings{
			Interval:  time.Duration(*e.Health.Interval),
			Timeout:   time.Duration(*e.Health.Timeout),
			Healthy:   *e.Health.HealthyThreshold,
			Unhealthy: *e.Health.UnhealthyThreshold,
			Failures:  *e.Health.Passive.Failures,
			Window:    time.Duration(*e.Health.Passive.Window),
		},
		prober: &prober{transport: h.transport, endpoint: e.Health.Endpoint, headers: e.Health.Headers},
		index: index.Options{
			MaxBlocks: *e.CacheRegistry.MaxBlocks, StaleTTL: time.Duration(*e.CacheRegistry.StaleTTL),
			PopularityTau: time.Duration(*e.ExpectedTTFT.Tau),
		},
		capacity: capacityOf(e),
		overload: overloadOf(e),
		scraping: h.scraping(),
		indexed:  h.indexed,
		sessions: fleet.Sessions{TTL: time.Duration(*e.Sessions.IdleTTL), Max: *e.Sessions.Max},
		chain:    h.chain,
		rings:    []int{h.virtualNodes},
		logger:   h.logger,
		emit:     h.emit,
	}
	if m := e.LearnModels; *m.Enabled {
		s.learner = &learner{prober: s.prober, path: m.Path, interval: time.Duration(*m.Interval)}
	}
	return s
}

// capacityOf is how large a configuration takes the caches of its pods for.
func capacityOf(e *config.Balancer) fleet.Capacity {
	return fleet.Capacity{Tokens: e.PodTokens(), Learn: e.LearnsCaches(), BlockTokens: *e.BlockSize}
}

// podsOf lists the pods of a configuration as the fleet takes them, each with
// the target that the transport dials.
func podsOf(e *config.Balancer) []fleet.Pod {
	members := e.Members()
	pods := make([]fleet.Pod, 0, len(members))
	for _, m := range members {
		address, err := config.ParseURL(m.URL)
		if err != nil {
			continue // refused by Validate before
		}
		p := fleet.Pod{
			ID: m.ID, URL: m.URL, Node: m.Node, Zone: m.Zone, Models: m.Models,
			Draining: *m.Draining,
			Down:     m.Healthy != nil && !*m.Healthy,
			Data:     newTarget(address.Scheme, address.HostPort(), peerOf(&m, address.Host)),
		}
		if s, err := selection.ParseStrategy(m.Strategy); err == nil {
			p.Strategy, p.HasStrategy = s, true
		}
		for model, strategy := range m.Strategies {
			if s, err := selection.ParseStrategy(strategy); err == nil {
				if p.Strategies == nil {
					p.Strategies = map[string]selection.Strategy{}
				}
				p.Strategies[model] = s
			}
		}
		if m.MaxConns != nil {
			p.MaxConns, p.Limited = *m.MaxConns, true
		}
		for role, has := range map[fleet.Role]bool{fleet.Single: m.Single, fleet.Prefill: m.Prefill, fleet.Decode: m.Decode} {
			if has {
				p.Roles = p.Roles.With(role)
			}
		}
		pods = append(pods, p)
	}
	return pods
}

// peerOf is what connectors know of a pod on that host.
func peerOf(m *config.Member, host string) dispatch.Peer {
	p := dispatch.Peer{
		BootstrapHost: host, BootstrapPort: config.DefaultBootstrapPort,
		EngineID: m.EngineID, TPSize: 1, PPSize: 1,
	}
	if m.BootstrapHost != "" {
		p.BootstrapHost = m.BootstrapHost
	}
	for _, f := range []struct {
		to   *int
		said *int
	}{{&p.BootstrapPort, m.BootstrapPort}, {&p.TPSize, m.TPSize}, {&p.PPSize, m.PPSize}, {&p.Rank, m.DPRank}} {
		if f.said != nil {
			*f.to = *f.said
		}
	}
	p.HasRank = m.DPRank != nil
	p.KVHost, p.KVPort = host, config.DefaultSideChannelPort+p.Rank
	if h, port, err := config.SplitAddress(m.KVAddress); err == nil {
		p.KVHost, p.KVPort = h, port
	}
	return p
}

// targetOf is the target of the pod that a lease holds.
func targetOf(l *fleet.Lease) *target { return l.Pod().Data.(*target) }
