package main

import (
	"context"
	"fmt"
	"time"
)

// idlePods is how many pods the idle proxies watch over.
const idlePods = 100

// idle prints the processor time that both proxies take when no request comes,
// with probes every 2 s to each of 100 pods.
func idle(ctx context.Context, o options, dir string) error {
	b, err := startBench(ctx, o, dir, idlePods)
	if err != nil {
		return err
	}
	defer b.stop()
	time.Sleep(5 * time.Second) // the first probes open connections
	before := [2]time.Duration{}
	proxies := [2]*caddy{b.stock, b.calinix}
	for i, p := range proxies {
		if before[i], err = p.cpu(); err != nil {
			return err
		}
	}
	select {
	case <-time.After(o.idle):
	case <-ctx.Done():
		return ctx.Err()
	}
	for i, name := range []string{"stock reverse_proxy", "calinix"} {
		after, err := proxies[i].cpu()
		if err != nil {
			return err
		}
		fmt.Printf("idle with %d pods, %v: %s %.4f cores\n", idlePods, o.idle, name, (after-before[i]).Seconds()/o.idle.Seconds())
	}
	return nil
}
