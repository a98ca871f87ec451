package calinix

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"go.uber.org/zap"

	"github.com/calinix/caddy-calinix/chain"
	"github.com/calinix/caddy-calinix/config"
	"github.com/calinix/caddy-calinix/fleet"
	"github.com/calinix/caddy-calinix/index"
	"github.com/calinix/caddy-calinix/outcome"
	"github.com/calinix/caddy-calinix/selection"
)

func init() {
	caddy.RegisterModule(new(Policy))
}

// Policy is a selection policy for a stock reverse_proxy: it prefers the
// upstream that has most of the prompt in its cache and least to do. Upstreams
// that Caddy holds for unavailable are left out, and so are those that the
// request has tried already.
//
// It knows less than the calinix handler: a policy cannot tell how a request
// ended, so what it learns of a request that failed later stays.
type Policy struct {
	// Tokens in a block of the prefix index. Default: 16.
	BlockSize int `json:"block_size,omitempty"`

	// How an upstream is chosen: cacheAware, expectedTTFT, sessionAffinity, prefix,
	// leastLoaded, roundRobin, random or powerOfTwo. Default: cacheAware.
	Strategy string `json:"strategy,omitempty"`

	// The weights of cacheAware's factors.
	// Default: cache 0.6, load 0.3, sticky 0.1.
	Weights *config.Weights `json:"weights,omitempty"`

	// The most distinct blocks that are kept; the oldest go first.
	// Default: 1000000.
	MaxBlocks int `json:"max_blocks,omitempty"`

	// A block that was not used for so long is forgotten; 0 is never.
	// Default: 0.
	StaleTTL config.Duration `json:"stale_ttl,omitempty"`

	state    *policyState
	key      string
	chain    chain.Options
	strategy selection.Strategy
	weights  selection.Weights
	logger   *zap.Logger
}

// CaddyModule returns the Caddy module information.
func (*Policy) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.reverse_proxy.selection_policies.cache_aware",
		New: func() caddy.Module { return new(Policy) },
	}
}

// policies holds what policies have learnt, by their configuration: policies
// that are configured alike share it, and a reload takes it over.
var policies = caddy.NewUsagePool()

// Provision checks the settings and takes a reference to the policy's state.
func (p *Policy) Provision(ctx caddy.Context) error {
	p.logger = ctx.Logger()
	b := config.Balancer{Strategy: p.Strategy}
	if b.Strategy == "" {
		b.Strategy = config.DefaultPolicyStrategy
	}
	if p.Weights != nil {
		b.Weights = &config.RoleWeights{Single: p.Weights}
	}
	if p.BlockSize != 0 {
		b.BlockSize = &p.BlockSize
	}
	r := &config.CacheRegistry{StaleTTL: &p.StaleTTL}
	if p.MaxBlocks != 0 {
		r.MaxBlocks = &p.MaxBlocks
	}
	b.CacheRegistry = r
	if err := b.ValidatePolicy(); err != nil {
		return err
	}
	e := b.Defaults()
	p.chain = chain.Options{BlockSize: *e.BlockSize, MaxTokenBytes: *e.MaxTokenBytes}
	p.weights = weightsOf(e.Weights.Single)
	var err error
	if p.strategy, err = selection.ParseStrategy(e.Strategy); err != nil {
		return err
	}
	key, err := json.Marshal(p)
	if err != nil {
		return err
	}
	v, _, err := policies.LoadOrNew(string(key), func() (caddy.Destructor, error) {
		return newPolicyState(
			index.Options{MaxBlocks: *e.CacheRegistry.MaxBlocks, StaleTTL: time.Duration(p.StaleTTL)},
			fleet.Sessions{TTL: time.Duration(*e.Sessions.IdleTTL), Max: *e.Sessions.Max},
			capacityOf(e),
		), nil
	})
	if err != nil {
		return err
	}
	p.key, p.state = string(key), v.(*policyState)
	return nil
}

// Cleanup gives up the reference to the policy's state.
func (p *Policy) Cleanup() error {
	if p.state == nil {
		return nil
	}
	_, err := policies.Delete(p.key)
	return err
}

// Select implements [reverseproxy.Selector].
func (p *Policy) Select(pool reverseproxy.UpstreamPool, r *http.Request, _ http.ResponseWriter) *reverseproxy.Upstream {
	now := time.Now()
	q := p.requestOf(r)
	if q.lease != nil {
		// Asked again: what was picked before has failed.
		q.lease.End(now, outcome.Unreachable)
		q.tried[q.picked] = true
	}
	q.rewind(r)
	refs, err := p.state.refs(now, pool)
	if err != nil {
		p.logger.Error("learning the upstreams", zap.Error(err))
		return nil
	}
	ask := fleet.Ask{Role: fleet.Single, Session: q.session, Strategy: p.strategy, Weights: p.weights, Exclude: index.All(index.Pods)}
	ask.Whole = true // a policy does not see the answer
	ask.Hash, ask.HasHash = q.key.hash, q.key.from != keyNone
	ask.VirtualNodes, ask.LoadFactor = config.DefaultVirtualNodes, config.DefaultLoadFactor
	for i, u := range pool {
		if u.Available() && !q.tried[u.Dial] {
			ask.Exclude.Clear(int(refs[i].Slot))
		}
	}
	if q.prompt {
		ask.Chain, ask.Key, ask.HasKey = &q.chain, q.request.Key(), true
		ask.Tokens = q.request.Tokens()
	}
	lease := new(fleet.Lease)
	if p.state.fleet.Begin(now, &ask, lease) != nil {
		return nil
	}
	for i, u := range pool {
		if refs[i] == lease.Ref() {
			q.hold(lease, u.Dial)
			return u
		}
	}
	lease.End(now, outcome.Unsent)
	return nil
}

// Interface guards.
var (
	_ caddy.Provisioner     = (*Policy)(nil)
	_ caddy.CleanerUpper    = (*Policy)(nil)
	_ reverseproxy.Selector = (*Policy)(nil)
)
