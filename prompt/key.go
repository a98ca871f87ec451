package prompt

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

// What of a prompt goes into its key: the end, which is new in every turn, and
// samples of all that comes before it, the first bytes included. Together they
// cost the same however long the prompt is.
const (
	keyTail    = 1024
	keySamples = 16
	keySample  = 64
)

// Key is a fixed function of the prompt by which ties between pods are broken:
// a hash of its seed, its length, its end, and samples of the rest. The end alone
// would not do: long instructions behind what differs are common, and all such
// prompts would go to the same pod.
func (r *Request) Key() uint64 {
	text := r.Text
	var head [16]byte
	binary.LittleEndian.PutUint64(head[:], r.Seed)
	binary.LittleEndian.PutUint64(head[8:], uint64(len(text)))
	var d xxhash.Digest
	d.Reset()
	_, _ = d.Write(head[:]) // never fails
	tail := max(0, len(text)-keyTail)
	if tail <= keySamples*keySample {
		tail = 0
	} else {
		for i := range keySamples {
			at := i * (tail - keySample) / (keySamples - 1)
			_, _ = d.Write(text[at : at+keySample])
		}
	}
	_, _ = d.Write(text[tail:])
	return d.Sum64()
}
