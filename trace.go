package calinix

import "github.com/calinix/caddy-calinix/chain"

// traced is what the access log says of a request so that its traffic can be
// replayed (caddy calinix replay): the members of a line of Mooncake's traces. It
// holds no word of the prompt, but equal numbers where prompts begin the same.
type traced struct {
	// Timestamp is when the request had been read, in ms of Unix time.
	Timestamp int64 `json:"timestamp"`
	// Input is the length of the prompt, in tokens of 4 bytes.
	Input int `json:"input_length"`
	// Output is that of the answer, as its usage says; without it, in how many
	// pieces it came.
	Output int64 `json:"output_length"`
	// IDs are one for each 512 tokens of the prompt, the last of which may be
	// fewer. An id stands for the whole prompt up to the end of its part.
	IDs []int64 `json:"hash_ids"`
}

// tracedBytes is how much of a prompt has one id: the 512 tokens of Mooncake's
// blocks.
const tracedBytes = 512 * 4

// idBits keeps ids exact in programs that read numbers as floats.
const idBits = 53

// trace notes what the log is to say of the prompt. The chain must be hashed as a
// whole.
func (x *exchange) trace() {
	c := x.chain
	t := &traced{Timestamp: x.read.UnixMilli(), Input: chain.EstimateTokens(c.Bytes())}
	hashes, k := c.Hashes(), 0
	for part := 0; part*tracedBytes < c.Bytes() && len(hashes) > 0; part++ {
		for k < len(hashes)-1 && c.End(k) < (part+1)*tracedBytes {
			k++
		}
		// A word may be longer than a part; its ids still are different ones.
		id := (hashes[k] + uint64(part)) & (1<<idBits - 1)
		t.IDs = append(t.IDs, int64(id))
	}
	x.traced = t
}
