package yard

import (
	"slices"
	"testing"
)

// MeasureCPU is Measure for the time that all threads of the process spend on
// w.Run, which does so many operations at a time. Texts is for the yardstick. It
// reports cpu-ns, the lower decile over the rounds in ns an operation, and what
// Measure reports of the yardstick.
func MeasureCPU(b *testing.B, w Work, operations int) {
	b.Helper()
	size := len(w.Texts[0])
	var run, pass, regs []float64
	for round := 0; b.Loop(); round++ {
		if w.Before != nil {
			w.Before(round)
		}
		p, r := w.yardstick(round*passes, passes)
		pass, regs = append(pass, p), append(regs, r)
		start := processTime()
		w.Run(round)
		run = append(run, perOne(processTime()-start, operations))
	}
	slices.Sort(run)
	y := p10(pass)
	b.ReportMetric(quantile(run, 0.5), "ns/op")
	b.ReportMetric(quantile(run, 0.1), "cpu-ns")
	b.ReportMetric(quantile(run, 0.1)/(y*float64(size)), "Y")
	b.ReportMetric(y, "yard-ns/B")
	b.ReportMetric(y/p10(regs), "yard-ratio")
}

// OnCPU returns for how long f kept the calling thread on a core, in ns. The
// goroutine must be locked to its thread.
func OnCPU(f func()) float64 {
	start := threadTime()
	f()
	return float64((threadTime() - start).Nanoseconds())
}
