//go:build published

package replay

import (
	"bytes"
	"math"
	"os"
	"testing"
)

// The tests in this file are on the conversation trace of Mooncake (FAST '25), which
// is not in the repository: CALINIX_TRACE names its file. .ci/run gets it.
//
//	CALINIX_TRACE=conversation_trace.jsonl go test -tags published ./replay

// publishedText returns the trace as it is published.
func publishedText(t *testing.T) []byte {
	t.Helper()
	file := os.Getenv("CALINIX_TRACE")
	if file == "" {
		t.Fatal("CALINIX_TRACE names no trace")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// readTrace reads a text as a trace.
func readTrace(t *testing.T, text []byte) *Trace {
	t.Helper()
	tr, err := ReadMooncake(bytes.NewReader(text), 1)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// published returns the whole trace.
func published(t *testing.T) *Trace {
	t.Helper()
	tr := readTrace(t, publishedText(t))
	if !tr.conversation() {
		t.Fatal("CALINIX_TRACE names another trace")
	}
	return tr
}

// halves returns the first 6,015 requests and the rest as traces of their own.
func halves(t *testing.T) (first, second *Trace) {
	t.Helper()
	published(t)
	lines := bytes.SplitAfter(publishedText(t), []byte("\n"))
	first = readTrace(t, bytes.Join(lines[:6015], nil))
	second = readTrace(t, bytes.Join(lines[6015:], nil))
	if len(second.Requests) != 6016 {
		t.Fatalf("%d requests in the second half", len(second.Requests))
	}
	return first, second
}

// TestAgreesWithTheStudy compares with figures of an independent program that was
// written for a study of these policies: the same trace, engine, rates. It has what
// that program prints with its first seed; r = 2,000 in its expectedTTFT, and all
// constants in tokens. Of two of its policies not every figure can be compared: that
// of random differs by a third from one of its seeds to the next, and beyond
// saturation that of the fewest requests by a sixth.
func TestAgreesWithTheStudy(t *testing.T) {
	tr := published(t)
	for _, c := range []struct {
		policy          string
		rate            float64
		mean, p99, hit  float64
		goodput, answer float64
	}{
		{"leastLoaded", 12.99, 1704, 14470, 0.0573, 0.8425, 12047},
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
		{"roundRobin", 15.4, 24550, 104638, 0.0598, 0.2159, 49436},
		{"power-of-two", 15.4, 10397, 40544, 0.0546, 0.1856, 37919},
		{"session", 15.4, 29989, 227416, 0.2511, 0.3670, 47715},
		{"prefix-bounded", 15.4, 97511, 224355, 0.0583, 0.0259, 127516},
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
	report, err := Gates(published(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Gates) != 42 {
		t.Errorf("%d gates", len(report.Gates))
	}
	for i := range report.Gates {
		if g := &report.Gates[i]; !g.Pass() {
			t.Error(g)
		}
	}
}

// TestHoldOnTheSecondHalf of the published trace: the constants were chosen on the
// first.
func TestHoldOnTheSecondHalf(t *testing.T) {
	_, half := halves(t)
	for _, c := range []struct{ rate, mean, goodput float64 }{ // 80, 95, 110 and 130 % of what the oracle can
		{14.04, 1.02, 0.995},
		{16.68, 1, 0.99},
		{19.31, 0.4, 0.9},
		{22.82, 0.25, 0.85},
	} {
		without, with := do(t, gateRun(half, named("expectedTTFT"), c.rate)), do(t, gateRun(half, named("expectedTTFT+hold"), c.rate))
		if got := with.Mean / without.Mean; got > c.mean || with.Goodput < c.goodput {
			t.Errorf("at %v: the mean is %v times that without holding, want %v; goodput %v, want %v", c.rate, got, c.mean, with.Goodput, c.goodput)
		}
	}
}
