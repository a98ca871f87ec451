package replay

import (
	"fmt"
	"io"
)

// WriteTable writes the results as a table, a policy a line. Results of different
// rates are different tables.
func WriteTable(w io.Writer, results []*Result) error {
	rate := -1.0
	for _, r := range results {
		if r.Rate != rate {
			rate = r.Rate
			if _, err := fmt.Fprintf(w, "\n%.2f requests a second; first bytes in ms, fair is Jain's index\n"+
				"%-17s %5s %6s | %8s %8s %8s %8s %8s | %6s | %6s %7s | %5s %5s %5s\n", rate,
				"policy", "hit %", "of max", "mean", "p50", "p95", "p99", "exc.p99", "good %", "token", "whole s",
				"busy", "reqs", "queue"); err != nil {
				return err
			}
		}
		if _, err := fmt.Fprintf(w, "%-17s %5.1f %6.1f | %8.0f %8.0f %8.0f %8.0f %8.0f | %6.2f | %6.1f %7.1f | %5.3f %5.3f %5d\n",
			r.Policy, 100*r.Hit, 100*r.HitBound, r.Mean, r.P50, r.P95, r.P99, r.ExcessP99, 100*r.Goodput,
			r.Token, r.Whole/1000, r.FairBusy, r.FairRequests, r.Queue); err != nil {
			return err
		}
	}
	return nil
}
