package main

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"
)

// report is the page.
func report(s settings, took time.Duration, c *checker, sc *script, warm, end measured) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := &c.figures
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	counts := func(m map[string]int) string {
		var parts []string
		for _, k := range slices.Sorted(maps.Keys(m)) {
			parts = append(parts, fmt.Sprintf("%s %d", k, m[k]))
		}
		return strings.Join(parts, ", ")
	}
	line("# Soak\n")
	line("%v, %d requests (%.0f/s while they were sent), seed %d, %d single, %d prefill and %d decode pods, %s %s/%s with %d processors.\n",
		took.Round(time.Second), c.sent.Load(), float64(c.sent.Load())/c.busy.Seconds(), s.seed, s.single, s.prefill, s.decode,
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	line("| | |\n|---|---|")
	line("| not sent, since %d ran already | %d |", crowd, c.held.Load())
	line("| faults | %s |", counts(sc.counts))
	line("| reloads | %d |", sc.loads)
	line("| clients over | %s |", counts(f.protocols))
	line("| clients saw | %s |", counts(f.clients))
	line("| outcomes in the access log | %s |", counts(f.outcomes))
	line("| no answer: a reload closed the connection before a handler had the request | %s |", counts(f.unaccepted))
	line("| the same of %d requests to a handler of Caddy's own | %d |", f.controls, f.unanswered)
	line("| until the first byte of the body, p50 and p99 | %v, %v |", quantile(f.firsts, 0.5), quantile(f.firsts, 0.99))
	line("| until the end, p50 and p99 | %v, %v |", quantile(f.took, 0.5), quantile(f.took, 0.99))
	line("| retries | %s; in single mode at most %.1f %% of the requests of 10 s |", nonzero(f.retries), 100*f.worstBudget)
	line("| further tries of prefill legs | %s |", nonzero(f.prefills))
	line("| sent again on a fresh connection, within the 100 ms, after the pod had begun | %d |", f.twice)
	line("| index, at most | %.0f of %d blocks |", f.blocks, ceiling)
	line("| bodies, at most | %.1f MiB |", f.bodies/(1<<20))
	line("| at rest, warm | %v |", warm)
	line("| at rest, at the end | %v |", end)
	line("| scrapes during a reload, without a series of ours | %d |", f.bare)
	line("| most seen in %d scrapes | %.0f goroutines, %.1f MiB resident |\n", f.scrapes, f.goroutines, f.resident/(1<<20))
	violations := c.violations()
	if len(violations) == 0 {
		line("Everything held. Every request that a handler or a pod had ended once, and client, access log, pods and counters")
		line("agree on how; the others were on a connection, or on the way to one, that a reload closed. At rest, gauges are back")
		line("to zero, and goroutines, open files and heap are what they were. The indexes kept their ceiling and retries their")
		line("budget. No request was generated twice but by the rule for reused connections.")
		return b.String()
	}
	line("## Violations \n")
	for _, v := range violations {
		line("- %s", v)
	}
	return b.String()
}

func quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[int(q*float64(len(sorted)-1))].Round(time.Millisecond / 10)
}

// nonzero lists the counts that are not 0.
func nonzero(m map[string]float64) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if m[k] != 0 {
			parts = append(parts, fmt.Sprintf("%s %v", k, m[k]))
		}
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}
