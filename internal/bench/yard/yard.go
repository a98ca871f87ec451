// Package yard is the yardstick of benchmarks, and how they are measured: in
// batches of some 25 µs, each beside the yardstick over the same texts, so that
// figures of two machines, or of one that is busy, can be compared.
//
// The yardstick Y is the time of one plain serial pass of FNV-1a over a text. Each
// byte of it is one xor and one multiplication that wait for each other. A chain of
// as many over registers tells whether the pass was measured well: its time is the
// same unless something came between, or the compiler has made something else of
// the pass.
package yard

import (
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"
)

const (
	offset = 14695981039346656037
	prime  = 1099511628211
)

// Pass is the yardstick.
func Pass(text []byte) uint64 {
	h := uint64(offset)
	for _, b := range text {
		h ^= uint64(b)
		h *= prime
	}
	return h
}

// registers is as many steps as Pass over n bytes takes, without the bytes.
func registers(n int) uint64 {
	h := uint64(offset)
	for i := range n {
		h = (h ^ uint64(i)) * prime
	}
	return h
}

// The ratio of the pass to the chain over registers, outside of which a run is
// void.
const (
	MinRatio = 0.95
	MaxRatio = 1.15
)

// batchTime is about how long a batch takes: short enough that most are not
// interrupted, long enough that reading the clock does not count.
const batchTime = 25 * time.Microsecond

// mostBatches is how many batches are kept.
const mostBatches = 1 << 14

// passes is how many texts the yardstick is applied to beside a batch.
const passes = 4

// Work is what Measure measures.
type Work struct {
	// Texts are the prompts of the operations: i works on Texts[i%len(Texts)]. An
	// operation that knows no prompt is compared with a prompt of PromptBytes.
	Texts [][]byte
	// Most is how many operations a batch may have; 0: any number.
	Most int
	// Run is the operation. Before and After, each may be nil, are called for all
	// operations of a batch before the first and after the last, and not measured.
	Before, Run, After func(i int)
}

// Result is what came of it, in ns an operation.
type Result struct {
	P10, P50, P99 float64
	// Y is the ratio of P10 to that of the yardstick over the same texts.
	Y float64
	// PerByte is the yardstick in ns a byte, Ratio its ratio to the chain over
	// registers.
	PerByte, Ratio float64
}

// PromptBytes is the length of an ordinary prompt.
const PromptBytes = 8 << 10

// Measure runs w as the loop of the benchmark, one batch a round, and reports
// ns/op (the median), min-ns, p10-ns, p99-ns, Y (the ratio of p10-ns to that of the
// yardstick over the same texts), yard-ns/B, and yard-ratio, which is that of the
// yardstick to the chain over registers.
func Measure(b *testing.B, w Work) {
	b.Helper()
	b.ReportAllocs()
	if len(w.Texts) == 0 {
		w.Texts = [][]byte{Prose(rand.New(rand.NewPCG(1, 1)), PromptBytes)}
	}
	size := 0
	for _, t := range w.Texts {
		size += len(t)
	}
	size /= len(w.Texts)
	batch := w.batch()
	var run, pass, regs []float64
	next := 0
	for b.Loop() {
		each(w.Before, next, batch)
		p, r := w.yardstick(next, min(batch, passes))
		start := time.Now()
		each(w.Run, next, batch)
		took := time.Since(start)
		each(w.After, next, batch)
		next += batch
		if len(run) < mostBatches {
			pass, regs = append(pass, p), append(regs, r)
			run = append(run, perOne(took, batch))
		}
	}
	slices.Sort(run)
	perByte := p10(pass)
	b.ReportMetric(quantile(run, 0.5), "ns/op")
	b.ReportMetric(run[0], "min-ns")
	b.ReportMetric(quantile(run, 0.1), "p10-ns")
	b.ReportMetric(quantile(run, 0.99), "p99-ns")
	b.ReportMetric(quantile(run, 0.1)/(perByte*float64(size)), "Y")
	b.ReportMetric(perByte, "yard-ns/B")
	b.ReportMetric(perByte/p10(regs), "yard-ratio")
}

// yardstick returns how long a pass over n texts takes, and how long as many
// steps over registers, both in ns a byte.
func (w *Work) yardstick(from, n int) (pass, regs float64) {
	bytes, sum := 0, uint64(0)
	t0 := time.Now()
	for i := range n {
		text := w.Texts[(from+i)%len(w.Texts)]
		sum += Pass(text)
		bytes += len(text)
	}
	t1 := time.Now()
	sum += registers(bytes)
	t2 := time.Now()
	runtime.KeepAlive(sum)
	return perOne(t1.Sub(t0), bytes), perOne(t2.Sub(t1), bytes)
}

// batch tries all operations once, which also lets grow what they keep, and
// returns how many of them make a batch.
func (w *Work) batch() int {
	fastest := time.Duration(math.MaxInt64)
	for i := range max(8, len(w.Texts)) {
		each(w.Before, i, 1)
		start := time.Now()
		each(w.Run, i, 1)
		fastest = min(fastest, time.Since(start))
		each(w.After, i, 1)
	}
	n := max(1, int(batchTime/max(fastest, 1)))
	if w.Most > 0 {
		n = min(n, w.Most)
	}
	return n
}

func each(f func(i int), from, n int) {
	if f != nil {
		for i := range n {
			f(from + i)
		}
	}
}

func perOne(d time.Duration, n int) float64 { return float64(d.Nanoseconds()) / float64(n) }

func p10(v []float64) float64 {
	slices.Sort(v)
	return quantile(v, 0.1)
}

// quantile returns the q-quantile of sorted values.
func quantile(sorted []float64, q float64) float64 {
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
