package main

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/calinix/caddy-calinix/internal/bench/gobench"
)

// row is a row of the table. It may have several quantities, each with a bound of
// its own; all have to be kept.
type row struct {
	name string
	of   []quantity
}

// quantity is one figure, or one of each strategy, of which the greater counts.
type quantity struct {
	values []func(f gobench.Figures) float64
	unit   string
	must   float64
	aim    float64
}

var strategies = []string{"cacheAware", "expectedTTFT"}

// decision is a figure of a decision with each strategy.
func decision(name, unit, shown string, must, aim float64) quantity {
	q := quantity{unit: shown, must: must, aim: aim}
	for _, s := range strategies {
		q.values = append(q.values, of(name+"/"+s, unit, 1))
	}
	return q
}

// single is a figure that has nothing to do with strategies.
func single(name, unit string, factor float64, shown string, must, aim float64) quantity {
	return quantity{values: []func(gobench.Figures) float64{of(name, unit, factor)}, unit: shown, must: must, aim: aim}
}

// of reads a figure; one that is not there is no number, and keeps no bound.
func of(name, unit string, factor float64) func(gobench.Figures) float64 {
	return func(f gobench.Figures) float64 {
		v, ok := f[name][unit]
		if !ok {
			return math.NaN()
		}
		return v * factor
	}
}

// ratio is a quotient of two gobench.Figures.
func ratio(a, b func(gobench.Figures) float64) func(gobench.Figures) float64 {
	return func(f gobench.Figures) float64 { return a(f) / b(f) }
}

var table = []row{
	{"8 KiB, 256 pods, block 32, half held by all", []quantity{decision("Decision/8KiB/pods=256/block=32", "Y", "Y", 1.15, 0.80)}},
	{"8 KiB, 16 pods, block 16", []quantity{decision("Decision/8KiB/pods=16/block=16", "Y", "Y", 1.30, 0.95)}},
	{"8 KiB, a JSON escape each 80 bytes", []quantity{decision("Decision/8KiB/escapes", "Y", "Y", 1.40, 1.00)}},
	{"64 KiB, 256 pods, block 32", []quantity{decision("Decision/64KiB/pods=256/block=32", "Y", "Y", 0.95, 0.65)}},
	{"170 KB, 16 pods, block 32", []quantity{decision("Decision/170KB/pods=16/block=32", "Y", "Y", 0.65, 0.45)}},
	{"8 KiB / 64 KiB, nothing cached anywhere", []quantity{
		decision("Decision/8KiB/cold", "Y", "Y", 0.50, 0.30),
		decision("Decision/64KiB/cold", "Y", "Y", 0.12, 0.06),
	}},
	{"1 KiB, 256 pods", []quantity{decision("Decision/1KiB/pods=256/block=32", "Y", "Y", 3.0, 2.0)}},
	{"allocations a decision", []quantity{
		decision("Decision/8KiB/pods=256/block=32", "allocs/op", "", 4, 0),
		decision("Decision/8KiB/pods=256/block=32", "B/op", "B", 256, 0),
	}},
	{"all CPU, background included", []quantity{decision("DecisionCPU", "Y", "Y", 2.0, 1.5)}},
	{"256 pods versus 16 pods, same prompt", []quantity{{
		values: []func(gobench.Figures) float64{againstSixteen("cacheAware"), againstSixteen("expectedTTFT")}, unit: "x", must: 1.5, aim: 1.15,
	}}},
	{"look-up that hits, 1M blocks", []quantity{single("Lookup/blocks=1000000", "p10-ns/block", 1, "ns", 150, 100)}},
	{"memory: a block; a (block, pod) entry", []quantity{
		single("Memory/blocks=1000000", "B/block", 1, "B", 80, 56),
		single("Memory/blocks=1000000", "B/entry", 1, "B", 24, 16),
	}},
	{"touch of 256 blocks that are there", []quantity{single("Touch256/after=query", "p10-ns/chain", 1e-3, "µs", 4, 1.5)}},
	{"readers beside 2 writers against none", []quantity{{
		values: []func(gobench.Figures) float64{ratio(of("Readers/beside=writers", "p50-ns/block", 1), of("Readers/beside=nobody", "p50-ns/block", 1))},
		unit:   "x", must: 1.3, aim: 1.1,
	}}},
}

func againstSixteen(strategy string) func(gobench.Figures) float64 {
	return ratio(of("Decision/8KiB/pods=256/block=32/"+strategy, "p10-ns", 1), of("Decision/8KiB/pods=16/block=32/"+strategy, "p10-ns", 1))
}

// print prints the table. The last word of each row says whether all its bounds
// are kept; neither word stands anywhere else in what is printed.
func print(w io.Writer, f gobench.Figures) {
	fmt.Fprintf(w, "%-46s %-16s %-16s %-16s %s\n", "a decision", strategies[0], strategies[1], "must", "aim")
	for _, r := range table {
		fmt.Fprintln(w, r.line(f))
	}
}

func (r row) line(f gobench.Figures) string {
	var columns [4][]string
	verdict := "pass"
	for _, q := range r.of {
		for i, value := range q.values {
			v := value(f)
			columns[i] = append(columns[i], show(v)+" "+q.unit)
			if !(v <= q.must) { // nor if it is no number
				verdict = "miss"
			}
		}
		columns[2] = append(columns[2], show(q.must)+" "+q.unit)
		columns[3] = append(columns[3], show(q.aim)+" "+q.unit)
	}
	line := fmt.Sprintf("%-46s", r.name)
	for _, c := range columns {
		line += fmt.Sprintf(" %-16s", strings.Join(c, " / "))
	}
	return line + " " + verdict
}

// show writes a number with as many digits as mean something.
func show(v float64) string {
	if v == math.Trunc(v) || math.Abs(v) >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
