package calinix

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/calinix/caddy-calinix/fleet"
	"github.com/calinix/caddy-calinix/scrape"
)

// scraping is whether and how the metrics of the engines are read.
type scraping struct {
	enabled   bool
	path      string
	interval  time.Duration
	transport http.RoundTripper
	logger    *zap.Logger
}

// scraping reads it from the handler's effective configuration.
func (h *Handler) scraping() scraping {
	m := h.effective.EngineMetrics
	return scraping{
		enabled: *m.Enabled, path: m.Path, interval: time.Duration(*m.Interval),
		transport: h.transport, logger: h.logger,
	}
}

// readers is how many pods are read at a time.
const readers = 16

// readEngines asks the pods' metrics for the size of their caches, again and
// again until ctx ends.
func (b *balancer) readEngines(ctx context.Context, s scraping) {
	tick := time.NewTicker(s.interval)
	defer tick.Stop()
	said := map[fleet.Ref]string{} // what the log says of the pods
	for {
		b.readCaches(ctx, s, said)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// readCaches reads the metrics of all pods that are up once. What the log was
// told of a pod is repeated when it is news. A pod whose metrics cannot be had
// keeps the size that it had.
func (b *balancer) readCaches(ctx context.Context, s scraping, said map[fleet.Ref]string) {
	ctx, cancel := context.WithTimeout(ctx, s.interval)
	defer cancel()
	var mu sync.Mutex // guards said
	var all sync.WaitGroup
	places := make(chan struct{}, readers)
	for _, pod := range b.fleet.Snapshot() {
		if !pod.Up {
			continue
		}
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			tokens, err := s.cacheOf(ctx, pod.URL)
			if ctx.Err() != nil && errors.Is(ctx.Err(), context.Canceled) {
				return
			}
			news := fmt.Sprint(tokens, err)
			mu.Lock()
			old := said[pod.Ref]
			said[pod.Ref] = news
			mu.Unlock()
			if err == nil || errors.Is(err, scrape.ErrNoCache) {
				b.fleet.SetCache(pod.Ref, tokens)
			}
			switch fields := []zap.Field{zap.String("balancer", b.name), zap.String("pod", pod.ID)}; {
			case old == news:
			case err != nil:
				s.logger.Warn("the metrics of a pod do not tell the size of its cache", append(fields, zap.Error(err))...)
			default:
				s.logger.Info("size of a pod's cache", append(fields, zap.Int64("tokens", tokens))...)
			}
		})
	}
	all.Wait()
}

// cacheOf reads the metrics of one pod.
func (s *scraping) cacheOf(ctx context.Context, url string) (tokens int64, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(url, "/")+s.path, nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("User-Agent", "calinix-metrics")
	resp, err := s.transport.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("%s answers %s", s.path, resp.Status)
	}
	return scrape.CacheTokens(resp.Body)
}
