//go:build !race && (amd64 || arm64 || loong64 || ppc64le || riscv64 || s390x)

package index

// Words that need no order with anything else, and may be read while they are
// written: the word "use" of a record, which is written once for each block of each
// prompt, and the head of a shard's list of dead records. An atomic store is an exchange
// that waits for all earlier stores, 256 of which cost more than all else in touching a
// chain of 256 blocks. On these machines an aligned 64-bit store is whole by itself,
// which is also what Go's memory model says of racing words. Everywhere else, and for
// the race detector, relaxed_atomic.go is used.

func loadRelaxed(p *uint64) uint64     { return *p }
func storeRelaxed(p *uint64, v uint64) { *p = v }
