package config

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// maxDuration bounds every duration of a configuration. It leaves room for sums
// with the clock, and survives a passage through a float64 without loss of a
// microsecond, which JSON in JavaScript and Caddy's own adapter put it through.
const (
	maxDays     = 365
	maxDuration = maxDays * 24 * time.Hour
)

// Duration is a time span as Caddy's JSON has it: a number of nanoseconds or a
// string such as "2s" or "1d12h" when read, a number of nanoseconds when written.
type Duration time.Duration

// String writes d as Go does ("2s").
func (d Duration) String() string { return time.Duration(d).String() }

// UnmarshalJSON reads a number of nanoseconds or a string of [ParseDuration].
func (d *Duration) UnmarshalJSON(b []byte) error {
	if len(b) == 0 || b[0] != '"' {
		return json.Unmarshal(b, (*int64)(d))
	}
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	v, err := ParseDuration(s)
	if err != nil {
		return err
	}
	*d = v
	return nil
}

// ParseDuration reads what [time.ParseDuration] reads, and also days ("1d12h",
// a day being 24 hours), as Caddy does.
func ParseDuration(s string) (Duration, error) {
	invalid := fmt.Errorf("invalid duration %.40q, want a number with a unit, such as 2s or 500ms", s)
	var total time.Duration
	rest, negative := strings.CutPrefix(s, "-")
	for days := true; days; {
		var head, tail string
		head, tail, days = strings.Cut(rest, "d")
		number := len(head)
		for days && number > 0 && strings.IndexByte("0123456789.", head[number-1]) >= 0 {
			number--
		}
		if head = head[:number]; head != "" || !days && total == 0 {
			v, err := time.ParseDuration(head)
			if err != nil || v < 0 {
				return 0, invalid
			}
			total += v
		}
		if days {
			n, err := strconv.ParseFloat(rest[number:len(rest)-len(tail)-1], 64)
			if err != nil || n > maxDays {
				return 0, invalid
			}
			total += time.Duration(n * float64(24*time.Hour))
		}
		if rest = tail; rest == "" {
			days = false
		}
		if total < 0 {
			return 0, invalid
		}
	}
	if negative {
		total = -total
	}
	return Duration(total), nil
}
