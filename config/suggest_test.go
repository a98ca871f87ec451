package config

import (
	"testing"

	"pgregory.net/rapid"
)

func TestNearest(t *testing.T) {
	known := []string{"retries", "retryBudget", "retryStatus", "mode", "name", "maxBodyBytes"}
	for name, want := range map[string]string{
		"retry": "", "retires": "retries", "retrybudget": "retryBudget", "retry_budget": "retryBudget", "retrystats": "retryStatus",
		"maxBodySize": "", "nmae": "name", "mod": "mode", "zzz": "", "": "",
	} {
		if got, ok := Nearest(name, known); got != want || ok != (want != "") {
			t.Errorf("Nearest(%q) = %q, %v; want %q", name, got, ok, want)
		}
	}
}

// TestDistance checks the laws of a distance between texts.
func TestDistance(t *testing.T) {
	word := rapid.StringMatching(`[ab]{0,6}`)
	rapid.Check(t, func(t *rapid.T) {
		a, b := word.Draw(t, "a"), word.Draw(t, "b")
		d := distance(a, b)
		if (d == 0) != (a == b) || d != distance(b, a) || d > max(len(a), len(b)) || d < max(len(a), len(b))-min(len(a), len(b)) {
			t.Fatalf("distance(%q, %q) = %d", a, b, d)
		}
	})
	for _, c := range []struct {
		a, b string
		want int
	}{{"ab", "ba", 1}, {"abc", "ac", 1}, {"abc", "abcd", 1}, {"abc", "axc", 1}, {"kitten", "sitting", 3}} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("distance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
