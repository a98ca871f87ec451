//go:build published

package replay

import (
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/fleet"
)

// policiesPage is the page whose tables have figures of the published trace.
const policiesPage = "../docs/routing-policies.md"

// TestFiguresOfPages: what the files beside the pages say is what a replay gives.
func TestFiguresOfPages(t *testing.T) {
	tr := published(t)
	for _, file := range []string{"../docs/replay/conversation.csv", "../docs/routing/strategies.csv"} {
		all := readCSV(t, file)
		for _, want := range all {
			r := do(t, gateRun(tr, named(want.Policy), want.Rate))
			for _, f := range []struct {
				name      string
				got, want float64
			}{{"mean", r.Mean, want.Mean}, {"p99", r.P99, want.P99}, {"goodput", r.Goodput, want.Goodput}, {"hit", r.Hit, want.Hit}} {
				if math.Abs(f.got/f.want-1) > 0.01 {
					t.Errorf("%s: %s at %v: %s %v, the file has %v", file, want.Policy, want.Rate, f.name, f.got, f.want)
				}
			}
		}
		t.Logf("%s: %d runs", file, len(all))
	}
}

// tables reads the tables of the page that begin with a cell, without their line
// under the head.
func tables(t *testing.T, first string) (all [][][]string) {
	t.Helper()
	text, err := os.ReadFile(policiesPage)
	if err != nil {
		t.Fatal(err)
	}
	var table [][]string
	for line := range strings.Lines(string(text) + "\n") {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "|") {
			var row []string
			for cell := range strings.SplitSeq(strings.Trim(line, "|"), "|") {
				row = append(row, strings.TrimSpace(cell))
			}
			if !strings.HasPrefix(row[0], "---") {
				table = append(table, row)
			}
			continue
		}
		if len(table) > 0 && table[0][0] == first {
			all = append(all, table)
		}
		table = nil
	}
	return all
}

var numberIn = regexp.MustCompile(`[0-9]+(\.[0-9]+)?`)

// shown holds the numbers of a cell against figures: they are these, in as many
// digits as are written.
func shown(t *testing.T, what, cell string, figures ...float64) {
	t.Helper()
	numbers := numberIn.FindAllString(cell, -1)
	if len(numbers) != len(figures) {
		t.Errorf("%s: %q has %d numbers, want %v", what, cell, len(numbers), figures)
		return
	}
	for i, n := range numbers {
		_, after, _ := strings.Cut(n, ".")
		want, err := strconv.ParseFloat(n, 64)
		if err != nil || math.Abs(figures[i]-want) > 0.75*math.Pow10(-len(after)) {
			t.Errorf("%s: the page has %q, the replay %v", what, cell, figures)
		}
	}
}

// TestTablesOfThePage: every figure in the tables of routing-policies.md is what a
// replay gives.
func TestTablesOfThePage(t *testing.T) {
	tr := published(t)
	first, second := halves(t)
	cells := 0
	each := func(head string, n int, visit func(row []string, what string, column int, head string)) {
		t.Helper()
		all := tables(t, head)
		if len(all) != n {
			t.Fatalf("%d tables of %s, want %d", len(all), head, n)
		}
		for _, table := range all {
			for _, row := range table[1:] {
				for i := range row[1:] {
					visit(row, row[0]+" / "+table[0][i+1], i+1, table[0][i+1])
					cells++
				}
			}
		}
	}
	each("pods", 1, func(row []string, what string, i int, pods string) {
		r := gateRun(tr, named(policyIn(row[0])), conversation80)
		r.Pods, _ = strconv.Atoi(pods)
		shown(t, what, row[i], 100*do(t, r).Goodput)
	})
	each("blocks a pod", 1, func(row []string, what string, i int, blocks string) {
		r := gateRun(tr, named("expectedTTFT"), conversation80)
		r.Engine.CacheBlocks, _ = strconv.Atoi(blocks)
		got := do(t, r)
		shown(t, what, row[i], map[bool]float64{true: got.Mean, false: 100 * got.HitBound}[strings.HasPrefix(row[0], "mean")])
	})
	rates := map[string]float64{"80 %": 14.04, "95 %": 16.68, "110 %": 19.31, "130 %": 22.82}
	each("load", 1, func(row []string, what string, i int, head string) {
		without := do(t, gateRun(second, named("expectedTTFT"), rates[row[0]]))
		with := do(t, gateRun(second, named("expectedTTFT+hold"), rates[row[0]]))
		of := map[string]func(*Result) float64{
			"mean first byte, s": func(r *Result) float64 { return r.Mean / 1000 },
			"median, s":          func(r *Result) float64 { return r.P50 / 1000 },
			"99th percentile, s": func(r *Result) float64 { return r.P99 / 1000 },
			"in time":            func(r *Result) float64 { return 100 * r.Goodput },
		}[head]
		shown(t, what, row[i], of(without), of(with))
	})
	chosen := map[string]float64{"in time at 110 %": 16.3, "in time at 130 %": 19.3}
	goodput := func(tr *Trace, o fleet.Overload, rate, transit float64) float64 {
		r := gateRun(tr, Holding(o), rate)
		r.Transit = transit
		return 100 * do(t, r).Goodput
	}
	each("`--hold`", 1, func(row []string, what string, i int, hold string) {
		if hold == "never" {
			shown(t, what, row[i], 100*do(t, gateRun(first, named("expectedTTFT"), chosen[row[0]])).Goodput)
			return
		}
		o := fleet.DefaultOverload()
		o.Above, _ = time.ParseDuration(hold)
		shown(t, what, row[i], goodput(first, o, chosen[row[0]], 0))
	})
	each("`--ageing`", 1, func(row []string, what string, i int, ageing string) {
		o := fleet.DefaultOverload()
		o.Ageing, _ = strconv.ParseFloat(ageing, 64)
		shown(t, what, row[i], goodput(first, o, chosen[row[0]], 0))
	})
	if cells != 10+12+16+12+12 {
		t.Errorf("%d figures were looked at", cells)
	}
}

// policyIn returns the policy that a row is about.
func policyIn(cell string) string { return strings.Split(cell, "`")[1] }
