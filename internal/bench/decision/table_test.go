package main

import (
	"strings"
	"testing"

	"github.com/calinix/caddy-calinix/internal/bench/gobench"
)

const output = `goos: linux
BenchmarkDecision/8KiB/cold/cacheAware-2   300   33773 ns/op   0.61 Y   1.243 yard-ns/B   1.004 yard-ratio
BenchmarkDecision/8KiB/cold/expectedTTFT-2   300   33773 ns/op   0.40 Y   1.243 yard-ns/B   1.2 yard-ratio
PASS
`

func TestRowsKeepTheirBounds(t *testing.T) {
	f := gobench.Parse([]byte(output))
	r := row{"cold", []quantity{decision("Decision/8KiB/cold", "Y", "Y", 0.7, 0.3)}}
	if line := r.line(f); !strings.HasSuffix(line, " pass") || !strings.Contains(line, "0.61 Y") || !strings.Contains(line, "0.40 Y") {
		t.Errorf("got %q", line)
	}
	r.of[0].must = 0.6
	if line := r.line(f); !strings.HasSuffix(line, " miss") {
		t.Errorf("one strategy is above the bound, got %q", line)
	}
	r.of = append(r.of, single("Nothing", "Y", 1, "Y", 100, 1))
	r.of[0].must = 1
	if line := r.line(f); !strings.HasSuffix(line, " miss") {
		t.Errorf("a figure is missing, got %q", line)
	}
}

// The words of the verdicts must mean nothing else in the output.
func TestVerdictsAreTheOnlyOnes(t *testing.T) {
	for _, r := range table {
		if line := r.line(gobench.Figures{}); strings.Count(line, "pass")+strings.Count(line, "miss") != 1 {
			t.Errorf("got %q", line)
		}
	}
	for _, b := range benches {
		if strings.Contains(b.Pattern+b.Package, "pass") || strings.Contains(b.Pattern+b.Package, "miss") {
			t.Errorf("a benchmark's name has the word: %s", b.Pattern)
		}
	}
}
