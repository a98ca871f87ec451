package main

import (
	"math"
	"testing"
	"time"
)

// TestAlone computes by hand what the table's first lines are compared with: four chunks
// of 102.4 ms, and attention over 8192 tokens.
func TestAlone(t *testing.T) {
	o := &options{prompt: 8192}
	for mode, want := range map[string]float64{"single": 453.752, "dispatch": 453.752 + 24.576 + 7} {
		if got := ms(o.alone(mode)); math.Abs(got-want) > 0.01 {
			t.Errorf("%s: %v ms, want %v", mode, got, want)
		}
	}
}

// TestLine reads a line of the table.
func TestLine(t *testing.T) {
	r := &result{output: 100, tokens: 50_000, half: 10 * time.Second}
	for n := range 100 {
		d := time.Duration(n+1) * time.Millisecond
		r.first, r.each, r.whole = append(r.first, 10*d), append(r.each, d/10), append(r.whole, 100*d)
	}
	const want = "| 50 | 16 single | 510 ms | 1000 ms | 5.1 ms | 10.0 ms | 5.10 s | 50.0 | 5000 |\n"
	if got := r.line((&options{prefill: 8, decode: 8}).pods("single"), 50); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
