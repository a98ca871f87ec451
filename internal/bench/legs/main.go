package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// options are what the command line asks for.
type options struct {
	prefill, decode int
	prompt, output  int
	rates           string
	turn            time.Duration
	slower          float64
	strategy        string
	seed            uint64
}

func main() {
	var o options
	flag.IntVar(&o.prefill, "prefill", 8, "prefill pods in dispatch mode")
	flag.IntVar(&o.decode, "decode", 8, "decode pods in dispatch mode")
	flag.IntVar(&o.prompt, "prompt", 8192, "tokens of a prompt")
	flag.IntVar(&o.output, "output", 256, "tokens of an answer")
	flag.StringVar(&o.rates, "rates", "4,8,12,16,20", "requests a second, separated by commas")
	flag.DurationVar(&o.turn, "turn", 20*time.Second, "for how long requests are sent at each rate, in the engines' time")
	flag.Float64Var(&o.slower, "slower", 2, "how many times slower than the engine model everything runs")
	flag.StringVar(&o.strategy, "strategy", "expected_ttft", "strategy of both modes")
	flag.Uint64Var(&o.seed, "seed", 1, "of the prompts and the times between them")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, &o); err != nil {
		fmt.Fprintln(os.Stderr, "legs:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o *options) error {
	var rates []float64
	for text := range strings.SplitSeq(o.rates, ",") {
		rate, err := strconv.ParseFloat(text, 64)
		if err != nil || rate <= 0 {
			return fmt.Errorf("-rates %q: want numbers above 0", o.rates)
		}
		rates = append(rates, rate)
	}
	if o.prefill < 1 || o.decode < 1 || o.prompt < 1 || o.output < 2 || o.slower <= 0 {
		return fmt.Errorf("want pods of both kinds, a prompt, two tokens of an answer, and -slower above 0")
	}
	fmt.Printf("%s/%s, %d cores, time %g times slower; prompts of %d tokens, answers of %d; %s\n\n",
		runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), o.slower, o.prompt, o.output, o.strategy)
	modes := []string{"single", "dispatch"}
	for _, mode := range modes {
		r, err := measure(ctx, o, mode, 0)
		if err != nil {
			return fmt.Errorf("%s: %w", mode, err)
		}
		fmt.Printf("one request alone, %s: first token after %.1f ms; by the engine model %.1f ms\n", mode, ms(r.first[0]), ms(o.alone(mode)))
	}
	fmt.Printf("\n%s", header)
	for _, rate := range rates {
		for _, mode := range modes {
			r, err := measure(ctx, o, mode, rate)
			if err != nil {
				return fmt.Errorf("%s at %g requests/s: %w", mode, rate, err)
			}
			fmt.Print(r.line(o.pods(mode), rate))
		}
	}
	return nil
}

// measure runs the site in a mode and sends requests at a rate; 0 is one request
// alone.
func measure(ctx context.Context, o *options, mode string, rate float64) (result, error) {
	url, stop, err := serve(o, mode)
	if err != nil {
		return result{}, err
	}
	defer stop()
	return drive(ctx, o, url, rate)
}
