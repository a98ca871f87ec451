package main

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/calinix/caddy-calinix/internal/bench/gobench"
)

// plot shows the time of a decision over one quantity.
type plot struct {
	file     string
	title    string
	quantity string // as the benchmarks are named
	axis     string
	pass     bool // shows one pass of FNV-1a over the prompt beside it
}

var plots = []plot{
	{"length.svg", "Time of a decision over the length of the prompt, µs", "bytes", "bytes", true},
	{"pods.svg", "Time of a decision over the number of pods, µs", "pods", "pods", false},
	{"blocks.svg", "Time of a decision over the size of the index, µs", "blocks", "blocks of other prompts", false},
}

// chart makes the plot of figures.
func (p plot) chart(f gobench.Figures) chart {
	c := chart{title: p.title, axis: p.axis}
	for _, strategy := range []string{"expectedTTFT", "cacheAware"} {
		c.lines = append(c.lines, line{strategy, p.points(f, strategy, func(units map[string]float64) float64 { return units["p10-ns"] })})
	}
	if p.pass {
		pass := p.points(f, "expectedTTFT", func(units map[string]float64) float64 { return units["yard-ns/B"] })
		for i := range pass {
			pass[i].y *= pass[i].x
		}
		c.lines = append(c.lines, line{"one pass of FNV-1a over the prompt", pass})
	}
	return c
}

// points returns the benchmarks of the quantity with the strategy, in µs, by size.
func (p plot) points(f gobench.Figures, strategy string, ns func(units map[string]float64) float64) (all []point) {
	for _, name := range f.Names() {
		rest, ok := strings.CutPrefix(name, "Growth/"+p.quantity+"=")
		size, ok2 := strings.CutSuffix(rest, "/"+strategy)
		x, err := strconv.ParseFloat(size, 64)
		if ok && ok2 && err == nil {
			all = append(all, point{x, ns(f[name]) / 1000})
		}
	}
	slices.SortFunc(all, func(a, b point) int { return cmp.Compare(a.x, b.x) })
	return all
}
