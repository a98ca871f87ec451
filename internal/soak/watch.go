package main

import (
	"context"
	"sync"
	"time"

	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// sample is a scrape's part of the budget.
type sample struct {
	at      time.Time
	sends   int
	retries float64 // less the prefill legs that failed
	failed  int     // see checker
}

// watch looks at the metrics all the time.
type watch struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
}

func startWatch(ctx context.Context, ca *caddy, c *checker) *watch {
	ctx, cancel := context.WithCancel(ctx)
	w := &watch{cancel: cancel}
	w.done.Go(func() {
		samples := map[string][]sample{}
		for tick := time.NewTicker(time.Second); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
				m, err := ca.metrics(ctx)
				if err != nil {
					if ctx.Err() == nil {
						c.violate("scraping: %v", err)
					}
					continue
				}
				c.look(m, samples)
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
func (c *checker) look(m testcaddy.Metrics, samples map[string][]sample) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f, now := &c.figures, time.Now()
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
		all := append(samples[balancer], sample{now, c.sends[balancer], m.Sum("calinix_retries_total", "balancer", balancer) - m.Sum("calinix_prefill_failures_total", "balancer", balancer), 0})
		if balancer == "dispatch" {
			all[len(all)-1].failed = c.failed
		}
		samples[balancer] = all
		// The budget's window is ten seconds; requests are counted when they
		// come, which the scrape before the window may not have seen yet.
		last := all[len(all)-1]
		for k, s := range all {
			if now.Sub(s.at) > 10*time.Second {
				continue
			}
			// A prefill leg that failed was tried again, outside the budget, or has
			// ended its request. The log may be a scrape late in saying the latter.
			retries := last.retries - s.retries + float64(last.failed-all[min(k+1, len(all)-1)].failed)
			requests := last.sends - all[max(0, k-2)].sends
			if retries > max(3, 0.1*float64(requests))+1 {
				c.violateLocked("%s: %v retries within %v, in which there were %d requests", balancer, retries, now.Sub(s.at), requests)
			}
			if now.Sub(s.at) > 9*time.Second && requests > 0 {
				f.worstBudget = max(f.worstBudget, retries/float64(requests))
			}
			break
		}
	}
}
