package main

import (
	"strings"
	"testing"

	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// consistent are the counters of five requests in dispatch mode: one was answered
// at once; one after its decode leg was refused; one after its prefill leg was lost;
// one ended with a prefill leg that was lost twice; of one the client left during
// the prefill leg.
const consistent = `
calinix_requests_total{balancer="dispatch",code="200",mode="disaggregated",pod="d1",role="decode"} 3
calinix_requests_total{balancer="dispatch",code="503",mode="disaggregated",pod="d2",role="decode"} 1
calinix_requests_total{balancer="dispatch",code="200",mode="disaggregated",pod="p1",role="prefill"} 3
calinix_requests_total{balancer="dispatch",code="502",mode="disaggregated",pod="p2",role="prefill"} 3
calinix_requests_total{balancer="dispatch",code="499",mode="disaggregated",pod="p1",role="prefill"} 1
calinix_retries_total{balancer="dispatch",reason="refused_5xx"} 1
calinix_retries_total{balancer="dispatch",reason="lost_waiting"} 2
calinix_prefill_failures_total{balancer="dispatch",reason="lost_waiting"} 3
`

func consistentEnds() *ends {
	return &ends{codes: map[string]float64{"200": 3}, prefill: map[string]float64{"lost_waiting": 1, "client_gone": 1}}
}

func compared(t *testing.T, text string, e *ends) []string {
	t.Helper()
	m, err := testcaddy.ParseMetrics(strings.TrimPrefix(text, "\n"))
	if err != nil {
		t.Fatal(err)
	}
	c := newChecker()
	c.counters(m, "dispatch", e)
	return c.violations()
}

// TestCountersAgree: counters that fit the log are no violation, and each that is
// one off, either way, is.
func TestCountersAgree(t *testing.T) {
	if got := compared(t, consistent, consistentEnds()); len(got) != 0 {
		t.Errorf("violations of what is consistent: %q", got)
	}
	lines := strings.Split(strings.TrimSpace(consistent), "\n")
	for k, line := range lines {
		if strings.Contains(line, `code="200"`) && strings.Contains(line, `role="prefill"`) {
			continue // answered prefill legs are not compared: a decode leg may have needed another one
		}
		at := strings.LastIndexByte(line, ' ') + 1
		for _, by := range []int{-1, 1} {
			changed := append([]string(nil), lines...)
			changed[k] = line[:at] + string(rune(int(line[at])+by))
			if got := compared(t, strings.Join(changed, "\n")+"\n", consistentEnds()); len(got) == 0 {
				t.Errorf("no violation with %s", changed[k])
			}
		}
	}
}

// TestViolationsList: the counters come first, and of each kind a few.
func TestViolationsList(t *testing.T) {
	c := newChecker()
	for k := range most + 3 {
		c.requestLocked("request %d", k)
	}
	c.violate("counter %d", 7)
	got := c.violations()
	if len(got) != most+2 || got[0] != "counter 7" || got[most+1] != `and 3 more of the kind "request %d"` {
		t.Errorf("%q", got)
	}
}
