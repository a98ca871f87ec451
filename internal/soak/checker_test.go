package main

import (
	"strings"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/fakepod"
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
	c := new(checker)
	c.figures.retries, c.figures.prefills = map[string]float64{}, map[string]float64{}
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

// TestUnaccepted: a request that got no answer is excused by a reload only if its
// connection was the replaced server's and that server was closing connections.
func TestUnaccepted(t *testing.T) {
	zero := time.Now()
	at := func(s float64) time.Time { return zero.Add(time.Duration(s * float64(time.Second))) }
	for name, tc := range map[string]struct {
		opened, began, ended float64
		want                 bool
	}{
		"during the reload":                 {1, 10.1, 10.2, true},
		"began before it, ended in it":      {1, 5, 10.2, true},
		"ended before it":                   {1, 5, 9.9, false},
		"while the old server still served": {1, 12.5, 12.6, true},
		"after the old server":              {1, 14.1, 14.2, false},
		"a connection of the new server":    {11.5, 12, 12.1, false},
	} {
		c := &checker{loads: []span{{at(10), at(11)}}, records: map[string]*record{
			"long": {answer: &answer{began: at(9), ended: at(13)}},
		}}
		c.drained()
		if got := c.reloading(&answer{opened: at(tc.opened), began: at(tc.began), ended: at(tc.ended)}); got != tc.want {
			t.Errorf("%s: excused %v, want %v", name, got, tc.want)
		}
	}
}

// TestSecondGeneration: only a used connection that broke within 100 ms excuses
// one, and one at another pod only if the first is gone.
func TestSecondGeneration(t *testing.T) {
	zero := time.Now()
	broke := func(after time.Duration, gone bool) *pod {
		p := &pod{Pod: new(fakepod.Pod)}
		p.breaks = []breakage{{span{zero.Add(after), zero.Add(after + time.Millisecond)}, gone}}
		return p
	}
	soon, late, gone := broke(50*time.Millisecond, false), broke(120*time.Millisecond, false), broke(50*time.Millisecond, true)
	for name, tc := range map[string]struct {
		all  []generation
		want int
	}{
		"within the time":        {[]generation{{soon, zero, true}, {soon, zero.Add(60 * time.Millisecond), false}}, 0},
		"later":                  {[]generation{{late, zero, true}, {late, zero.Add(130 * time.Millisecond), false}}, 1},
		"a fresh connection":     {[]generation{{soon, zero, false}, {soon, zero.Add(60 * time.Millisecond), false}}, 1},
		"another pod":            {[]generation{{soon, zero, true}, {late, zero.Add(60 * time.Millisecond), false}}, 1},
		"another, as it is gone": {[]generation{{gone, zero, true}, {late, zero.Add(60 * time.Millisecond), false}}, 0},
		"a third one":            {[]generation{{soon, zero, true}, {soon, zero, true}, {soon, zero, false}}, 1},
	} {
		c := new(checker)
		c.figures.clients, c.figures.protocols = map[string]int{}, map[string]int{}
		c.request("r", &record{
			answer:  &answer{began: zero, ended: zero, status: 200, whole: true},
			entries: []entry{{status: 200, outcome: "answered"}}, generations: tc.all,
		})
		if got := c.violations(); len(got) != tc.want {
			t.Errorf("%s: %q, want %d", name, got, tc.want)
		}
	}
}

// TestViolationsList: the counters come first, and of each kind a few.
func TestViolationsList(t *testing.T) {
	c := new(checker)
	for k := range most + 3 {
		c.requestLocked("request %d", k)
	}
	c.violate("counter %d", 7)
	got := c.violations()
	if len(got) != most+2 || got[0] != "counter 7" || got[most+1] != `and 3 more of the kind "request %d"` {
		t.Errorf("%q", got)
	}
}
