//go:build !race

package fleet

const racing = false
