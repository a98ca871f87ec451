package gobench

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

const output = `goos: linux
BenchmarkDecision/8KiB/cold/cacheAware-2   300   33773 ns/op   0.61 Y   1.243 yard-ns/B   1.004 yard-ratio
BenchmarkDecision/8KiB/cold/expectedTTFT-2   300   33773 ns/op   0.40 Y   1.243 yard-ns/B   1.2 yard-ratio
PASS
`

func TestAYardstickThatIsOffIsVoid(t *testing.T) {
	f := Parse([]byte(output))
	if err := f.void(); err == nil || !strings.Contains(err.Error(), "expectedTTFT") {
		t.Errorf("got %v", err)
	}
	delete(f, "Decision/8KiB/cold/expectedTTFT")
	if err := f.void(); err != nil {
		t.Errorf("got %v", err)
	}
}

func TestMedianOfRuns(t *testing.T) {
	run := func(v float64) Figures { return Figures{"a": {"Y": v}} }
	if m := Median([]Figures{run(3), run(1), run(2)}); m["a"]["Y"] != 2 {
		t.Errorf("got %v", m)
	}
}

func TestFile(t *testing.T) {
	f := Parse([]byte(output))
	path := filepath.Join(t.TempDir(), "figures.csv")
	if err := f.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	got, err := ReadFile(path)
	if err != nil || !reflect.DeepEqual(got, f) {
		t.Errorf("got %v, %v; want %v", got, err, f)
	}
}
