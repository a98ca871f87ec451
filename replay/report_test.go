package replay

import (
	"bytes"
	"encoding/csv"
	"encoding/xml"
	"io"
	"strings"
	"testing"
)

// reported is what the writers are tried with.
func reported() []*Result {
	return []*Result{
		{Policy: "expectedTTFT", Rate: 2, Mean: 100, P99: 2000, Goodput: 0.99, Hit: 0.2, Queue: 3},
		{Policy: "seed", Rate: 2, Mean: 900, P99: 90000, Goodput: 0.5, Hit: 0.3},
		{Policy: "seed", Rate: 4, Mean: 1, Goodput: 0},
	}
}

func TestWriteCSV(t *testing.T) {
	var b bytes.Buffer
	if err := WriteCSV(&b, reported()); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&b).ReadAll()
	if err != nil || len(rows) != 4 || len(rows[0]) != 1+len(columns) {
		t.Fatalf("%v, %v", rows, err)
	}
	if got := strings.Join(rows[1], " "); got != "expectedTTFT 2 100 0 0 2000 0 0 0.99 0.2 0 0 0 0 0 3" {
		t.Errorf("row %s", got)
	}
}

// TestPlots: every plot is well-formed, has a bar for each result, and the best
// of a rate stands first.
func TestPlots(t *testing.T) {
	plots := Plots(reported())
	if len(plots) != 4 {
		t.Fatalf("%d plots", len(plots))
	}
	for _, p := range plots {
		var b bytes.Buffer
		if err := p.WriteSVG(&b); err != nil {
			t.Fatal(err)
		}
		svg := b.String()
		for d := xml.NewDecoder(strings.NewReader(svg)); ; {
			if _, err := d.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", p.Name, err)
			}
		}
		if n := strings.Count(svg, "<rect"); n != 1+len(reported()) {
			t.Errorf("%s: %d bars", p.Name, n-1)
		}
		first := p.rates[0].bars[0].policy
		if want := map[bool]string{true: "expectedTTFT", false: "seed"}[p.Name != "hit"]; first != want {
			t.Errorf("%s: %s stands first, want %s", p.Name, first, want)
		}
		for _, r := range p.rates {
			for _, x := range r.bars {
				if l := p.length(x.value); l < 0 || l > plotWidth-plotLeft-plotRight {
					t.Errorf("%s: a bar of %v pixels for %v", p.Name, l, x.value)
				}
			}
		}
	}
}

// TestWriteHTML: one page that loads nothing and runs nothing.
func TestWriteHTML(t *testing.T) {
	var b bytes.Buffer
	gates := []Gate{{"kept <5", 1, 2, false}, {"missed", 1, 2, true}}
	if err := WriteHTML(&b, Conversations(3, 1), reported(), gates); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	for _, want := range []string{"expectedTTFT", "kept &lt;5", ">pass<", ">miss<", "<svg"} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is missing", want)
		}
	}
	if strings.Count(page, "<svg") != 4 {
		t.Errorf("%d plots", strings.Count(page, "<svg"))
	}
	rest := strings.ReplaceAll(page, `xmlns="http://www.w3.org/2000/svg"`, "")
	for _, not := range []string{"<script", "http:", "https:", "src=", "@import", "url("} {
		if strings.Contains(rest, not) {
			t.Errorf("%q is in the page", not)
		}
	}
}
