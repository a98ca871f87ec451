package config

import "time"

// Overload says that requests are held back while the pods are too busy, and how.
// The section turns it on. Only the strategy expectedTTFT knows how busy pods are.
type Overload struct {
	// The estimated wait, at the pod that would get a request, from which on the
	// request is held. Default: 100ms.
	Hold *Duration `json:"hold,omitempty" yaml:"holdMs"`

	// Which one is sent first: shortest, the one that has least to compute; the
	// longer it waits the less that counts. Default: shortest.
	Order string `json:"order,omitempty" yaml:"order"`

	// The most requests that are held at a time; further ones are answered with 503
	// and Retry-After. Default: 1000.
	MaxHeld *int `json:"max_held,omitempty" yaml:"maxHeld"`

	// For how long a request is held at most, before it is answered with 503 and
	// Retry-After. Default: 60s.
	Timeout *Duration `json:"timeout,omitempty" yaml:"timeoutMs"`
}

// The defaults of an overload that is on.
const (
	DefaultHold        = Duration(100 * time.Millisecond)
	DefaultOrder       = "shortest"
	DefaultMaxHeld     = 1000
	DefaultHoldTimeout = Duration(time.Minute)
)

var orders = []name{{"shortest", "shortest"}}

// defaults leaves an overload that is off as it is.
func (o *Overload) defaults() *Overload {
	if o == nil {
		return nil
	}
	e := *o
	fill(&e.Hold, DefaultHold)
	fillString(&e.Order, DefaultOrder)
	fill(&e.MaxHeld, DefaultMaxHeld)
	fill(&e.Timeout, DefaultHoldTimeout)
	return &e
}

func (c *checker) overload(b *Balancer) {
	o := b.Overload
	if o == nil {
		return
	}
	if s := b.strategy(); s != "expectedTTFT" && known(strategies, s) {
		c.add("overload", nil, "needs strategy expectedTTFT, which estimates how long pods are busy; the strategy is %s", s)
	}
	c.positive("overload.hold", o.Hold)
	c.choice("overload.order", o.Order, "order", orders)
	between(c, "overload.max_held", o.MaxHeld, 1, maxCount)
	c.positive("overload.timeout", o.Timeout)
}
