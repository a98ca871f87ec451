package main

import (
	"testing"
	"time"
)

// TestBudget: of the requests of ten seconds a tenth may be retries, where a request
// counts that was sent in that time or was on its way when it began.
func TestBudget(t *testing.T) {
	for name, tc := range map[string]struct {
		sends, open int
		retries     float64
		want        int
	}{
		"few":                   {0, 0, 3, 0},
		"a tenth":               {100, 0, 10, 0},
		"more":                  {100, 0, 11, 1},
		"of those on their way": {50, 50, 10, 0},
		"and more":              {50, 50, 11, 1},
	} {
		c := newChecker()
		c.sends["single"] = 1000
		for k := 30; k > 0; k-- { // a quiet half minute, a sample a second
			s := c.sample()
			s.asked = s.asked.Add(-time.Duration(k) * time.Second)
			s.open = tc.open
			c.budget(s)
		}
		c.sends["single"] += tc.sends
		s := c.sample()
		s.retries = tc.retries
		if c.budget(s); len(c.violations()) != tc.want {
			t.Errorf("%s: %q, want %d", name, c.violations(), tc.want)
		}
	}
}
