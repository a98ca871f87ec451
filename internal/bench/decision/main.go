// Command decision prints what a decision costs beside what it may cost, one line
// a row, in units of Y: one plain serial pass of FNV-1a over the prompt's text, of
// the same run (see package yard).
//
//	go run ./internal/bench/decision           about 4 minutes
//	go run ./internal/bench/decision -short    a look at it: fewer rounds and bodies
//	go run ./internal/bench/decision -runs 5   the median of five runs
//
// It runs the benchmarks of the packages, prints their figures, and makes the table
// of them. A run in which the yardstick does not take the time that as many steps
// over registers take is void, and is made again up to three times; then the
// command fails. It does not fail on a figure.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
)

func main() {
	short := flag.Bool("short", false, "fewer rounds and bodies")
	runs := flag.Int("runs", 1, "how many runs the median is taken of")
	flag.Parse()
	if err := run(*short, *runs); err != nil {
		fmt.Fprintln(os.Stderr, "decision:", err)
		os.Exit(1)
	}
}

// tries is how often a void run is made again.
const tries = 3

func run(short bool, runs int) error {
	var all []figures
	for n := range runs {
		f, err := oneRun(short)
		if err != nil {
			return err
		}
		all = append(all, f)
		if runs > 1 {
			fmt.Printf("\nrun %d of %d\n", n+1, runs)
			print(f)
		}
	}
	fmt.Println()
	if runs > 1 {
		fmt.Printf("median of %d runs\n", runs)
	}
	print(median(all))
	return nil
}

func oneRun(short bool) (figures, error) {
	f := figures{}
	for _, b := range benches {
		if err := measure(f, b, short); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// measure adds a bench's figures to f.
func measure(f figures, b bench, short bool) error {
	for try := 1; ; try++ {
		got, err := b.run(short)
		if err != nil {
			return err
		}
		void := got.void()
		if void == nil {
			f.add(got)
			return nil
		}
		fmt.Printf("VOID: %v\n", void)
		if try == tries {
			return errors.New("the yardstick could not be measured, the machine is too busy")
		}
	}
}
