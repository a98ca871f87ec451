//go:build race || !(amd64 || arm64 || loong64 || ppc64le || riscv64 || s390x)

package index

import "sync/atomic"

func loadRelaxed(p *uint64) uint64     { return atomic.LoadUint64(p) }
func storeRelaxed(p *uint64, v uint64) { atomic.StoreUint64(p, v) }
