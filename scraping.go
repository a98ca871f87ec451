package calinix

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
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
	transport *podTransport
}

// scraping reads it from the handler's effective configuration.
func (h *Handler) scraping() scraping {
	m := h.effective.EngineMetrics
	return scraping{enabled: *m.Enabled, path: m.Path, interval: time.Duration(*m.Interval), transport: h.transport}
}

// maxMetrics bounds the metrics of an engine.
const maxMetrics = 16 << 20

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
	pods := slices.DeleteFunc(b.fleet.Snapshot(), func(s fleet.Status) bool { return !s.Up })
	eachPod(pods, func(i int) {
		pod := &pods[i]
		tokens, err := s.cacheOf(ctx, pod.URL)
		if errors.Is(ctx.Err(), context.Canceled) {
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
		switch fields := []zap.Field{zap.String("pod", pod.ID)}; {
		case old == news:
		case err != nil:
			b.logger().Warn("the metrics of a pod do not tell the size of its cache", append(fields, zap.Error(err))...)
		default:
			b.logger().Info("size of a pod's cache", append(fields, zap.Int64("tokens", tokens))...)
		}
	})
}

// cacheOf reads the metrics of one pod.
func (s *scraping) cacheOf(ctx context.Context, url string) (tokens int64, err error) {
	header := http.Header{"User-Agent": {"calinix-metrics"}}
	text, err := s.transport.get(ctx, strings.TrimSuffix(url, "/")+s.path, header, maxMetrics)
	if err != nil {
		return 0, err
	}
	return scrape.CacheTokens(bytes.NewReader(text))
}
