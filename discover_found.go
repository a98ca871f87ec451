package calinix

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/calinix/caddy-calinix/config"
	"github.com/calinix/caddy-calinix/fleet"
)

// finds is what the sources of a balancer have reported last, by their keys. It
// outlives configurations: a reload that keeps a source keeps its pods while the
// new module asks for them again. Guarded by the balancer's mu.
type finds map[string][]config.Pod

// inherit lets the sources of a configuration that begins start with what those of
// the one before have found for the same list, until they report themselves.
// Guarded by mu.
func (b *balancer) inherit(c *claim) {
	if len(b.claims) == 0 {
		return
	}
	before := b.claims[len(b.claims)-1]
	for _, s := range c.sources {
		if _, known := b.found[s.Key]; known {
			continue
		}
		for _, other := range before.sources {
			if pods := b.found[other.Key]; other.Path == s.Path && len(pods) > 0 {
				b.found[s.Key] = append(b.found[s.Key], pods...)
			}
		}
	}
}

// report takes what a source has found.
func (b *balancer) report(key string, pods []config.Pod) {
	begin := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	last, known := b.found[key]
	if known && reflect.DeepEqual(last, pods) {
		return
	}
	if !slices.ContainsFunc(b.claims, func(c *claim) bool { return c.has(key) }) {
		return
	}
	b.found[key] = pods
	if c := b.claims[len(b.claims)-1]; c.has(key) {
		b.refresh(c)
		shared.refreshes.WithLabelValues(b.name).Observe(time.Since(begin).Seconds())
	}
}

// refresh gives the fleet the pods that c has now. A fleet that cannot take them
// keeps those that it has; it is tried again. Guarded by mu.
func (b *balancer) refresh(c *claim) {
	diff, err := b.setPods(c)
	if err == nil {
		b.havePods(c, diff)
		return
	}
	c.logger.Error("the pods that were found cannot be taken over, those known stay", zap.Error(err))
	if b.again {
		return
	}
	b.again = true
	time.AfterFunc(refreshAgain, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.again = false
		if n := len(b.claims); n > 0 && b.claims[n-1] == c {
			b.refresh(c)
		}
	})
}

// refreshAgain is when pods that the fleet could not take are tried again: slots
// of removed pods get free when their last streams end.
const refreshAgain = time.Second

// setPods makes the pods that are listed and those that were found the fleet's.
// Guarded by mu.
func (b *balancer) setPods(c *claim) (fleet.Diff, error) {
	pods, problems := c.podsWith(b.found)
	for _, p := range problems {
		c.logger.Warn("a pod that was found is left out: " + p.Error())
	}
	diff, err := b.fleet.Apply(time.Now(), pods)
	if err != nil {
		return fleet.Diff{}, fmt.Errorf("balancer %q: %w", b.name, err)
	}
	shared.changed(b.name, "added", pods, diff.Added)
	shared.changed(b.name, "removed", b.pods, diff.Removed)
	b.pods = pods
	return diff, nil
}

// havePods tells the rest of what setPods has changed. Guarded by mu.
func (b *balancer) havePods(c *claim, diff fleet.Diff) {
	b.health.Set(watched(b.fleet))
	b.askAgain()
	if len(diff.Added)+len(diff.Removed) > 0 {
		c.logger.Info("pods changed", zap.Strings("added", diff.Added), zap.Strings("removed", diff.Removed))
	}
}

// podsWith lists the pods that c names itself and those that were found for it.
func (c *claim) podsWith(found finds) ([]fleet.Pod, config.Problems) {
	if len(c.sources) == 0 {
		return c.pods, nil
	}
	e, problems := c.config.With(found)
	return podsOf(e), problems
}

// prune forgets what belongs to sources that no configuration has. Guarded by mu.
func (b *balancer) prune() {
	unused := func(key string) bool {
		return !slices.ContainsFunc(b.claims, func(c *claim) bool { return c.has(key) })
	}
	maps.DeleteFunc(b.found, func(key string, _ []config.Pod) bool { return unused(key) })
	maps.DeleteFunc(b.failing, func(key string, _ bool) bool { return unused(key) })
}

// has tells whether the configuration has the source with that key.
func (c *claim) has(key string) bool {
	return slices.ContainsFunc(c.sources, func(s source) bool { return s.Key == key })
}

func (b *balancer) setFailing(key string, fails bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failing[key] = fails
}

// searchName names a source as metrics do.
type searchName struct{ list, source string }

// searches says of the sources of the newest configuration whether they fail: 1 if
// one of those with the same name does, 0 if not.
func (b *balancer) searches() map[searchName]float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := map[searchName]float64{}
	if len(b.claims) == 0 {
		return out
	}
	for _, s := range b.claims[len(b.claims)-1].sources {
		name := searchName{s.Path, s.Name}
		if b.failing[s.Key] {
			out[name] = 1
		} else if _, ok := out[name]; !ok {
			out[name] = 0
		}
	}
	return out
}
