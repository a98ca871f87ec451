package config

import (
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseDuration(t *testing.T) {
	for s, want := range map[string]time.Duration{
		"0": 0, "2s": 2 * time.Second, "500ms": 500 * time.Millisecond, "1d": 24 * time.Hour,
		"1d12h": 36 * time.Hour, "1.5d": 36 * time.Hour, "2h1d": 26 * time.Hour, "1d1d": 48 * time.Hour,
		"-2s": -2 * time.Second, "-1d12h": -36 * time.Hour, "365d": 365 * 24 * time.Hour, "0d": 0,
	} {
		if got, err := ParseDuration(s); err != nil || time.Duration(got) != want {
			t.Errorf("ParseDuration(%q) = %v, %v; want %v", s, got, err, want)
		}
	}
	for _, s := range []string{"", "-", "d", "2", "s", "1d2", "--1s", "1d-2h", "1x", "two seconds", "366d", "1e3d", "NaNd", "1d 2h", "9999999999999999h"} {
		if got, err := ParseDuration(s); err == nil {
			t.Errorf("ParseDuration(%q) = %v, want an error", s, got)
		}
	}
}

// TestParseDurationDays: days are 24 hours, wherever they stand.
func TestParseDurationDays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		days := rapid.IntRange(0, 365).Draw(t, "days")
		rest := time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "rest"))
		want := time.Duration(days)*24*time.Hour + rest
		for _, s := range []string{
			want.String(),
			strconv.Itoa(days) + "d" + rest.String(),
			rest.String() + strconv.Itoa(days) + "d",
		} {
			if got, err := ParseDuration(s); err != nil || time.Duration(got) != want {
				t.Fatalf("ParseDuration(%q) = %v, %v; want %v", s, got, err, want)
			}
		}
	})
}
