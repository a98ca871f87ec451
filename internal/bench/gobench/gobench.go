// Package gobench runs benchmarks of this module with go test, and keeps what they
// report: the programs below internal/bench make their tables and plots of that.
package gobench

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/calinix/caddy-calinix/internal/bench/yard"
)

// Module is the path of this module's root package.
const Module = "github.com/calinix/caddy-calinix"

// Bench is one call of go test.
type Bench struct {
	Package string
	Pattern string // of the benchmarks' names, as -bench takes it
	Rounds  int    // of a benchmark; short: a tenth
}

// tries is how often a run that is void is made again.
const tries = 3

// Run runs the benchmarks, prints what they report and returns it. A run in which
// the yardstick does not take the time that as many steps over registers take is
// void, and is made again; the error says if that did not help, or what else went
// wrong.
func (b Bench) Run(short bool) (Figures, error) {
	for try := 1; ; try++ {
		f, err := b.once(short)
		if err != nil {
			return nil, err
		}
		void := f.void()
		if void == nil {
			return f, nil
		}
		fmt.Printf("VOID: %v\n", void)
		if try == tries {
			return nil, errors.New("the yardstick could not be measured, the machine is too busy")
		}
	}
}

func (b Bench) once(short bool) (Figures, error) {
	rounds := b.Rounds
	if short {
		rounds = max(1, rounds/10)
	}
	cmd := exec.Command("go", "test", "-run=^$", "-bench="+b.Pattern, fmt.Sprintf("-benchtime=%dx", rounds), fmt.Sprintf("-short=%v", short), "-timeout=30m", b.Package)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	f := Parse(out)
	for _, name := range f.Names() {
		fmt.Println(f.line(name))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return f, nil
}

// Figures are a benchmark's by its name, and then by their unit. Names are without
// "Benchmark" and the number of cores.
type Figures map[string]map[string]float64

// Parse reads the output of go test.
func Parse(out []byte) Figures {
	f := Figures{}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		name := strings.TrimPrefix(fields[0], "Benchmark")
		if i := strings.LastIndexByte(name, '-'); i > 0 {
			name = name[:i]
		}
		f[name] = map[string]float64{}
		for i := 2; i+1 < len(fields); i += 2 {
			if v, err := strconv.ParseFloat(fields[i], 64); err == nil {
				f[name][fields[i+1]] = v
			}
		}
	}
	return f
}

// Add adds the figures of other benchmarks.
func (f Figures) Add(more Figures) {
	for name, units := range more {
		f[name] = units
	}
}

// void says which benchmark's yardstick is not to be trusted.
func (f Figures) void() error {
	for _, name := range f.Names() {
		ratio, has := f[name]["yard-ratio"]
		if has && (ratio < yard.MinRatio || ratio > yard.MaxRatio) {
			return fmt.Errorf("%s: FNV-1a over the text took %.3f times what its steps take over registers, not %v to %v",
				name, ratio, yard.MinRatio, yard.MaxRatio)
		}
	}
	return nil
}

// Names returns the names of the benchmarks, sorted.
func (f Figures) Names() []string { return sorted(f) }

// line is a benchmark's figures in one line.
func (f Figures) line(name string) string {
	var line strings.Builder
	fmt.Fprintf(&line, "%-48s", name)
	for _, unit := range sorted(f[name]) {
		fmt.Fprintf(&line, "  %.6g %s", f[name][unit], unit)
	}
	return line.String()
}

func sorted[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// Median takes the median of each figure over the runs.
func Median(runs []Figures) Figures {
	m := Figures{}
	for name, units := range runs[0] {
		m[name] = map[string]float64{}
		for unit := range units {
			var v []float64
			for _, f := range runs {
				v = append(v, f[name][unit])
			}
			slices.Sort(v)
			m[name][unit] = v[len(v)/2]
		}
	}
	return m
}
