package main

import "testing"

// TestGrowth: growth within the bounds is none, and beyond each is.
func TestGrowth(t *testing.T) {
	warm := measured{goroutines: 100, files: 50, heap: 20 << 20, most: 500}
	for name, tc := range map[string]struct {
		change func(*measured)
		want   int
	}{
		"the same":    {func(*measured) {}, 0},
		"less":        {func(m *measured) { m.goroutines, m.files, m.heap = 90, 40, 10<<20 }, 0},
		"at bounds":   {func(m *measured) { m.goroutines += moreGoroutines; m.files += moreFiles; m.heap += moreHeap }, 0},
		"goroutines":  {func(m *measured) { m.goroutines += moreGoroutines + 1 }, 1},
		"open files":  {func(m *measured) { m.files += moreFiles + 1 }, 1},
		"the heap":    {func(m *measured) { m.heap += moreHeap + 1 }, 1},
		"a crowd":     {func(m *measured) { m.heap += moreHeap + 10*moreEach; m.most += 10 }, 0},
		"beyond that": {func(m *measured) { m.heap += moreHeap + 10*moreEach + 1; m.most += 10 }, 1},
	} {
		end := warm
		tc.change(&end)
		if got := growth(warm, end); len(got) != tc.want {
			t.Errorf("%s: %q, want %d", name, got, tc.want)
		}
	}
}
