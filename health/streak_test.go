package health

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestStreak reads as a diary of one pod with thresholds 2 up, 3 down. Results
// are o (ok), b (bad status), l (late), d (dropped), f (failed), and p for a
// passive mark. After each the verdict: + up, - down, and ! where the index
// entries go.
func TestStreak(t *testing.T) {
	for _, c := range []struct {
		name    string
		down    bool
		results string
		want    string
	}{
		{"the first good result decides", false, "oo", "+ +"},
		{"the first bad result decides alone", false, "boo", "- - +"},
		{"the first dropped probe forgets", false, "d", "-!"},
		{"two late probes are forgiven", false, "ollo", "+ + + +"},
		{"three in a row are not", false, "olll", "+ + + -"},
		{"alternating never ejects", false, "ololololol", "+ + + + + + + + + +"},
		{"back after two good ones and no sooner", false, "olllolooo", "+ + + - - - - + +"},
		{"late and bad keep the index", false, "obbb", "+ + + -"},
		{"trouble with TLS keeps the index", false, "offf", "+ + + -"},
		{"refused forgets at the threshold", false, "oddd", "+ + + -!"},
		{"a drop within the run forgets", false, "oldb", "+ + + -!"},
		{"a drop before a good result does not count", false, "oddolll", "+ + + + + + -"},
		{"forgotten once a run", false, "oddddd", "+ + + -! - -"},
		{"a hung engine that is killed while down", false, "olllld", "+ + + - - -!"},
		{"dropped, back, dropped again", false, "odddooddd", "+ + + -! - + + + -!"},
		{"configured down, one pass is not enough", true, "oo", "- +"},
		{"configured down and failing", true, "obo o", "- - - +"},
		{"configured down and refused", true, "doo", "-! - +"},
		{"marked down by requests, up by probes", false, "opoo", "+ - - +"},
		{"marked down before any probe", false, "poo", "- - +"},
		{"marked down, then found dead", false, "opdoo", "+ - -! - +"},
		{"a dropped probe, then marked down", false, "odp", "+ + -!"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStreak(c.down)
			var got string
			for _, r := range c.results {
				var forget bool
				switch r {
				case ' ':
					continue
				case 'p':
					forget = s.markDown()
				default:
					_, forget = s.observe(kindOf[r], 2, 3)
				}
				if got != "" {
					got += " "
				}
				got += map[bool]string{true: "+", false: "-"}[s.up] + map[bool]string{true: "!"}[forget]
			}
			if got != c.want {
				t.Errorf("%s: %s, want %s", c.results, got, c.want)
			}
		})
	}
}

var kindOf = map[rune]Kind{'o': OK, 'b': BadStatus, 'l': Late, 'd': Dropped, 'f': Failed}

// TestStreakProperty compares with a reading of the whole history.
func TestStreakProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		healthy := rapid.IntRange(1, 4).Draw(t, "healthy")
		unhealthy := rapid.IntRange(1, 4).Draw(t, "unhealthy")
		down := rapid.Bool().Draw(t, "down")
		history := rapid.SliceOf(rapid.SampledFrom([]Kind{OK, OK, OK, BadStatus, Late, Dropped, Failed})).Draw(t, "history")
		s := newStreak(down)
		up := !down
		for i := range history {
			seen := history[:i+1]
			good, bad := run(seen, true), run(seen, false)
			was := up
			switch {
			case i == 0 && !down:
				up = good == 1
			case up && bad >= unhealthy:
				up = false
			case !up && good >= healthy:
				up = true
			}
			changed, forget := s.observe(history[i], healthy, unhealthy)
			if s.up != up || changed != (was != up) {
				t.Fatalf("after %v: up %v changed %v, want %v %v", seen, s.up, changed, up, was != up)
			}
			dropped := slices.Contains(seen[len(seen)-bad:], Dropped)
			if forget && (up || !dropped) {
				t.Fatalf("after %v: forgets", seen)
			}
			if !up && dropped && !s.forgot {
				t.Fatalf("after %v: down and dropped, but never forgot", seen)
			}
		}
	})
}

// run is the number of results at the end that are all good, or all bad.
func run(seen []Kind, good bool) (n int) {
	for _, k := range slices.Backward(seen) {
		if (k == OK) != good {
			break
		}
		n++
	}
	return n
}

func TestKindNames(t *testing.T) {
	for k, want := range map[Kind]string{OK: "ok", BadStatus: "bad_status", Late: "late", Dropped: "dropped", Failed: "failed", 99: "unknown"} {
		if k.String() != want {
			t.Errorf("kind %d is %q, want %q", k, k, want)
		}
	}
}

// TestWindowProperty compares with a count over all failures.
func TestWindowProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 5).Draw(t, "limit")
		d := time.Duration(rapid.IntRange(1, 20).Draw(t, "window"))
		var w window
		var all []time.Time
		now := time.Unix(0, 0)
		for range rapid.IntRange(1, 60).Draw(t, "failures") {
			now = now.Add(time.Duration(rapid.IntRange(0, 8).Draw(t, "step")))
			all = append(all, now)
			within := 0
			for _, at := range all {
				if now.Sub(at) <= d {
					within++
				}
			}
			want := within >= limit
			if got := w.failed(now, limit, d); got != want {
				t.Fatalf("failure at %v: down %v, want %v (%v)", now, got, want, all)
			}
			if want {
				all = all[:0]
			}
			if len(w.times) >= limit {
				t.Fatalf("keeps %d times for a limit of %d", len(w.times), limit)
			}
		}
	})
}
