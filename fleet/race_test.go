//go:build race

package fleet

// racing: the race detector makes sync.Pool drop things at random.
const racing = true
