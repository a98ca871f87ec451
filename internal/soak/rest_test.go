package main

import "testing"

// TestCompare: growth within the bounds is none, and beyond each is.
func TestCompare(t *testing.T) {
	warm := measured{goroutines: 100, files: 50, heap: 20 << 20}
	for name, tc := range map[string]struct {
		end  measured
		want int
	}{
		"less":       {measured{goroutines: 90, files: 40, heap: 10 << 20}, 0},
		"at bounds":  {measured{goroutines: 100 + moreGoroutines, files: 50 + moreFiles, heap: 20<<20 + moreHeap}, 0},
		"goroutines": {measured{goroutines: 101 + moreGoroutines, files: 50, heap: 20 << 20}, 1},
		"open files": {measured{goroutines: 100, files: 51 + moreFiles, heap: 20 << 20}, 1},
		"the heap":   {measured{goroutines: 100, files: 50, heap: 20<<20 + moreHeap + 1}, 1},
	} {
		c := newChecker()
		if c.compare(warm, tc.end); len(c.violations()) != tc.want {
			t.Errorf("%s: %q, want %d", name, c.violations(), tc.want)
		}
	}
}
