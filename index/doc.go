// Package index knows which pods hold which blocks of prompts, and forgets in the
// order in which the pods' own caches do.
//
// On a request's way it stands between Prepare and Score. Query takes the
// prompt's chain and the candidates and answers with frames: sets of candidates
// that hold the same number of leading blocks. When a pod has been picked,
// Promise notes that it will hold the whole chain; with the
// first byte Keep lets go what that displaces, and if the leg fails before, Undo
// takes it back, and nothing was displaced (promise.go). In between nothing is looked
// up twice: the Query remembers where it found the blocks.
//
// There are two structures. The block table (table.go, block.go, shard.go) leads
// from a block's hash to the bitmap of its owners: 256 shards, one writer each,
// readers without locks. And each pod has a mirror (mirror.go) of what its cache
// is believed to hold, a list in order of use, that says what to forget when the
// pod's capacity, the ceiling of the index or the time to live is reached
// (evict.go). An owner bit is set exactly as long as the mirror has the entry.
//
// A block costs 55 bytes, each pod that holds it 15.5 bytes more. The package
// starts no goroutines and reads no clock.
package index
