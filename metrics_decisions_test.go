package calinix_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// TestMetricDecisions: one observation a decision, in buckets from 1 µs to 1 ms.
func TestMetricDecisions(t *testing.T) {
	ps, pre, dec := pods(t, "a"), pods(t, "p"), pods(t, "d")
	s := serve(t, single(ps)+dispatch(pre, dec, "connector plain"), testcaddy.Plain())
	cl := s.Client(t, testcaddy.H1)
	for i, mode := range []string{"single", "dispatch", "single", "dispatch", "single"} {
		cl.Post(t, chatPath, chat(fmt.Sprint(i), `"max_tokens":3`), "x-calinix-mode", mode)
	}
	cl.Get(t, "/v1/models")                                    // a decision too, without a prompt
	cl.Post(t, chatPath, chat("hi"), "x-calinix-mode", "auto") // none
	s.waitCount(t, 6, "calinix_decision_duration_seconds_count")
	m := s.Metrics(t)
	if sum := m.Sum("calinix_decision_duration_seconds_sum", "balancer", s.balancer); sum <= 0 || sum > 60 {
		t.Errorf("the six took %v s", sum)
	}
	var bounds []float64
	for key := range s.series(t, "calinix_decision_duration_seconds_bucket") {
		bound, err := strconv.ParseFloat(strings.Trim(strings.TrimPrefix(key, "le="), `"`), 64)
		if err != nil {
			t.Fatalf("bucket %q: %v", key, err)
		}
		bounds = append(bounds, bound)
	}
	slices.Sort(bounds)
	if n := len(bounds); n < 5 || bounds[0] != 1e-6 || bounds[n-2] != 1e-3 {
		t.Errorf("buckets %v, want 1e-6 to 1e-3 and +Inf", bounds)
	}
	before := 0.0
	for _, b := range bounds {
		le := strconv.FormatFloat(b, 'g', -1, 64)
		v := m.Get("calinix_decision_duration_seconds_bucket", "balancer", s.balancer, "le", le)
		if v < before || v > 6 {
			t.Errorf("bucket %s: %v after %v", le, v, before)
		}
		before = v
	}
	if before != 6 {
		t.Errorf("%v observations at most +Inf", before)
	}
}

// TestMetricPrefixBlocks: a prompt's blocks are hits as far as the pod holds
// them, the rest misses; in dispatch mode the prefill pod's.
func TestMetricPrefixBlocks(t *testing.T) {
	ps, pre, dec := pods(t, "a"), pods(t, "p"), pods(t, "d")
	s := serve(t, "block_size 4\n"+single(ps)+dispatch(pre, dec, "connector plain"), testcaddy.Plain())
	cl := s.Client(t, testcaddy.H1)
	hits, misses := 0, 0
	for _, mode := range []string{"single", "dispatch"} {
		for _, prompt := range []string{words("w", 30), words("w", 30), words("w", 30) + words("x", 21), words("y", 9)} {
			body := chat(prompt, `"max_tokens":3`)
			blocks := len(s.explain(t, "", body, "x-calinix-mode", mode).Chain)
			a := cl.Post(t, chatPath, body, "x-calinix-mode", mode)
			depth, err := strconv.Atoi(a.Header.Get("X-Calinix-Cache-Prefix-Depth"))
			if err != nil || depth > blocks {
				t.Fatalf("depth of %d blocks: %v", blocks, a)
			}
			hits, misses = hits+depth, misses+blocks-depth
		}
	}
	if hits < 4*7 || misses < 2*(8+5+2) {
		t.Errorf("%d hits, %d misses: the test's prompts are not what they should be", hits, misses)
	}
	cl.Get(t, "/v1/models") // has no blocks
	s.wantSeries(t, "calinix_prefix_blocks_total", map[string]float64{`result="hit"`: float64(hits), `result="miss"`: float64(misses)})
}
