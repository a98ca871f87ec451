//go:build race

package jsonedit

// The race detector's build makes slices.Grow allocate twice.
const growAllocations = 2
