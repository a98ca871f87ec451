package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/calinix/caddy-calinix/internal/bench/yard"
)

// bench is one call of go test.
type bench struct {
	pkg     string
	pattern string
	rounds  int // of a benchmark; short: a tenth
}

const module = "github.com/calinix/caddy-calinix"

var benches = []bench{
	{module, "^BenchmarkDecision$", 1000},
	{module, "^BenchmarkDecisionCPU$", 30},
	{module + "/index", "^BenchmarkLookup$/^blocks=1000000$", 1000},
	{module + "/index", "^BenchmarkMemory$/^blocks=1000000$", 1},
	{module + "/index", "^BenchmarkTouch256$/^after=query$", 5000},
	{module + "/index", "^BenchmarkReaders$/^beside=(nobody|writers)$", 4000},
}

// run runs the benchmark and prints what it reports.
func (b bench) run(short bool) (figures, error) {
	rounds := b.rounds
	if short {
		rounds = max(1, rounds/10)
	}
	cmd := exec.Command("go", "test", "-run=^$", "-bench="+b.pattern, fmt.Sprintf("-benchtime=%dx", rounds), fmt.Sprintf("-short=%v", short), "-timeout=30m", b.pkg)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	got := parse(out)
	for _, name := range got.names() {
		fmt.Println(got.line(name))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return got, nil
}

// figures are a benchmark's by its name, and then by their unit.
type figures map[string]map[string]float64

// parse reads the output of go test.
func parse(out []byte) figures {
	f := figures{}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		name := strings.TrimPrefix(fields[0], "Benchmark")
		if i := strings.LastIndexByte(name, '-'); i > 0 { // the number of cores
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

func (f figures) add(more figures) {
	for name, units := range more {
		f[name] = units
	}
}

// void says which benchmark's yardstick is not to be trusted.
func (f figures) void() error {
	for _, name := range f.names() {
		ratio, has := f[name]["yard-ratio"]
		if has && (ratio < yard.MinRatio || ratio > yard.MaxRatio) {
			return fmt.Errorf("%s: FNV-1a over the text took %.3f times what its steps take over registers, not %v to %v",
				name, ratio, yard.MinRatio, yard.MaxRatio)
		}
	}
	return nil
}

func (f figures) names() []string {
	var names []string
	for name := range f {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// line is a benchmark's figures in one line.
func (f figures) line(name string) string {
	var units []string
	for unit := range f[name] {
		units = append(units, unit)
	}
	slices.Sort(units)
	var line strings.Builder
	fmt.Fprintf(&line, "%-48s", name)
	for _, unit := range units {
		fmt.Fprintf(&line, "  %.6g %s", f[name][unit], unit)
	}
	return line.String()
}

// median takes the median of each figure over the runs.
func median(runs []figures) figures {
	m := figures{}
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
