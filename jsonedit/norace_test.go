//go:build !race

package jsonedit

const growAllocations = 1
