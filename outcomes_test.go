package calinix_test

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestOutcomes reads the table of docs/failures.md and brings about every row of
// it over real sockets, for single, prefill and decode legs: whether another pod
// is tried, whether onPrefillFailure applies, whether the pod is marked, what the
// index keeps, what the metrics and the log call it and what the client gets is
// what the row says.
func TestOutcomes(t *testing.T) {
	rows := failureRows(t)
	for _, r := range rows {
		for _, leg := range []string{"single", "prefill", "decode"} {
			var mine []scene
			for _, sc := range scenes {
				if sc.outcome == r.outcome() && slices.Contains(sc.legs, leg) {
					mine = append(mine, sc)
				}
			}
			if why, never := impossible[r.outcome()+" "+leg]; never != (len(mine) == 0) {
				t.Errorf("%s, %s: %d scenes, impossible because %q", r.outcome(), leg, len(mine), why)
			}
			for _, sc := range mine {
				for _, v := range sc.variants(r, leg) {
					name := strings.TrimSuffix(r.outcome()+"/"+sc.name, "/") + "/" + leg + "/" + v
					t.Run(name, func(t *testing.T) { sc.play(t, r, leg, v) })
				}
			}
		}
	}
	for _, sc := range scenes {
		if !slices.ContainsFunc(rows, func(r failureRow) bool { return r.outcome() == sc.outcome }) {
			t.Errorf("the page has no outcome %q", sc.outcome)
		}
	}
}

// failureRow is a row of the page, by its column's head.
type failureRow map[string]string

func (r failureRow) outcome() string { return strings.Trim(r["outcome"], "`") }

// of is the cell of a column that is told apart by kinds of legs.
func (r failureRow) of(column, leg string) string {
	if leg != "prefill" {
		leg = "single, decode"
	}
	return r[column+" ("+leg+")"]
}

// failureRows reads the page's table of what follows.
func failureRows(t *testing.T) (rows []failureRow) {
	t.Helper()
	page, err := os.ReadFile("docs/failures.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "## What follows\n")
	var heads []string
	for line := range strings.Lines(rest) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			if heads != nil {
				break
			}
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case heads == nil:
			heads = cells
		case strings.HasPrefix(cells[0], "---"):
		default:
			r := failureRow{}
			for i, head := range heads {
				r[head] = cells[i]
			}
			rows = append(rows, r)
		}
	}
	if len(rows) < 13 {
		t.Fatalf("the table has %d rows", len(rows))
	}
	return rows
}

// impossible are the legs that cannot end so, and why.
var impossible = map[string]string{
	"unusable single": "the answer is the client's, whatever it is",
	"unusable decode": "the answer is the client's, whatever it is",
	"dropped single":  "there is no other leg",

	"overloaded single":  heldElsewhere,
	"overloaded prefill": heldElsewhere,
	"overloaded decode":  heldElsewhere,
}

const heldElsewhere = "no leg is begun; TestHeldTooLong and TestHeldPrefillTooLong play it"
