package main

import (
	"context"
	"sync"
	"time"

	"github.com/calinix/caddy-calinix/internal/testcaddy"
	"github.com/calinix/caddy-calinix/retry"
)

// watch looks at the metrics all the time.
type watch struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
}

func startWatch(ctx context.Context, ca *caddy, c *checker) *watch {
	ctx, cancel := context.WithCancel(ctx)
	w := &watch{cancel: cancel}
	w.done.Go(func() {
		for tick := time.NewTicker(time.Second); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
				s := c.sample()
				m, err := ca.metrics(ctx)
				if err != nil {
					if ctx.Err() == nil {
						c.violate("scraping: %v", err)
					}
					continue
				}
				c.look(m, s)
			}
		}
	})
	return w
}

func (w *watch) stop() {
	w.cancel()
	w.done.Wait()
}

// look checks what must hold at any time.
func (c *checker) look(m testcaddy.Metrics, s sample) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := &c.figures
	if !m.Has("calinix_body_bytes", "balancer", "single") || !m.Has("calinix_body_bytes", "balancer", "dispatch") {
		f.bare++ // the admin listener of a configuration that is being loaded
		return
	}
	f.scrapes++
	f.goroutines = max(f.goroutines, m.Get("go_goroutines"))
	f.resident = max(f.resident, m.Get("process_resident_memory_bytes"))
	f.bodies = max(f.bodies, m.Sum("calinix_body_bytes"))
	for _, balancer := range []string{"single", "dispatch"} {
		blocks := m.Sum("calinix_index_blocks", "balancer", balancer)
		f.blocks = max(f.blocks, blocks)
		if blocks > ceiling {
			c.violateLocked("the index of %s has %v blocks, its ceiling is %d", balancer, blocks, ceiling)
		}
	}
	s.retries = m.Sum("calinix_retries_total", "balancer", "single")
	c.budget(s)
}

// sample is a scrape's part of the budget of single mode, whose retries are all
// under it. That of dispatch mode is judged at the end.
type sample struct {
	asked       time.Time
	sends, open int     // requests that clients had sent when it was asked, and of these that had not ended
	retries     float64 // as it was told
}

func (c *checker) sample() sample {
	c.mu.Lock()
	defer c.mu.Unlock()
	return sample{asked: time.Now(), sends: c.sends["single"], open: c.open["single"]}
}

// budget checks that the retries of ten seconds are a tenth of the requests that came
// in ten seconds: these were sent since, or on their way then. The product tells time
// in steps of a tenth of a second. Guarded by mu.
func (c *checker) budget(last sample) {
	now, from := time.Now(), last.asked.Add(-retry.Window-100*time.Millisecond)
	c.samples = append(c.samples, last)
	for len(c.samples) > 1 && c.samples[1].asked.Before(from) {
		c.samples = c.samples[1:]
	}
	before := c.samples[0]
	if before.asked.After(from) {
		before = sample{} // the run is younger
	}
	for _, first := range c.samples {
		if now.Sub(first.asked) > retry.Window {
			continue
		}
		retries, requests := last.retries-first.retries, c.sends["single"]-before.sends+before.open
		if retries > max(retry.Always, share*float64(requests)) {
			c.violateLocked("single: %v retries within %v, in which there were %d requests", retries, now.Sub(first.asked), requests)
		}
		c.figures.worstBudget = max(c.figures.worstBudget, retries/float64(max(1, requests)))
		break
	}
}

// mostGoroutines is how many have been seen at once.
func (c *checker) mostGoroutines() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return int(c.figures.goroutines)
}
