package main

import (
	"maps"
	"slices"

	"github.com/calinix/caddy-calinix/internal/testcaddy"
	"github.com/calinix/caddy-calinix/retry"
)

// ends are how a balancer's requests ended, as the access log has it.
type ends struct {
	codes   map[string]float64 // by the last leg's code, unless that was a prefill leg at a pod
	prefill map[string]float64 // the others, by outcome
}

func newEnds() *ends { return &ends{map[string]float64{}, map[string]float64{}} }

// tryCode is the code of a leg that ended so and was tried again, of the reasons
// for which the legs of each kind may be. All refusals of the soak's pods are 503s.
var tryCode = map[string]map[string]string{
	"single":  {"unreachable": "502", "lost_sending": "502", "refused_5xx": "503"},
	"prefill": {"unreachable": "502", "lost_sending": "502", "refused_5xx": "503", "lost_waiting": "502", "timed_out": "504", "cut": "cut", "unusable": "502"},
}

// outcomes are the values of the label reason.
var outcomes = []string{
	"answered", "refused_4xx", "refused_5xx", "unreachable", "lost_sending", "lost_waiting", "timed_out", "client_gone",
	"cut", "unusable", "unsent", "dropped", "no_pod", "overloaded", "rejected",
}

// counters compares a balancer's counters with how its requests ended.
//
// calinix_retries_total has the tries of both legs in one series. A prefill leg that
// failed, which calinix_prefill_failures_total counts, has either ended its request
// or was tried again: that tells them apart. Guarded by mu.
func (c *checker) counters(last testcaddy.Metrics, balancer string, ended *ends) {
	prefill := map[string]float64{"499": ended.prefill["client_gone"]}
	known, knownFailed, budgeted := 0.0, 0.0, 0.0
	requests, windows := float64(c.sends[balancer]), float64(c.busy)/float64(retry.Window)+1
	for _, reason := range outcomes {
		all := last.Get("calinix_retries_total", "balancer", balancer, "reason", reason)
		failed := last.Get("calinix_prefill_failures_total", "balancer", balancer, "reason", reason)
		known, knownFailed = known+all, knownFailed+failed
		code, may := tryCode["prefill"][reason]
		if failed != 0 && !may {
			c.violateLocked("%s: calinix_prefill_failures_total has %v for %s, for which there are none", balancer, failed, reason)
		}
		again := failed
		if may {
			prefill[code] += failed
			again -= ended.prefill[reason]
		}
		if again < 0 {
			c.violateLocked("%s: %v requests ended with a prefill leg that was %s, calinix_prefill_failures_total has %v", balancer, ended.prefill[reason], reason, failed)
		}
		retries := all - again
		if code, may = tryCode["single"][reason]; may {
			ended.codes[code] += retries
		}
		if retries < 0 || retries > 0 && !may {
			c.violateLocked("%s: calinix_retries_total has %v for %s, of which %v are of prefill legs", balancer, all, reason, again)
		}
		budgeted += retries
		c.figures.retries[reason] += retries
		c.figures.prefills[reason] += again
	}
	if budgeted > share*requests+retry.Always*windows {
		c.violateLocked("%s: %v retries of %v requests, in %.1f times ten seconds", balancer, budgeted, requests, windows)
	}
	if all := last.Sum("calinix_retries_total", "balancer", balancer); all != known {
		c.violateLocked("%s: calinix_retries_total has %v in all, %v for the known reasons", balancer, all, known)
	}
	if all := last.Sum("calinix_prefill_failures_total", "balancer", balancer); all != knownFailed {
		c.violateLocked("%s: calinix_prefill_failures_total has %v in all, %v for the known reasons", balancer, all, knownFailed)
	}

	const name = "calinix_requests_total"
	total := func(m map[string]float64) (sum float64) {
		for _, n := range m {
			sum += n
		}
		return sum
	}
	final := func(code ...string) float64 {
		return last.Sum(name, append([]string{"balancer", balancer, "role", "single"}, code...)...) +
			last.Sum(name, append([]string{"balancer", balancer, "role", "decode"}, code...)...) +
			last.Sum(name, append([]string{"balancer", balancer, "role", "prefill", "pod", ""}, code...)...)
	}
	atPods := func(code ...string) float64 {
		return last.Sum(name, append([]string{"balancer", balancer, "role", "prefill"}, code...)...) -
			last.Sum(name, append([]string{"balancer", balancer, "role", "prefill", "pod", ""}, code...)...)
	}
	for _, code := range slices.Sorted(maps.Keys(ended.codes)) {
		if n := final("code", code); n != ended.codes[code] {
			c.violateLocked("%s: %s has %v with code %s, log and retries make %v", balancer, name, n, code, ended.codes[code])
		}
	}
	if all, sum := final(), total(ended.codes); all != sum {
		c.violateLocked("%s: %s has %v in all, log and retries make %v", balancer, name, all, sum)
	}
	for _, code := range slices.Sorted(maps.Keys(prefill)) {
		if n := atPods("code", code); n != prefill[code] {
			c.violateLocked("%s: %s has %v prefill legs with code %s, log and failures make %v", balancer, name, n, code, prefill[code])
		}
	}
	if all, sum := atPods()-atPods("code", "200"), total(prefill); all != sum {
		c.violateLocked("%s: %s has %v prefill legs that were not answered, log and failures make %v", balancer, name, all, sum)
	}
}
