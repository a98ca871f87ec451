package calinix

import (
	"context"
	"fmt"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/calinix/caddy-calinix/config"
	"github.com/calinix/caddy-calinix/discovery"
	_ "github.com/calinix/caddy-calinix/discovery/dns"  // the source dns
	_ "github.com/calinix/caddy-calinix/discovery/file" // the source file
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

// watch runs the sources of a configuration that has begun.
func (b *balancer) watch(c *claim) {
	var ctx context.Context
	ctx, c.unwatch = context.WithCancel(context.Background())
	if c.scraping.enabled {
		go b.readEngines(ctx, c.scraping)
	}
	time.AfterFunc(startPatience, c.searched.all)
	for i, s := range c.sources {
		go s.module.Watch(ctx, &sink{ctx: ctx, balancer: b, claim: c, source: s.Source, number: i})
	}
}

// sink takes the reports of one source of one configuration.
type sink struct {
	ctx      context.Context // ends with the configuration
	balancer *balancer
	claim    *claim
	source   config.Source
	number   int    // of the source in the configuration
	fault    string // that it told last, "" if it does not fail
}

// Found implements [discovery.Sink].
func (s *sink) Found(pods []config.Pod) {
	if s.ctx.Err() != nil {
		return
	}
	s.balancer.report(s.source.Key, pods)
	s.claim.searched.one(s.number)
}

// Failing implements [discovery.Sink]. It makes it known when a source begins to
// fail, fails for another reason, or no longer fails.
func (s *sink) Failing(err error) {
	if s.ctx.Err() != nil {
		return
	}
	fault := ""
	if err != nil {
		fault = err.Error()
	}
	s.balancer.setFailing(s.source.Key, fault != "")
	if fault == s.fault {
		return
	}
	fields := []zap.Field{zap.String("list", s.source.Path), zap.String("source", s.source.Name)}
	if fault != "" {
		s.claim.logger.Error("cannot find out which pods there are, those known last stay", append(fields, zap.String("error", fault))...)
	} else {
		s.claim.logger.Info("pods are found again", fields...)
	}
	s.fault = fault
}
