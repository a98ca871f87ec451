package calinix

import (
	"mime"
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/calinix/caddy-calinix/fleet"
	"github.com/calinix/caddy-calinix/observe"
	"github.com/calinix/caddy-calinix/outcome"
	"github.com/calinix/caddy-calinix/prompt"
)

// watches says whether what the engine says of the prompt's tokens in its answer
// is the truth about the pod's cache. To a decode pod a prompt that was handed
// over is a cached one. Prefill legs are read where their answer is.
func (x *exchange) watches(kind outcome.Leg) bool {
	return x.asked.sequences == 1 && (kind == outcome.Single || kind == outcome.Decode && x.route.prefill == "")
}

// listen begins to look at the answer as it passes, if it is one that says
// something of the prompt.
func (l *leg) listen(resp *http.Response) {
	if !l.watch || resp.StatusCode != http.StatusOK || len(contentCodings(resp.Header)) > 0 {
		return
	}
	switch kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind {
	case "text/event-stream":
		l.meter.Begin(observe.Events, l.shape == prompt.Messages)
	case "application/json":
		l.meter.Begin(observe.JSON, false)
	}
}

// compare compares what the pod's engine says of the prompt with what was
// expected when the pod was picked, and counts both. It comes before the lease's
// end.
func (x *exchange) compare(now time.Time, kind outcome.Leg, lease *fleet.Lease, l *leg, out outcome.Outcome) {
	if l.watch {
		l.said = l.meter.End()
	}
	if kind != outcome.Prefill && x.h.logTrace {
		if x.output = l.said.Output; x.output == 0 {
			x.output = int64(l.meter.Pieces())
		}
	}
	if out != outcome.Answered || lease.Tokens == 0 || kind != outcome.Prefill && !x.watches(kind) {
		return
	}
	x.said = l.said
	length := lease.Tokens
	if l.said.Prompt > 0 {
		length = l.said.Prompt
	}
	share := float64(length) / float64(lease.Tokens)
	id, name := lease.Pod().ID, x.h.state.name
	count := func(stage string, tokens float64) {
		x.h.metrics.cacheTokens.WithLabelValues(name, stage, id).Add(tokens)
	}
	count("prompt", float64(length))
	count("available", float64(lease.Available)*share)
	count("captured", float64(lease.Covered)*share)
	c := lease.Compare(now, fleet.Word{Prompt: l.said.Prompt, Cached: l.said.Cached, HasCached: l.said.HasCached})
	if !c.Known {
		return
	}
	x.heard = true
	count("expected", float64(c.Expected))
	count("delivered", float64(c.Delivered))
	switch {
	case !c.Turned:
	case c.Stale:
		x.h.state.doubted(id, c.Room)
	default:
		x.h.state.believed(id, "it delivers what is expected of it")
	}
}

// doubted makes known that a pod has become stale.
func (b *balancer) doubted(pod string, room int) {
	b.logger().Warn("pod is stale", zap.String("pod", pod), zap.Int("blocks", room),
		zap.String("reason", "its engine finds less than half of what its cache is expected to hold"))
}

// believed makes known that a pod is not stale any more.
func (b *balancer) believed(pod, reason string) {
	b.logger().Info("pod is not stale any more", zap.String("pod", pod), zap.String("reason", reason))
}
