// Command soak runs the real handler in a real Caddy process for a while, in front
// of pods that crash, restart, hang, flap, cut and slow down by a seeded script, with
// reloads in between and clients of which some leave, and checks what has to hold
// whatever happens:
//
//	go run ./internal/soak -duration 20m -report report.md
//
// It needs no race detector and nothing installed but Go. The exit status is 1 if
// something did not hold; the report says what, and has the figures.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// settings are those of a run.
type settings struct {
	duration time.Duration
	report   string
	rate     int // requests a second
	seed     uint64
	single   int // pods
	prefill  int
	decode   int
}

func main() {
	var s settings
	flag.DurationVar(&s.duration, "duration", time.Minute, "how long, warm-up included")
	flag.StringVar(&s.report, "report", "", "file for the report, in Markdown; standard output without one")
	flag.IntVar(&s.rate, "rate", 250, "requests a second")
	flag.Uint64Var(&s.seed, "seed", 1, "of the script of faults, and of the requests")
	flag.IntVar(&s.single, "single", 6, "pods of single mode")
	flag.IntVar(&s.prefill, "prefill", 3, "prefill pods")
	flag.IntVar(&s.decode, "decode", 3, "decode pods")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ok, err := run(ctx, s)
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// run is the whole of a run; ok says that everything held.
func run(ctx context.Context, s settings) (ok bool, err error) {
	c := newChecker()
	pods, err := startPods(s, c)
	if err != nil {
		return false, err
	}
	defer pods.close()
	caddy, err := startCaddy(ctx, pods, c)
	if err != nil {
		return false, err
	}
	defer caddy.kill()

	began := time.Now()
	load := newLoad(s, caddy, c)
	watch := startWatch(ctx, caddy, c)
	script := newScript(s, pods, caddy, c)

	load.start(ctx)
	script.run(ctx, began.Add(min(s.duration/4, 2*time.Minute)))
	warm := load.rest(ctx, caddy, func(measured) bool { return true })
	fmt.Fprintf(os.Stderr, "soak: warm after %v: %v\n", time.Since(began).Round(time.Second), warm)
	load.start(ctx)
	script.run(ctx, began.Add(s.duration-idle-looking))
	end := load.rest(ctx, caddy, func(m measured) bool { return len(growth(warm, m)) == 0 })
	fmt.Fprintf(os.Stderr, "soak: at the end: %v\n", end)

	watch.stop()
	last := caddy.settle(ctx, c)
	if err := caddy.stop(); err != nil {
		c.violate("the process: %v", err)
	}
	for _, g := range growth(warm, end) {
		c.violate("%s", g)
	}
	c.busy = load.busy
	c.account(last)
	text := report(s, time.Since(began), c, script, warm, end)
	if s.report == "" {
		fmt.Print(text)
	} else if err := os.WriteFile(s.report, []byte(text), 0o600); err != nil {
		return false, err
	}
	violations := c.violations()
	for _, v := range violations {
		fmt.Fprintln(os.Stderr, "soak: VIOLATION:", v)
	}
	return len(violations) == 0, ctx.Err()
}
