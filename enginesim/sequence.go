package enginesim

import (
	"encoding/binary"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// state is where a sequence stands.
type state uint8

const (
	queued  state = iota // in Engine.waiting, holds no blocks
	loading              // in Engine.loading, waits for handed-over KV, holds all blocks of its prompt
	ready                // in Engine.ready, KV loaded, holds blocks, waits for a slot
	running              // in Engine.running
	ended                // finished or aborted; holds nothing
)

// sequence is one answer in the making. What is above the line is fixed before the
// engine gets it; the rest belongs to the engine's lock.
type sequence struct {
	prompt []uint32
	root   uint64 // cache namespace
	script script
	notify chan struct{} // of the request; has room for one, told at every token
	embed  bool          // ends when the prompt is computed; does not use the cache
	hold   *handout      // of a prefill leg: what its lease hands out; else nil

	meeting *meeting // of such a prefill leg, if the legs meet; else nil

	claim    *claim // of a decode leg until its KV is loaded; else nil
	state    state
	keys     []uint64 // of the full blocks whose tokens are known
	blocks   []int32  // pinned, in order
	named    int      // leading blocks that were given to the cache or came from it
	computed int      // leading tokens whose KV exists
	chunk    int      // tokens in the step that runs
	out      int      // tokens generated
	cached   int      // prompt tokens not computed here, as usage tells; -1 before admission
	lease    string   // id of the lease left behind
	stored   int      // leading tokens that the shared store has given
}

// total is the number of tokens known: prompt and what was generated.
func (s *sequence) total() int { return len(s.prompt) + s.out }

// promptHash identifies a prompt within its namespace.
func promptHash(root uint64, prompt []uint32) uint64 {
	return mix(root ^ hashTokens(prompt))
}

// hashTokens hashes ids without an allocation.
func hashTokens(ids []uint32) uint64 {
	var h xxhash.Digest
	h.Reset()
	var b [256]byte
	for len(ids) > 0 {
		n := min(len(ids), len(b)/4)
		for i, id := range ids[:n] {
			binary.LittleEndian.PutUint32(b[4*i:], id)
		}
		_, _ = h.Write(b[:4*n])
		ids = ids[n:]
	}
	return h.Sum64()
}

// namespace is the root of all block keys of a model and a cache salt.
func namespace(model, salt string) uint64 {
	return mix(xxhash.Sum64String(model)) ^ mix(xxhash.Sum64String(salt)+1)
}

// extendKeys adds the keys of all full blocks within the first n tokens.
func (s *sequence) extendKeys(blockSize, n int) {
	parent := s.root
	if len(s.keys) > 0 {
		parent = s.keys[len(s.keys)-1]
	}
	b := make([]byte, 0, 8+4*blockSize)
	for (len(s.keys)+1)*blockSize <= n {
		b = binary.LittleEndian.AppendUint64(b[:0], parent)
		for i := len(s.keys) * blockSize; i < (len(s.keys)+1)*blockSize; i++ {
			b = binary.LittleEndian.AppendUint32(b, s.token(i))
		}
		parent = xxhash.Sum64(b)
		s.keys = append(s.keys, parent)
	}
}

// token is the id of the i-th token of prompt and answer. The answer's words are
// given the ids that they will have in the next turn's prompt.
func (s *sequence) token(i int) uint32 {
	if i < len(s.prompt) {
		return s.prompt[i]
	}
	return tokenID(strings.TrimSpace(s.script.piece(i - len(s.prompt))))
}

// tell wakes whoever follows the sequence.
func (s *sequence) tell() {
	select {
	case s.notify <- struct{}{}:
	default: // a wake-up is already waiting to be read
	}
}
