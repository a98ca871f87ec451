package main

import (
	"fmt"
	"slices"
	"time"
)

const header = `| requests/s | pods | first token p50 | p99 | a further token p50 | p99 | whole answer p50 | answers/s | tokens/s |
|---|---|---|---|---|---|---|---|---|
`

// line is the result as a line of the table. What is done a second is measured in
// tokens, in the second half of the time in which requests are sent.
func (r *result) line(pods string, rate float64) string {
	each := float64(r.tokens) / r.half.Seconds()
	return fmt.Sprintf("| %g | %s | %.0f ms | %.0f ms | %.1f ms | %.1f ms | %.2f s | %.1f | %.0f |\n", rate, pods,
		ms(quantile(r.first, 0.5)), ms(quantile(r.first, 0.99)), ms(quantile(r.each, 0.5)), ms(quantile(r.each, 0.99)),
		quantile(r.whole, 0.5).Seconds(), each/float64(r.output), each)
}

// quantile returns the q-quantile.
func quantile(v []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(v))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
