package main

import (
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
)

// chart is a line chart with logarithmic scales.
type chart struct {
	title string
	axis  string // what x is
	lines []line
}

type line struct {
	name   string
	points []point
}

type point struct{ x, y float64 }

// Sizes in a chart, in pixels.
const (
	chartWidth, chartHeight = 720, 360
	left, right             = 60, 24
	top, bottom             = 44, 64
)

var colors = []string{"#2f6fde", "#d9822b", "#8a949e"}

// svg draws the chart. It needs nothing from elsewhere.
func (c chart) svg() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" font-family="sans-serif" font-size="12">`+"\n", chartWidth, chartHeight)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="#fff"/><text x="8" y="20" font-size="15" font-weight="bold">%s</text>`+"\n", html.EscapeString(c.title))
	x, y := c.scales()
	for _, v := range ticks(y.from, y.to) {
		at := y.place(v)
		fmt.Fprintf(&b, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n",
			left, chartWidth-right, at, at, left-6, at+4, short(v))
	}
	for _, p := range c.lines[0].points {
		at := x.place(p.x)
		fmt.Fprintf(&b, `<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" stroke="#ddd"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n",
			at, at, top, chartHeight-bottom, at, chartHeight-bottom+16, short(p.x))
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end" fill="#555">%s</text>`+"\n", chartWidth-right, chartHeight-bottom+32, html.EscapeString(c.axis))
	at := left
	for i, l := range c.lines {
		color := colors[i%len(colors)]
		var path []string
		for _, p := range l.points {
			path = append(path, fmt.Sprintf("%.1f,%.1f", x.place(p.x), y.place(p.y)))
		}
		fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", strings.Join(path, " "), color)
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="12" height="12" fill="%s"/><text x="%d" y="%d">%s</text>`+"\n",
			at, chartHeight-22, color, at+18, chartHeight-12, html.EscapeString(l.name))
		at += 40 + 7*len(l.name)
	}
	b.WriteString("</svg>\n")
	return []byte(b.String())
}

// scale leads from values to pixels.
type scale struct {
	from, to float64
	at, size float64
}

func (s scale) place(v float64) float64 {
	return s.at + s.size*math.Log(v/s.from)/math.Log(s.to/s.from)
}

// scales fit all lines; y's is of whole steps of ticks.
func (c chart) scales() (x, y scale) {
	x = scale{math.Inf(1), 0, left, chartWidth - left - right}
	y = scale{math.Inf(1), 0, chartHeight - bottom, top + bottom - chartHeight}
	for _, l := range c.lines {
		for _, p := range l.points {
			x.from, x.to = min(x.from, p.x), max(x.to, p.x)
			y.from, y.to = min(y.from, p.y), max(y.to, p.y)
		}
	}
	y.from, y.to = below(y.from), above(y.to)
	return x, y
}

// steps of ticks within a power of ten.
var steps = []float64{1, 2, 5}

// ticks are the steps between two of them, these included.
func ticks(from, to float64) (all []float64) {
	for power := math.Pow(10, math.Floor(math.Log10(from))); power <= to; power *= 10 {
		for _, s := range steps {
			if v := s * power; v >= from*0.999 && v <= to*1.001 {
				all = append(all, v)
			}
		}
	}
	return all
}

// below is the greatest step that is not above v, above the least not below it.
func below(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	best := power
	for _, s := range steps {
		if s*power <= v {
			best = s * power
		}
	}
	return best
}

func above(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, s := range steps {
		if s*power >= v {
			return s * power
		}
	}
	return 10 * power
}

// short writes a number as axes do.
func short(v float64) string {
	switch {
	case v >= 1<<20 && math.Mod(v, 1<<20) == 0:
		return strconv.Itoa(int(v)>>20) + " Mi"
	case v >= 1<<10 && math.Mod(v, 1<<10) == 0:
		return strconv.Itoa(int(v)>>10) + " Ki"
	case v >= 1e6:
		return strconv.FormatFloat(v/1e6, 'g', 3, 64) + " M"
	case v >= 1e4:
		return strconv.FormatFloat(v/1e3, 'g', 3, 64) + " k"
	default:
		return strconv.FormatFloat(v, 'g', 4, 64)
	}
}
