package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// options are what the command line asks for.
type options struct {
	binary  string
	cells   string
	pairs   int
	turn    time.Duration
	decode  float64
	engines int
	csv     string
	idle    time.Duration
	admin   string
}

func main() {
	var o options
	flag.StringVar(&o.binary, "caddy", "", "binary to measure (default: built from ./cmd/caddy)")
	flag.StringVar(&o.cells, "cells", "1KiB@1,1KiB@32,1KiB@128,8KiB@1,8KiB@32,8KiB@128,64KiB@1,64KiB@32,64KiB@128,220KiB@1,220KiB@32,220KiB@128,220KiB@200",
		"body size @ concurrency, separated by commas")
	flag.IntVar(&o.pairs, "pairs", 20, "pairs of turns a cell")
	flag.DurationVar(&o.turn, "turn", time.Second, "length of a turn")
	flag.Float64Var(&o.decode, "decode", 1000, "tokens a second of a simulated engine's answer; the prompt costs it nothing")
	flag.IntVar(&o.engines, "engines", 4, "simulated engines")
	flag.StringVar(&o.csv, "csv", "", "file that gets the figures of every cell")
	flag.DurationVar(&o.idle, "idle", 0, "measure only the CPU of 100 idle pods for so long")
	flag.StringVar(&o.admin, "admin", "off", "address of Calinix's admin endpoint, to take profiles from /debug/pprof of while cells run")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "endtoend:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	dir, err := os.MkdirTemp("", "endtoend")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if o.binary == "" {
		if o.binary, err = testcaddy.Build(); err != nil {
			return err
		}
	}
	if o.idle > 0 {
		return idle(ctx, o, dir)
	}
	cells, err := parseCells(o.cells)
	if err != nil {
		return err
	}
	b, err := startBench(ctx, o, dir, o.engines)
	if err != nil {
		return err
	}
	defer b.stop()
	results := make([]result, 0, len(cells))
	printHeader(os.Stdout, o)
	for _, c := range cells {
		r, err := b.measure(ctx, c, o)
		if err != nil {
			return fmt.Errorf("%s: %w", c, err)
		}
		results = append(results, r)
		r.print(os.Stdout)
	}
	if o.csv == "" {
		return nil
	}
	return writeCSV(o.csv, results)
}
