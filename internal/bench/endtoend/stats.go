package main

import (
	"math"
	"slices"
	"time"
)

// quantile returns the q quantile of the times, in milliseconds.
func quantile(times []time.Duration, q float64) float64 {
	if len(times) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(times))
	return ms(sorted[min(len(sorted)-1, int(q*float64(len(sorted))))])
}

// interval is a median with the bounds between which the true one lies with at
// least 95 % probability.
type interval struct{ median, low, high float64 }

// medianOf returns the median of the values with its interval from order
// statistics: the number of values below the true median is binomial.
func medianOf(values []float64) interval {
	s := slices.Sorted(slices.Values(values))
	n := len(s)
	if n == 0 {
		return interval{math.NaN(), math.NaN(), math.NaN()}
	}
	mid := s[n/2]
	if n%2 == 0 {
		mid = (s[n/2-1] + s[n/2]) / 2
	}
	k := 0 // the interval leaves out k values on each side
	for tail := math.Pow(0.5, float64(n)); tail <= 0.025; k++ {
		tail += binomial(n, k+1) * math.Pow(0.5, float64(n))
	}
	k = max(k-1, 0)
	return interval{mid, s[k], s[n-1-k]}
}

// binomial is n over k.
func binomial(n, k int) float64 {
	b := 1.0
	for i := range k {
		b *= float64(n-i) / float64(i+1)
	}
	return b
}

// each applies f to the values of every pair.
func each(a, b []float64, f func(a, b float64) float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = f(a[i], b[i])
	}
	return out
}
