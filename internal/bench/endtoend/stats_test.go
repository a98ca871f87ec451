package main

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// With 20 pairs the interval leaves out 5 values on each side: P(X <= 5) of a
// binomial(20, 1/2) is 0.0207, P(X <= 6) is 0.0577.
func TestMedianOfTwenty(t *testing.T) {
	values := make([]float64, 20)
	for i := range values {
		values[i] = float64(i + 1)
	}
	rand.Shuffle(len(values), func(i, j int) { values[i], values[j] = values[j], values[i] })
	assert.Equal(t, interval{median: 10.5, low: 6, high: 15}, medianOf(values))
}

func TestMedianOfFew(t *testing.T) {
	assert.Equal(t, interval{median: 2, low: 1, high: 3}, medianOf([]float64{3, 1, 2}), "no interval of 95 % exists: all values")
}

func TestQuantile(t *testing.T) {
	times := []time.Duration{4 * time.Millisecond, time.Millisecond, 3 * time.Millisecond, 2 * time.Millisecond}
	assert.InDelta(t, 3, quantile(times, 0.5), 0)
	assert.InDelta(t, 4, quantile(times, 0.99), 0)
}

func TestParseCells(t *testing.T) {
	cells, err := parseCells("1KiB@1, 220KiB@200")
	require.NoError(t, err)
	assert.Equal(t, []cell{{1024, 1}, {220 << 10, 200}}, cells)
	for _, bad := range []string{"", "8KiB", "8KiB@0", "x@1", "1@1", "1GiB@1"} {
		_, err := parseCells(bad)
		assert.ErrorContains(t, err, "want a body size", bad)
	}
}

func TestBodiesHaveTheirSize(t *testing.T) {
	for _, size := range []int{1 << 10, 64 << 10} {
		bodies := bodiesOf(3, size)
		assert.NotEqual(t, bodies[0], bodies[1])
		for _, b := range bodies {
			assert.InDelta(t, size, len(b), 16)
		}
	}
}
