// Command growth measures how the time of a decision grows with the length of the
// prompt, the number of pods and the size of the index, and what legs notice of a pod
// that loses its cache or is reloaded. It writes the figures as growth.csv, and plots
// of them, into the folder of docs/performance.md.
//
//	go run ./internal/bench/growth          about ten minutes, and 3 GB of memory
//	go run ./internal/bench/growth -draw    draws the plots of the figures that are there
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/calinix/caddy-calinix/internal/bench/gobench"
)

var benches = []gobench.Bench{
	{Package: gobench.Module, Pattern: "^BenchmarkGrowth$", Rounds: 400},
	{Package: gobench.Module + "/fleet", Pattern: "^BenchmarkBeside$", Rounds: 30},
}

// file has the figures that the plots show.
const file = "growth.csv"

func main() {
	dir := flag.String("dir", "docs/performance", "folder of the figures and the plots")
	draw := flag.Bool("draw", false, "measure nothing")
	flag.Parse()
	if err := run(*dir, *draw); err != nil {
		fmt.Fprintln(os.Stderr, "growth:", err)
		os.Exit(1)
	}
}

func run(dir string, draw bool) error {
	path := filepath.Join(dir, file)
	if !draw {
		f := gobench.Figures{}
		for _, b := range benches {
			got, err := b.Run(false)
			if err != nil {
				return err
			}
			f.Add(got)
		}
		if err := f.WriteFile(path); err != nil {
			return err
		}
	}
	f, err := gobench.ReadFile(path)
	if err != nil {
		return err
	}
	for _, p := range plots {
		if err := os.WriteFile(filepath.Join(dir, p.file), p.chart(f).svg(), 0o644); err != nil {
			return err
		}
	}
	return nil
}
