package outcome

import (
	"os"
	"strings"
	"testing"
)

// TestFailuresPage reads the two tables of docs/failures.md and compares
// every cell with what the code answers.
func TestFailuresPage(t *testing.T) {
	page, err := os.ReadFile("../docs/failures.md")
	if err != nil {
		t.Fatal(err)
	}
	told := tableUnder(t, string(page), "## The outcomes")
	rules := tableUnder(t, string(page), "## What follows")

	wantHead := []string{
		"outcome", "retry (single, decode)", "retry (prefill)", "`onPrefillFailure` applies",
		"counts for `health.passive`", "index registration", "metric `code`",
		"client's status (single, decode)", "client's status (prefill)",
	}
	if got := strings.Join(rules[0], "|"); got != strings.Join(wantHead, "|") {
		t.Fatalf("columns are %q", got)
	}
	if told, rules := len(told)-1, len(rules)-1; told != int(count)-1 || rules != int(count)-1 {
		t.Fatalf("the page tells of %d outcomes and rules %d, the code has %d", told, rules, count-1)
	}
	All(func(o Outcome) {
		i := int(o) // the page keeps the order of the code; row 0 is the head
		if got := told[i][0]; got != "`"+o.LogName()+"`" {
			t.Errorf("outcomes, row %d: is %s, want %s", i, got, o)
		}
		want := []string{
			"`" + o.LogName() + "`", retryWord(o.Retry(Single)), retryWord(o.Retry(Prefill)),
			word(o.PrefillFailed(), "yes", "no"), word(o.PassiveFailure(), "yes", "no"),
			word(o.UndoRegistration(), "undone", "kept"), codeWord(o), statusWord(o, Single), statusWord(o, Prefill),
		}
		for c, w := range want {
			if got := rules[i][c]; got != w {
				t.Errorf("%s, %q: the page says %q, the code %q", o, wantHead[c], got, w)
			}
		}
	})
}

// tableUnder returns the cells of the first Markdown table below heading,
// its head included and its ruler left out.
func tableUnder(t *testing.T, page, heading string) (rows [][]string) {
	t.Helper()
	_, rest, found := strings.Cut(page, heading+"\n")
	if !found {
		t.Fatalf("no heading %q", heading)
	}
	for line := range strings.Lines(rest) {
		line = strings.TrimSpace(line)
		switch {
		case !strings.HasPrefix(line, "|") && rows == nil:
			continue
		case !strings.HasPrefix(line, "|"):
			return rows
		case strings.HasPrefix(line, "|---"):
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if rows != nil && len(cells) != len(rows[0]) {
			t.Fatalf("%q has %d cells, want %d", line, len(cells), len(rows[0]))
		}
		rows = append(rows, cells)
	}
	return rows
}

func word(yes bool, ifYes, ifNo string) string {
	if yes {
		return ifYes
	}
	return ifNo
}

func retryWord(r Retry) string {
	return [...]string{RetryNever: "no", RetryListed: "if listed", RetryElsewhere: "elsewhere"}[r]
}

// codeWord finds the word by asking with a status that no rule would make up.
func codeWord(o Outcome) string {
	switch c := o.MetricCode(Prefill, 418); c {
	case "":
		return "not counted"
	case "418":
		return "status"
	case "502", "504":
		return "client's status"
	default:
		return "`" + c + "`"
	}
}

func statusWord(o Outcome, leg Leg) string {
	on418, on503 := o.Status(leg, 418), o.Status(leg, 503)
	switch {
	case on418 == 418 && o == Rejected:
		return "Calinix's own"
	case on418 == 418:
		return "the pod's"
	case on418 == 502 && on503 == 503:
		return "503 after 503, else 502"
	case on418 == 0:
		return "none"
	default:
		return statusText(on418)
	}
}
