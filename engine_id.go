package calinix

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/calinix/caddy-calinix/dispatch"
)

// engineCache remembers what a prefill pod's bootstrap server has said of its
// engine. An engine that starts anew has a new id.
type engineCache struct {
	mu sync.Mutex
	id string
	at time.Time
}

// engineAge is how long an id is believed: no engine starts in less.
const engineAge = 5 * time.Second

// engineTimeout and maxEngineAnswer bound the question and its answer.
const (
	engineTimeout   = 3 * time.Second
	maxEngineAnswer = 1 << 20
)

func (c *engineCache) get(now time.Time) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Sub(c.at) >= engineAge {
		return ""
	}
	return c.id
}

func (c *engineCache) put(id string, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.id, c.at = id, now
}

// forget makes the next request ask.
func (c *engineCache) forget() { c.put("", time.Time{}) }

// engineOf returns the id of a prefill pod's engine; it asks the pod's bootstrap
// server if that was not done in the last seconds.
func (h *Handler) engineOf(ctx context.Context, t *target) (id string, err error) {
	asked := h.now()
	if id = t.engine.get(asked); id != "" {
		return id, nil
	}
	ctx, cancel := context.WithTimeout(ctx, engineTimeout)
	defer cancel()
	answer, err := h.transport.get(ctx, t.peer.BootstrapURL(), nil, maxEngineAnswer)
	if err != nil {
		return "", fmt.Errorf("asking the bootstrap server: %w", err)
	}
	if id, err = dispatch.ReadEngine(answer, t.peer.Rank); err != nil {
		return "", err
	}
	t.engine.put(id, asked)
	return id, nil
}
