package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
)

func printHeader(w io.Writer, o options) {
	fmt.Fprintf(w, "%s/%s, %d cores; %d engines at %g tokens/s, answers of %d tokens; %d pairs of turns of %v; medians [95 %% interval]\n",
		runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), o.engines, o.decode, answerTokens, o.pairs, o.turn)
	fmt.Fprintf(w, "%-12s %18s %26s %28s %26s %24s %18s\n", "body@conc", "p50 stock/ours ms",
		"added p50 %", "added first byte p50 ms", "added p99 ms", "CPU a request, ratio", "rate stock/ours /s")
}

func (r result) addedShare() interval {
	return medianOf(each(r.stock.total50, r.calinix.total50, func(a, b float64) float64 { return 100 * (b/a - 1) }))
}

func (r result) addedFirst() interval {
	return medianOf(each(r.stock.first50, r.calinix.first50, minus))
}

func (r result) added99() interval { return medianOf(each(r.stock.total99, r.calinix.total99, minus)) }

func (r result) cpuRatio() interval {
	return medianOf(each(r.stock.cpu, r.calinix.cpu, func(a, b float64) float64 { return b / a }))
}

func minus(a, b float64) float64 { return b - a }

func (r result) print(w io.Writer) {
	fmt.Fprintf(w, "%-12s %8.2f / %7.2f %26s %28s %26s %24s %8.0f / %6.0f\n", r.cell,
		medianOf(r.stock.total50).median, medianOf(r.calinix.total50).median,
		r.addedShare().text(2), r.addedFirst().text(3), r.added99().text(2), r.cpuRatio().text(3),
		medianOf(r.stock.rate).median, medianOf(r.calinix.rate).median)
}

func (i interval) text(digits int) string {
	return fmt.Sprintf("%.*f [%.*f, %.*f]", digits, i.median, digits, i.low, digits, i.high)
}

// writeCSV writes a line a cell: what docs/performance.md and its plots are made
// from.
func writeCSV(path string, results []result) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := csv.NewWriter(f)
	columns := []string{"body_bytes", "concurrency", "stock_p50_ms", "calinix_p50_ms"}
	for _, name := range []string{"added_p50_percent", "added_first_byte_ms", "added_p99_ms", "cpu_ratio"} {
		columns = append(columns, name, name+"_low", name+"_high")
	}
	columns = append(columns, "stock_cpu_ms", "calinix_cpu_ms", "stock_rate", "calinix_rate")
	rows := [][]string{columns}
	for _, r := range results {
		row := []string{strconv.Itoa(r.cell.bytes), strconv.Itoa(r.cell.concurrency), number(medianOf(r.stock.total50).median), number(medianOf(r.calinix.total50).median)}
		for _, i := range []interval{r.addedShare(), r.addedFirst(), r.added99(), r.cpuRatio()} {
			row = append(row, number(i.median), number(i.low), number(i.high))
		}
		row = append(row, number(medianOf(r.stock.cpu).median), number(medianOf(r.calinix.cpu).median),
			number(medianOf(r.stock.rate).median), number(medianOf(r.calinix.rate).median))
		rows = append(rows, row)
	}
	return w.WriteAll(rows)
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', 5, 64) }
