package replay

import (
	"bytes"
	"encoding/csv"
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

var redraw = flag.Bool("redraw", false, "draw the plots of the pages in docs anew, from the figures beside them")

// TestPlotsOfPages: the plots in docs are what this package draws of the figures that
// stand beside them. go test ./replay -run TestPlotsOfPages -redraw draws them.
func TestPlotsOfPages(t *testing.T) {
	for _, figures := range []string{"../docs/replay/conversation.csv", "../docs/routing/strategies.csv"} {
		drawn := 0
		for _, p := range Plots(readCSV(t, figures)) {
			file := filepath.Join(filepath.Dir(figures), p.Name+".svg")
			old, err := os.ReadFile(file)
			if os.IsNotExist(err) {
				continue // the page does not show it
			}
			if err != nil {
				t.Fatal(err)
			}
			drawn++
			var b bytes.Buffer
			if err := p.WriteSVG(&b); err != nil {
				t.Fatal(err)
			}
			if bytes.Equal(b.Bytes(), old) {
				continue
			}
			if !*redraw {
				t.Errorf("%s is not what %s says: draw it anew", file, figures)
			} else if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if drawn == 0 {
			t.Errorf("no plot stands beside %s", figures)
		}
	}
}

// readCSV reads what WriteCSV has written, as far as plots need it.
func readCSV(t *testing.T, file string) (results []*Result) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil || len(rows) < 2 {
		t.Fatalf("%s: %d rows, %v", file, len(rows), err)
	}
	for _, row := range rows[1:] {
		r := &Result{Policy: row[0]}
		for i, name := range rows[0] {
			to := map[string]*float64{"rate": &r.Rate, "mean": &r.Mean, "p99": &r.P99, "goodput": &r.Goodput, "hit": &r.Hit}[name]
			if to == nil {
				continue
			}
			if *to, err = strconv.ParseFloat(row[i], 64); err != nil {
				t.Fatalf("%s: %s of %s: %v", file, name, row[0], err)
			}
		}
		results = append(results, r)
	}
	return results
}
