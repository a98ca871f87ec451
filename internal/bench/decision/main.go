// Command decision prints what a decision costs beside what it may cost, one line
// a row, in units of Y: one plain serial pass of FNV-1a over the prompt's text, of
// the same run (see package yard).
//
//	go run ./internal/bench/decision           about 4 minutes
//	go run ./internal/bench/decision -short    a look at it: fewer rounds and bodies
//	go run ./internal/bench/decision -runs 5   the median of five runs
//	… -csv FILE                                writes the figures to a file, too
//
// It runs the benchmarks of the packages, prints their figures, and makes the table
// of them. A run in which the yardstick does not take the time that as many steps
// over registers take is void, and is made again up to three times; then the
// command fails. It does not fail on a figure.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/calinix/caddy-calinix/internal/bench/gobench"
)

func main() {
	short := flag.Bool("short", false, "fewer rounds and bodies")
	runs := flag.Int("runs", 1, "how many runs the median is taken of")
	csv := flag.String("csv", "", "file that gets the figures")
	flag.Parse()
	if err := run(*short, *runs, *csv); err != nil {
		fmt.Fprintln(os.Stderr, "decision:", err)
		os.Exit(1)
	}
}

var benches = []gobench.Bench{
	{Package: gobench.Module, Pattern: "^BenchmarkDecision$", Rounds: 1000},
	{Package: gobench.Module, Pattern: "^BenchmarkDecisionCPU$", Rounds: 30},
	{Package: gobench.Module + "/index", Pattern: "^BenchmarkLookup$/^blocks=1000000$", Rounds: 1000},
	{Package: gobench.Module + "/index", Pattern: "^BenchmarkMemory$/^blocks=1000000$", Rounds: 1},
	{Package: gobench.Module + "/index", Pattern: "^BenchmarkTouch256$/^after=query$", Rounds: 5000},
	{Package: gobench.Module + "/index", Pattern: "^BenchmarkReaders$/^beside=(nobody|writers)$", Rounds: 4000},
}

func run(short bool, runs int, csv string) error {
	var all []gobench.Figures
	for n := range runs {
		f, err := oneRun(short)
		if err != nil {
			return err
		}
		all = append(all, f)
		if runs > 1 {
			fmt.Printf("\nrun %d of %d\n", n+1, runs)
			print(os.Stdout, f)
		}
	}
	fmt.Println()
	if runs > 1 {
		fmt.Printf("median of %d runs\n", runs)
	}
	median := gobench.Median(all)
	print(os.Stdout, median)
	if csv == "" {
		return nil
	}
	return median.WriteFile(csv)
}

func oneRun(short bool) (gobench.Figures, error) {
	f := gobench.Figures{}
	for _, b := range benches {
		got, err := b.Run(short)
		if err != nil {
			return nil, err
		}
		f.Add(got)
	}
	return f, nil
}
