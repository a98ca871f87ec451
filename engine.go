package calinix

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
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

// engineTimeout bounds the question.
const engineTimeout = 3 * time.Second

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
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.peer.BootstrapURL(), nil)
	if err != nil {
		return "", err
	}
	resp, err := h.transport.pooled.RoundTrip(forProbe(req))
	if err != nil {
		return "", fmt.Errorf("asking the bootstrap server: %w", err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	switch {
	case err != nil:
		return "", fmt.Errorf("asking the bootstrap server: %w", err)
	case resp.StatusCode != http.StatusOK:
		return "", errors.New("the bootstrap server answers with " + resp.Status)
	}
	if id, err = dispatch.ReadEngine(answer, t.peer.Rank); err != nil {
		return "", err
	}
	t.engine.put(id, asked)
	return id, nil
}
