package replay

import (
	"encoding/csv"
	"io"
	"strconv"
)

// WriteCSV writes the results as comma-separated values, a run a line below a
// line of names. Times are in ms, shares from 0 to 1.
func WriteCSV(w io.Writer, results []*Result) error {
	out := csv.NewWriter(w)
	names := []string{"policy"}
	for _, c := range columns {
		names = append(names, c.name)
	}
	if err := out.Write(names); err != nil {
		return err
	}
	for _, r := range results {
		line := []string{r.Policy}
		for _, c := range columns {
			line = append(line, strconv.FormatFloat(c.of(r), 'g', 6, 64))
		}
		if err := out.Write(line); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// columns are the figures of a result.
var columns = []struct {
	name string
	of   func(*Result) float64
}{
	{"rate", func(r *Result) float64 { return r.Rate }},
	{"mean", func(r *Result) float64 { return r.Mean }},
	{"p50", func(r *Result) float64 { return r.P50 }},
	{"p95", func(r *Result) float64 { return r.P95 }},
	{"p99", func(r *Result) float64 { return r.P99 }},
	{"excess_mean", func(r *Result) float64 { return r.ExcessMean }},
	{"excess_p99", func(r *Result) float64 { return r.ExcessP99 }},
	{"goodput", func(r *Result) float64 { return r.Goodput }},
	{"hit", func(r *Result) float64 { return r.Hit }},
	{"hit_of_bound", func(r *Result) float64 { return r.HitBound }},
	{"token", func(r *Result) float64 { return r.Token }},
	{"whole", func(r *Result) float64 { return r.Whole }},
	{"fair_busy", func(r *Result) float64 { return r.FairBusy }},
	{"fair_requests", func(r *Result) float64 { return r.FairRequests }},
	{"queue", func(r *Result) float64 { return float64(r.Queue) }},
}
