package calinix

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/calinix/caddy-calinix/chain"
	"github.com/calinix/caddy-calinix/fleet"
	"github.com/calinix/caddy-calinix/health"
	"github.com/calinix/caddy-calinix/index"
	"github.com/calinix/caddy-calinix/outcome"
	"github.com/calinix/caddy-calinix/retry"
)

// balancers holds the state of every balancer of the process by its name. A
// reload's configuration takes its reference before the old one gives up its
// own, so that what was learnt stays.
var balancers = caddy.NewUsagePool()

// balancer is the state behind a name: the pods with their load and sessions,
// the index of who holds which block, the verdicts on their health. It outlives
// configurations. Its own fields are guarded by mu; the parts guard themselves.
type balancer struct {
	name   string
	fleet  *fleet.Fleet
	blocks *index.Index
	health *health.Checker
	budget retry.Budget
	bodies bodyMemory
	pace   pace
	models modelLoad
	bell   *time.Timer // rings for the fleet's sake; idle while no request is held
	// changed tells learn that pods or settings have changed.
	changed chan struct{}

	mu      sync.Mutex
	claims  []*claim        // configurations that have begun, the newest last
	pods    []fleet.Pod     // the fleet's, as they were given to it
	found   finds           // by their sources
	failing map[string]bool // sources that cannot find out which pods there are, by their keys
	again   bool            // the fleet is about to be given its pods once more
	chain   chain.Options
	stop    context.CancelFunc
	newest  settings // those in effect
}

// loadBalancer returns the balancer of that name and takes a reference to it. A
// new one has no pods until the configuration begins.
func loadBalancer(name string, s settings) (*balancer, error) {
	v, _, err := balancers.LoadOrNew(name, func() (caddy.Destructor, error) {
		blocks := index.New(s.index)
		b := &balancer{
			name:    name,
			blocks:  blocks,
			changed: make(chan struct{}, 1),
			chain:   s.chain,
			newest:  s,
			found:   finds{},
			failing: map[string]bool{},
		}
		b.bell = time.AfterFunc(time.Hour, func() { b.fleet.Tick(time.Now()) })
		b.bell.Stop()
		b.fleet = fleet.New(fleet.Options{
			Index: blocks, Sessions: s.sessions, Capacity: s.capacity,
			Alarm: func(at time.Time) { b.bell.Reset(time.Until(at)) },
		})
		b.health = health.New(b.fleet, b.turned)
		return b, nil
	})
	if err != nil {
		return nil, fmt.Errorf("balancer %q: %w", name, err)
	}
	return v.(*balancer), nil
}

// allBalancers returns the balancers of the process, ordered by name.
func allBalancers() []*balancer {
	var all []*balancer
	balancers.Range(func(_, v any) bool {
		all = append(all, v.(*balancer))
		return true
	})
	slices.SortFunc(all, func(a, b *balancer) int {
		if a.name < b.name {
			return -1
		}
		return 1
	})
	return all
}

// fits says whether the balancer could adopt c.
func (b *balancer) fits(c *claim) error {
	b.mu.Lock()
	pods, _ := c.podsWith(b.found)
	b.mu.Unlock()
	if err := b.fleet.Fits(pods); err != nil {
		return fmt.Errorf("balancer %q: %w", b.name, err)
	}
	return nil
}

// adopt puts c's settings into effect.
func (b *balancer) adopt(c *claim) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inherit(c)
	if err := b.apply(c); err != nil {
		return err
	}
	b.claims = append(b.claims, c)
	b.watch(c)
	if b.stop == nil {
		var ctx context.Context
		ctx, b.stop = context.WithCancel(context.Background())
		b.health.Start(ctx)
		go b.age(ctx)
		go b.learn(ctx)
	}
	return nil
}

