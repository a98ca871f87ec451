package replay

import (
	"cmp"
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strings"
)

// Plot shows one figure of every policy as bars, the rates one below the other.
type Plot struct {
	Name  string // fit for the name of a file
	Title string
	rates []rateBars
	log   bool // the scale is of powers of ten
	most  float64
}

// rateBars are the bars of one rate.
type rateBars struct {
	rate float64
	bars []bar
}

type bar struct {
	policy string
	value  float64
}

// Plots returns the plots of the results, which are ordered by rate.
func Plots(results []*Result) []Plot {
	return []Plot{
		plotOf(results, "mean", "Mean time to the first byte, ms", true, func(r *Result) float64 { return r.Mean }),
		plotOf(results, "p99", "99th percentile of the time to the first byte, ms", true, func(r *Result) float64 { return r.P99 }),
		plotOf(results, "goodput", "Requests whose first byte came in time, %", false, func(r *Result) float64 { return 100 * r.Goodput }),
		plotOf(results, "hit", "Blocks that were cached, %", false, func(r *Result) float64 { return 100 * r.Hit }),
	}
}

func plotOf(results []*Result, name, title string, log bool, of func(*Result) float64) Plot {
	p := Plot{Name: name, Title: title, log: log}
	for _, r := range results {
		if n := len(p.rates); n == 0 || p.rates[n-1].rate != r.Rate {
			p.rates = append(p.rates, rateBars{rate: r.Rate})
		}
		last := &p.rates[len(p.rates)-1]
		last.bars = append(last.bars, bar{r.Policy, of(r)})
		p.most = math.Max(p.most, of(r))
	}
	for i := range p.rates {
		slices.SortStableFunc(p.rates[i].bars, func(a, b bar) int {
			if log { // times: the shortest first
				return cmp.Compare(a.value, b.value)
			}
			return cmp.Compare(b.value, a.value)
		})
	}
	return p
}

// Sizes in a plot, in pixels.
const (
	plotWidth  = 720
	plotLeft   = 130
	plotRight  = 90
	plotRow    = 18
	plotHeader = 28
)

// WriteSVG draws the plot. It needs nothing from elsewhere.
func (p Plot) WriteSVG(w io.Writer) error {
	var b strings.Builder
	height := plotHeader + 8
	for _, r := range p.rates {
		height += plotHeader + plotRow*len(r.bars)
	}
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" font-family="sans-serif" font-size="12">`+"\n", plotWidth, height)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="#fff"/><text x="8" y="20" font-size="15" font-weight="bold">%s</text>`+"\n", html.EscapeString(p.Title))
	y := plotHeader
	for _, r := range p.rates {
		fmt.Fprintf(&b, `<text x="8" y="%d" fill="#555">%.2f requests a second</text>`+"\n", y+20, r.rate)
		y += plotHeader
		for _, x := range r.bars {
			color := "#9aa5b1"
			if pol, ok := PolicyNamed(x.policy); ok && pol.Product {
				color = "#2f6fde"
			}
			fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text><rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/><text x="%.1f" y="%d">%s</text>`+"\n",
				plotLeft-8, y+13, html.EscapeString(x.policy), plotLeft, y+2, p.length(x.value), plotRow-4, color,
				plotLeft+p.length(x.value)+6, y+13, number(x.value))
			y += plotRow
		}
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// length is how long the bar of a value is. The logarithmic scale begins at 10.
func (p Plot) length(v float64) float64 {
	const width = plotWidth - plotLeft - plotRight
	if p.log {
		return width * max(0.002, math.Log10(math.Max(v, 10)/10)/math.Log10(math.Max(p.most, 100)/10))
	}
	return width * v / math.Max(p.most, 1)
}

// number writes a value with three digits or all of its whole ones.
func number(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}
