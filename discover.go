package calinix

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/calinix/caddy-calinix/config"
	"github.com/calinix/caddy-calinix/discovery"
	_ "github.com/calinix/caddy-calinix/discovery/dns"  // the source dns
	_ "github.com/calinix/caddy-calinix/discovery/file" // the source file
	"github.com/calinix/caddy-calinix/fleet"
)

// source is one that a configuration has, and its module.
type source struct {
	config.Source
	module discovery.Source
}

// noSource says that a source's module is missing.
const noSource = "there is no source %q in this binary (caddy list-modules names those that there are, below calinix.discovery; kubernetes is built in with xcaddy --with)"

// loadSources loads the modules of the handler's sources of pods.
func (h *Handler) loadSources(ctx caddy.Context) ([]source, error) {
	var all []source
	for _, s := range h.effective.Sources() {
		id := discovery.Namespace + "." + s.Name
		if _, err := caddy.GetModule(id); err != nil {
			return nil, fmt.Errorf("%s.discover: "+noSource, s.Path, s.Name)
		}
		module, err := ctx.LoadModuleByID(id, s.Raw)
		if err != nil {
			return nil, fmt.Errorf("%s.discover: %w", s.Path, err)
		}
		found, ok := module.(discovery.Source)
		if !ok {
			return nil, fmt.Errorf("%s.discover: module %s is no source of pods", s.Path, id)
		}
		all = append(all, source{s, found})
	}
	return all, nil
}

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

// watch runs the sources of a configuration that has begun.
func (b *balancer) watch(c *claim) {
	var ctx context.Context
	ctx, c.unwatch = context.WithCancel(context.Background())
	if c.scraping.enabled {
		go b.readEngines(ctx, c.scraping)
	}
	time.AfterFunc(startPatience, c.searched.all)
	for i, s := range c.sources {
		go s.module.Watch(ctx, func(pods []config.Pod) {
			if ctx.Err() == nil {
				b.report(s.Key, pods)
				c.searched.one(i)
			}
		})
	}
}

// search is how far the sources of a configuration have come with their first
// reports.
type search struct {
	done chan struct{} // closed when all have reported, or were given up
	mu   sync.Mutex
	left map[int]bool
}

func newSearch(sources int) *search {
	s := &search{done: make(chan struct{}), left: make(map[int]bool, sources)}
	for i := range sources {
		s.left[i] = true
	}
	if sources == 0 {
		close(s.done)
	}
	return s
}

// one notes a report of a source.
func (s *search) one(source int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left[source] {
		if delete(s.left, source); len(s.left) == 0 {
			close(s.done)
		}
	}
}

// all gives up on the sources that have not reported.
func (s *search) all() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.left) > 0 {
		clear(s.left)
		close(s.done)
	}
}

// await returns when the sources have reported once, or were given up.
func (s *search) await(ctx context.Context) {
	select {
	case <-s.done:
	case <-ctx.Done():
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
	has := func(c *claim) bool {
		return slices.ContainsFunc(c.sources, func(s source) bool { return s.Key == key })
	}
	if !slices.ContainsFunc(b.claims, has) {
		return
	}
	b.found[key] = pods
	if c := b.claims[len(b.claims)-1]; has(c) {
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
	time.AfterFunc(refreshAgain, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
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
		c.logger.Warn("a pod that was found is left out: "+p.Error(), zap.String("balancer", b.name))
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
	if len(diff.Added)+len(diff.Removed) > 0 {
		c.logger.Info("pods changed", zap.String("balancer", b.name),
			zap.Strings("added", diff.Added), zap.Strings("removed", diff.Removed))
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

// prune forgets what the sources of no configuration have found. Guarded by mu.
func (b *balancer) prune() {
	for key := range b.found {
		if !slices.ContainsFunc(b.claims, func(c *claim) bool {
			return slices.ContainsFunc(c.sources, func(s source) bool { return s.Key == key })
		}) {
			delete(b.found, key)
		}
	}
}