// abandon takes c back; the newest configuration that is left has its settings
// in effect afterwards.
func (b *balancer) abandon(c *claim) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.prune()
	if c.unwatch != nil {
		c.unwatch()
	}
	newest := len(b.claims) > 0 && b.claims[len(b.claims)-1] == c
	b.claims = slices.DeleteFunc(b.claims, func(other *claim) bool { return other == c })
	if !newest || len(b.claims) == 0 {
		return nil
	}
	return b.apply(b.claims[len(b.claims)-1])
}

// apply makes the parts what c wants. Guarded by mu.
func (b *balancer) apply(c *claim) error {
	diff, err := b.setPods(c)
	if err != nil {
		return err
	}
	b.fleet.SetRings(c.rings...)
	b.newest = c.settings
	b.blocks.Configure(c.index)
	b.fleet.SetCapacity(c.capacity)
	b.fleet.SetOverload(c.overload)
	b.fleet.Configure(c.sessions)
	if b.chain != c.chain {
		// Blocks of another size are blocks of another text.
		b.chain = c.chain
		b.fleet.Forget()
		c.logger.Info("block size changed, the prefix index begins anew")
	}
	if !c.indexed {
		b.fleet.Forget()
	}
	b.health.Configure(c.settings.health, c.prober)
	b.havePods(c, diff)
	return nil
}

// ageing is how often old entries are looked for.
const ageing = time.Second

// age removes blocks and sessions that were not used for too long.
func (b *balancer) age(ctx context.Context) {
	tick := time.NewTicker(ageing)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			b.blocks.Expire(now)
			for _, id := range b.fleet.Expire(now) {
				b.believed(id, "nothing was heard of its cache for long")
			}
		}
	}
}

// Destruct implements [caddy.Destructor]: no configuration uses the balancer
// any more. Requests that still run may; what they use stays usable.
func (b *balancer) Destruct() error {
	b.mu.Lock()
	stop := b.stop
	b.stop = nil
	b.mu.Unlock()
	if stop != nil {
		stop()
		b.health.Stop()
	}
	return nil
}

// handler returns a handler of the newest configuration that has begun, nil
// before the first has.
func (b *balancer) handler() *Handler {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.claims) == 0 {
		return nil
	}
	return b.claims[len(b.claims)-1].handler
}

// current returns the settings in effect.
func (b *balancer) current() settings {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.newest
}

// logger is that of the settings in effect.
func (b *balancer) logger() *zap.Logger { return b.current().logger }

// lastProbe says what the last probe of the pod came to, "" before the first.
func (b *balancer) lastProbe(ref fleet.Ref) string {
	s, _ := b.health.Status(ref)
	return s.Last.Detail
}

// failed tells the health checker how a leg ended.
func (b *balancer) failed(now time.Time, ref fleet.Ref, out outcome.Outcome) {
	b.health.Ended(now, ref, out)
}

// turned makes a change of a pod's health known.
func (b *balancer) turned(e health.Event) {
	s := b.current()
	fields := []zap.Field{
		zap.String("pod", e.Pod.ID), zap.String("reason", e.Reason), zap.Bool("index_entries_dropped", e.Forget),
	}
	event := "unhealthy" // the names of reverse_proxy's
	switch {
	case e.Up:
		event = "healthy"
		b.askAgain()
		s.logger.Info("pod is up", fields...)
	case e.WasUp:
		s.logger.Warn("pod is down", fields...)
	default:
		s.logger.Warn("pod that is down has lost its cache", fields...)
		return
	}
	_, host, _ := strings.Cut(e.Pod.URL, "://")
	s.emit(event, map[string]any{"balancer": b.name, "pod": e.Pod.ID, "host": host, "reason": e.Reason})
}

// watched lists the fleet's pods for the checker.
func watched(f *fleet.Fleet) []health.Pod {
	var pods []health.Pod
	for _, s := range f.Snapshot() {
		pods = append(pods, health.Pod{Ref: s.Ref, ID: s.ID, URL: s.URL, Down: s.StartsDown})
	}
	return pods
}
