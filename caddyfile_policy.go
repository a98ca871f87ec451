package calinix

import (
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/calinix/caddy-calinix/config"
)

// UnmarshalCaddyfile reads the selection policy of a stock reverse_proxy. Syntax:
//
//	lb_policy cache_aware {
//	    block_size <tokens>
//	    strategy   cache_aware|expected_ttft|session_affinity|prefix|least_loaded|
//	               round_robin|random|power_of_two
//	    weights    [cache <weight>] [load <weight>] [sticky <weight>]
//	    max_blocks <number>
//	    stale_ttl  <duration>
//	}
func (p *Policy) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // consume the policy's name
	name := d.Token()
	if d.NextArg() {
		return d.ArgErr()
	}
	// The keys are pointers here, to tell what was given from zero.
	var keys struct {
		BlockSize *int             `json:"block_size"`
		Strategy  string           `json:"strategy"`
		Weights   *config.Weights  `json:"weights"`
		MaxBlocks *int             `json:"max_blocks"`
		StaleTTL  *config.Duration `json:"stale_ttl"`
	}
	parser := newKeyParser(d, name)
	if err := parser.block(config.Fields(&keys), ""); err != nil {
		return err
	}
	b := config.Balancer{
		BlockSize:     keys.BlockSize,
		Strategy:      keys.Strategy,
		CacheRegistry: &config.CacheRegistry{MaxBlocks: keys.MaxBlocks, StaleTTL: keys.StaleTTL},
	}
	if keys.Weights != nil {
		b.Weights = &config.RoleWeights{Single: keys.Weights}
	}
	if err := b.ValidatePolicy(); err != nil {
		return parser.located(err)
	}
	b.Normalize()
	p.Strategy, p.Weights = b.Strategy, keys.Weights
	if keys.BlockSize != nil {
		p.BlockSize = *keys.BlockSize
	}
	if keys.MaxBlocks != nil {
		p.MaxBlocks = *keys.MaxBlocks
	}
	if keys.StaleTTL != nil {
		p.StaleTTL = *keys.StaleTTL
	}
	return nil
}

// Interface guard
var _ caddyfile.Unmarshaler = (*Policy)(nil)
