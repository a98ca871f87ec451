package fleet

import (
	"net/url"

	"github.com/calinix/caddy-calinix/selection"
)

// Pod is one engine as the configuration or a discovery wants it.
type Pod struct {
	// ID is unique in the fleet; it goes into headers and metrics.
	ID string
	// URL is where the engine listens. The same ID with another URL is another
	// pod: an engine that holds nothing of what its predecessor held.
	URL string
	// Roles are those that the pod serves, at least one. Its legs in all of
	// them count together.
	Roles RoleSet
	// MaxConns is how many legs the pod may have at a time, if Limited.
	MaxConns int
	Limited  bool
	// Models are the names of the models that the pod serves, adapters included;
	// none: any, unless the pod itself is asked (SetModels).
	Models []string
	// Strategy is how requests for these models are to be routed where nothing
	// else says so, if HasStrategy. Of several pods with one model the first
	// counts.
	Strategy    selection.Strategy
	HasStrategy bool
	// Strategies are those of single models, by their names. They go before
	// Strategy.
	Strategies map[string]selection.Strategy
	// Node and Zone say where the pod runs. An empty Node means the host of the
	// URL; an empty Zone is near to no other.
	Node, Zone string
	// Draining pods get nothing new. It is what a new pod starts with, and what
	// a known one follows until Drain decides otherwise.
	Draining bool
	// Down is what a new pod starts with: it gets nothing until it is marked
	// up. A known one keeps its mark.
	Down bool
	// Data is the caller's, handed back by Lease.Pod: whatever it needs to reach
	// the pod.
	Data any
}

// node returns the name of the node on which the pod runs.
func (p *Pod) node() string {
	if p.Node != "" {
		return p.Node
	}
	if u, err := url.Parse(p.URL); err == nil {
		return u.Hostname()
	}
	return ""
}

// strategyFor returns how requests for a model are to be routed, ok if the pod says
// so.
func (p *Pod) strategyFor(model string) (s selection.Strategy, ok bool) {
	if s, ok = p.Strategies[model]; ok {
		return s, true
	}
	return p.Strategy, p.HasStrategy
}

// Ref names a pod without keeping it: the slot in which it lives, and the
// generation of the slot. When the slot goes to another pod the generation
// rises, and what still comes in under the old Ref changes nothing.
type Ref struct {
	Slot uint8
	Gen  uint32
}
