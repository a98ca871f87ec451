package calinix

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/calinix/caddy-calinix/fleet"
	"github.com/calinix/caddy-calinix/replay"
)

// replayFlags are what "caddy calinix replay" can be told.
type replayFlags struct {
	gates    bool
	pods     int
	blocks   int
	rates    []float64
	loads    []float64
	policies []string
	overload fleet.Overload
	transit  time.Duration
	seed     uint64
	csv      string
	html     string
	svg      string
}

func replayCommand() *cobra.Command {
	var o replayFlags
	cmd := &cobra.Command{
		Use:   "replay TRACE.jsonl",
		Short: "Replays a trace against simulated pods under several policies",
		Long: `
Replays a trace of requests against simulated pods, once for each policy: this
product with its strategies, and models of other routers. A trace is a file in the
format of Mooncake, a JSON object a line with timestamp (ms), input_length,
output_length (tokens) and hash_ids (one for each block of 512 tokens); or Caddy's
access log, in JSON, of a balancer with log_trace.

A pod stands for Llama 3.1 8B on one H100. Loads are shares of the rate that a
router which sees the pods' true state serves with 99 % goodput: a first byte
within 1 s and 1.5 times the time that the whole prompt takes to compute.

With --gates the figures that this product promises are computed and judged; the
exit status is 1 if one is missed.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cmd.SilenceUsage = true
			return o.run(args[0], cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.gates, "gates", false, "judge the promised figures")
	f.IntVar(&o.pods, "pods", 16, "how many pods")
	f.IntVar(&o.blocks, "blocks", 900, "blocks of 512 tokens that a pod's cache holds, 0 for any number")
	f.Float64SliceVar(&o.loads, "loads", []float64{0.5, 0.8, 0.95}, "loads, 1 is what an oracle serves with 99 % goodput")
	f.Float64SliceVar(&o.rates, "rates", nil, "requests a second, instead of loads")
	f.StringSliceVar(&o.policies, "policies", nil, "policies to run (default all): "+strings.Join(policyNames(), ", "))
	o.overload = fleet.DefaultOverload()
	f.DurationVar(&o.overload.Above, "hold", o.overload.Above, "estimated wait above which expectedTTFT+hold keeps requests back")
	f.Float64Var(&o.overload.Ageing, "ageing", o.overload.Ageing, "how much of its wait expectedTTFT+hold takes off a request's length")
	f.DurationVar(&o.transit, "transit", 0, "time that a request takes to its pod, and the news of its answer back")
	f.Uint64Var(&o.seed, "seed", 1, "of what is drawn")
	f.StringVar(&o.csv, "csv", "", "also write the results to this file, as comma-separated values")
	f.StringVar(&o.html, "html", "", "also write a report to this file")
	f.StringVar(&o.svg, "svg", "", "also write plots into this folder")
	return cmd
}

func policyNames() (names []string) {
	for _, p := range replay.Policies() {
		names = append(names, p.Name)
	}
	return names
}

// errGates is what a missed gate ends the command with.
var errGates = errors.New("not all figures are within their bounds")

func (o *replayFlags) run(file string, out io.Writer) error {
	if o.svg != "" {
		if err := os.MkdirAll(o.svg, 0o750); err != nil {
			return err
		}
	}
	src, err := os.Open(file)
	if err != nil {
		return err
	}
	defer src.Close()
	trace, err := replay.ReadMooncake(src, o.seed)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	_, _ = fmt.Fprintf(out, "%s: %d requests at %.2f/s, %d distinct blocks, at most %.1f %% of blocks can be cached\n",
		file, len(trace.Requests), trace.Rate(), trace.Blocks, 100*trace.Bound)
	progress := newProgress(os.Stderr)
	defer progress.clear()
	if o.gates {
		return o.judge(trace, progress, out)
	}
	runs, err := o.runs(trace, progress)
	if err != nil {
		return err
	}
	results, err := replay.All(runs, progress.of(len(runs)))
	progress.clear()
	if err != nil {
		return err
	}
	if err := replay.WriteTable(out, results); err != nil {
		return err
	}
	return o.write(trace, results, nil)
}

// write writes the files that are asked for.
func (o *replayFlags) write(trace *replay.Trace, results []*replay.Result, gates []replay.Gate) error {
	if o.csv != "" {
		if err := toFile(o.csv, func(w io.Writer) error { return replay.WriteCSV(w, results) }); err != nil {
			return err
		}
	}
	if o.html != "" {
		if err := toFile(o.html, func(w io.Writer) error { return replay.WriteHTML(w, trace, results, gates) }); err != nil {
			return err
		}
	}
	if o.svg == "" {
		return nil
	}
	for _, p := range replay.Plots(results) {
		if err := toFile(filepath.Join(o.svg, p.Name+".svg"), p.WriteSVG); err != nil {
			return err
		}
	}
	return nil
}

// toFile writes a file anew.
func toFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := write(f); err != nil {
		_ = f.Close()
		return fmt.Errorf("%s: %w", name, err)
	}
	return f.Close()
}

// runs are what is asked for, the rates in the order in which they are given.
func (o *replayFlags) runs(trace *replay.Trace, progress *progress) (runs []replay.Run, err error) {
	policies := replay.Policies()
	if len(o.policies) > 0 {
		policies = nil
		for _, name := range o.policies {
			p, ok := replay.PolicyNamed(name)
			if !ok {
				return nil, fmt.Errorf("policy %q: unknown, want one of %s", name, strings.Join(policyNames(), ", "))
			}
			policies = append(policies, p)
		}
	}
	if o.overload.Above <= 0 || o.overload.Ageing < 0 || o.transit < 0 {
		return nil, fmt.Errorf("--hold %v, --ageing %v, --transit %v: want more than 0, and no negative ones", o.overload.Above, o.overload.Ageing, o.transit)
	}
	for i := range policies {
		if p := replay.Holding(o.overload); policies[i].Name == p.Name {
			policies[i] = p
		}
	}
	if o.blocks < 0 {
		return nil, fmt.Errorf("--blocks %d: want 0 or more", o.blocks)
	}
	engine := replay.H100()
	engine.CacheBlocks = o.blocks
	base := replay.Run{Trace: trace, Pods: o.pods, Engine: engine, Seed: o.seed, Transit: float64(o.transit) / float64(time.Millisecond)}
	rates := o.rates
	if len(rates) == 0 {
		progress.say("looking for what the pods can serve")
		base.Policy, _ = replay.PolicyNamed("oracle")
		full, err := base.Sustained(0.99)
		if err != nil {
			return nil, err
		}
		for _, load := range o.loads {
			rates = append(rates, load*full)
		}
	}
	for _, base.Rate = range rates {
		if base.Rate <= 0 {
			return nil, fmt.Errorf("a rate of %g: want more than 0", base.Rate)
		}
		for _, base.Policy = range policies {
			runs = append(runs, base)
		}
	}
	return runs, nil
}

// judge prints the gates, a line each, behind the table of all policies.
func (o *replayFlags) judge(trace *replay.Trace, progress *progress, out io.Writer) error {
	report, err := replay.Gates(trace, progress.of(0))
	progress.clear()
	if err != nil {
		return err
	}
	if err := replay.WriteTable(out, report.Results); err != nil {
		return err
	}
	_, _ = fmt.Fprintln(out)
	for i := range report.Gates {
		_, _ = fmt.Fprintln(out, report.Gates[i].String())
	}
	if err := o.write(trace, report.Results, report.Gates); err != nil {
		return err
	}
	if !report.Passed() {
		return errGates
	}
	return nil
}

// progress is a line on a terminal that says how far a command is; elsewhere it
// writes nothing.
type progress struct {
	out *os.File
}

func newProgress(out *os.File) *progress {
	if info, err := out.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return &progress{}
	}
	return &progress{out: out}
}

func (p *progress) say(format string, args ...any) {
	if p.out != nil {
		_, _ = fmt.Fprintf(p.out, "\r\x1b[K"+format, args...)
	}
}

func (p *progress) clear() { p.say("") }

// of returns what tells how many of so many runs are done; 0 is a number that is
// not known.
func (p *progress) of(all int) func(done int) {
	const width = 40
	return func(done int) {
		if all == 0 {
			p.say("%d runs", done)
			return
		}
		n := done * width / all
		p.say("[%s%s] %d of %d runs", strings.Repeat("#", n), strings.Repeat(".", width-n), done, all)
	}
}
