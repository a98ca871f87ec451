package replay

import (
	"math"
	"os"
	"testing"
)

// published reads the conversation trace of Mooncake (FAST '25), which the
// environment variable CALINIX_TRACE names; without it the test is skipped.
func published(t *testing.T) *Trace {
	file := os.Getenv("CALINIX_TRACE")
	if file == "" {
		t.Skip("CALINIX_TRACE names no trace")
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tr, err := ReadMooncake(f, 1)
	if err != nil {
		t.Fatal(err)
	}
	if !tr.conversation() {
		t.Skipf("%s is another trace", file)
	}
	return tr
}

// TestAgreesWithTheStudy compares with figures of an independent program that was
// written for a study of these policies: the same trace, engine, rates.
func TestAgreesWithTheStudy(t *testing.T) {
	tr := published(t)
	for _, c := range []struct {
		policy          string
		rate            float64
		mean, p99, hit  float64
		goodput, answer float64
	}{
		{"roundRobin", 12.99, 6572, 40421, 0.060, 0.5219, 21917},
		{"power-of-two", 12.99, 2963, 17828, 0.057, 0.6398, 14354},
		{"session", 12.99, 11845, 127959, 0.250, 0.5348, 25465},
		{"prefix-bounded", 12.99, 25878, 69320, 0.057, 0.0619, 55566},
		{"seed", 12.99, 1570, 14385, 0.241, 0.8569, 8216},
		{"llm-d", 12.99, 1191, 11292, 0.247, 0.9091, 7984},
		{"sglang", 12.99, 1533, 13992, 0.245, 0.8594, 9242},
		{"dynamo", 12.99, 907, 8479, 0.162, 0.9775, 9075},
		{"oracle", 12.99, 732, 8084, 0.214, 1.0000, 8007},
		{"expectedTTFT", 12.99, 747, 8161, 0.196, 0.9994, 7370},
		{"seed", 15.4, 2166, 17595, 0.216, 0.7749, 14351},
		{"llm-d", 15.4, 1407, 11677, 0.247, 0.8637, 12072},
		{"sglang", 15.4, 2018, 15878, 0.249, 0.7913, 13404},
		{"dynamo", 15.4, 1135, 8785, 0.156, 0.9222, 16434},
		{"oracle", 15.4, 790, 8332, 0.205, 0.9988, 13080},
		{"expectedTTFT", 15.4, 836, 8551, 0.188, 0.9927, 12509},
	} {
		r := do(t, gateRun(tr, named(c.policy), c.rate))
		for _, f := range []struct {
			name      string
			got, want float64
		}{
			{"mean", r.Mean, c.mean},
			{"p99", r.P99, c.p99},
			{"hit", r.Hit, c.hit},
			{"goodput", r.Goodput, c.goodput},
			{"whole answers", r.Whole, c.answer},
		} {
			if math.Abs(f.got/f.want-1) > 0.05 {
				t.Errorf("%s at %v: %s %v, the study has %v", c.policy, c.rate, f.name, f.got, f.want)
			}
		}
	}
}

// TestPublishedGates: every promised figure is met.
func TestPublishedGates(t *testing.T) {
	if testing.Short() {
		t.Skip("some hundred runs")
	}
	report, err := Gates(published(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Gates) < 30 {
		t.Errorf("only %d gates", len(report.Gates))
	}
	for i := range report.Gates {
		if g := &report.Gates[i]; !g.Pass() {
			t.Error(g)
		}
	}
}
