package enginesim

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// lruModel is the KV cache as one would explain it: a list of the prefixes that are
// held (as text, not as hashes), the least recently used first, of at most size
// blocks. What is computed twice is held twice, until the older copy is evicted.
type lruModel struct {
	size, block, born int
	held              []copyOf
}

type copyOf struct {
	prefix string
	born   int // when it was computed
}

// newest returns where the newest copy of a prefix is, or -1.
func (m *lruModel) newest(prefix string) int {
	at := -1
	for i, c := range m.held {
		if c.prefix == prefix && (at < 0 || c.born > m.held[at].born) {
			at = i
		}
	}
	return at
}

// request returns how many tokens of a prompt need no computing, and remembers what
// the request leaves behind: its full blocks, the tail less recent than the head. out
// tokens of answer also need blocks while the request runs.
func (m *lruModel) request(prompt string, out int) (cached int) {
	var used []copyOf
	for n := m.block; n < len(prompt); n += m.block {
		at := m.newest(prompt[:n])
		if at < 0 {
			break
		}
		used = append(used, m.held[at])
		m.held = slices.Delete(m.held, at, at+1)
		cached = n
	}
	// The last token of the answer is never computed over.
	for total := blocksFor(len(prompt)+max(0, out-1), m.block); len(m.held)+total > m.size; {
		m.held = m.held[1:]
	}
	for n := cached + m.block; n <= len(prompt); n += m.block {
		m.born++
		used = append(used, copyOf{prompt[:n], m.born})
	}
	slices.Reverse(used)
	m.held = append(m.held, used...)
	return cached
}

// prompts of few letters and many shared beginnings.
func drawPrompt(t *rapid.T, seen []string) string {
	head := ""
	if len(seen) > 0 && rapid.Bool().Draw(t, "again") {
		head = rapid.SampledFrom(seen).Draw(t, "head")
		head = head[:rapid.IntRange(0, len(head)).Draw(t, "cut")]
	}
	tail := rapid.StringOfN(rapid.RuneFrom([]rune("ab")), 0, 12, -1).Draw(t, "tail")
	p := head + tail
	return p[:min(len(p), 24)] + "z"
}

func letters(p string) []uint32 {
	s := make([]uint32, len(p))
	for i := range p {
		s[i] = uint32(p[i])
	}
	return s
}

// Requests one after the other: cached_tokens equals the model's, and is never more
// than the longest beginning that was seen before.
func TestCachedTokensEqualModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := lruModel{size: rapid.IntRange(8, 24).Draw(t, "blocks"), block: 4}
		b := newBench(t, Settings{BlockSize: 4, NumGPUBlocks: m.size, MaxNumBatchedTokens: rapid.IntRange(1, 40).Draw(t, "chunk")})
		var seen []string
		for range rapid.IntRange(1, 40).Draw(t, "requests") {
			p := drawPrompt(t, seen)
			out := rapid.IntRange(1, 6).Draw(t, "out")
			s := b.put(letters(p), out)
			b.until(t, b.finished(s))
			got := b.progress(s).cached
			if want := m.request(p, out); got != want {
				t.Fatalf("prompt %q after %q: cached %d tokens, the model %d", p, seen, got, want)
			}
			longest := 0
			for _, old := range seen {
				longest = max(longest, commonPrefix(old, p))
			}
			if got > longest {
				t.Fatalf("prompt %q after %q: cached %d tokens, but only %d were ever seen", p, seen, got, longest)
			}
			if st := b.Stats(); st.BlocksCached != len(m.held) || st.BlocksPinned != 0 {
				t.Fatalf("%d blocks cached and %d pinned, the model holds %d", st.BlocksCached, st.BlocksPinned, len(m.held))
			}
			seen = append(seen, p)
		}
	})
}

func commonPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// Requests on top of each other, some aborted: whatever happens, every answer is
// whole, nothing is counted twice, and in the end nothing is held.
func TestConcurrentRequestsHoldNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newBench(t, Settings{
			BlockSize: 4, NumGPUBlocks: rapid.IntRange(10, 40).Draw(t, "blocks"), MaxModelLen: 40,
			MaxNumSeqs: rapid.IntRange(1, 5).Draw(t, "slots"), MaxNumBatchedTokens: rapid.IntRange(1, 30).Draw(t, "chunk"),
			CacheOutput: rapid.Bool().Draw(t, "output"),
		})
		var seqs []*sequence
		var seen []string
		aborted := 0
		for range rapid.IntRange(1, 30).Draw(t, "events") {
			switch rapid.IntRange(0, 4).Draw(t, "event") {
			case 0:
				if len(seqs) > 0 {
					s := rapid.SampledFrom(seqs).Draw(t, "abort")
					if !b.progress(s).done {
						aborted++
					}
					b.cancel([]*sequence{s})
				}
			case 1:
				b.clock.advance(20 * ms)
			default:
				p := drawPrompt(t, seen)
				seen = append(seen, p)
				seqs = append(seqs, b.put(letters(p), rapid.IntRange(1, 12).Draw(t, "out")))
			}
			if st := b.Stats(); st.BlocksPinned > st.Blocks || st.Running > b.Settings().MaxNumSeqs {
				t.Fatalf("more than there is: %+v", st)
			}
		}
		whole := 0
		for _, s := range seqs {
			b.until(t, b.finished(s))
			if s.out == s.script.n {
				whole++
			}
			if s.cached >= len(s.prompt) {
				t.Fatalf("cached %d of %d tokens", s.cached, len(s.prompt))
			}
		}
		st := b.Stats()
		if st.Running+st.Waiting+st.BlocksPinned != 0 {
			t.Fatalf("idle, but %+v", st)
		}
		if whole+aborted != len(seqs) || int(st.Finished["length"]) != whole || int(st.Finished["abort"]) != aborted {
			t.Fatalf("%d sequences, %d whole, %d aborted, but counted %v", len(seqs), whole, aborted, st.Finished)
		}
	})
}

// The free list holds every block that is not pinned, once.
func TestBlockPool(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(t, "blocks")
		p := newBlockPool(n)
		var pinned []int32
		for range rapid.IntRange(0, 60).Draw(t, "events") {
			key := rapid.Uint64Range(0, 9).Draw(t, "key")
			switch rapid.IntRange(0, 4).Draw(t, "event") {
			case 0, 1:
				if p.free > 0 {
					id := p.take()
					if slices.Contains(pinned, id) {
						t.Fatalf("took block %d, which is pinned", id)
					}
					pinned = append(pinned, id)
					p.name(id, key)
				}
			case 2:
				if id, ok := p.pinKey(key); ok {
					pinned = append(pinned, id)
				}
			case 3:
				if len(pinned) > 0 {
					i := rapid.IntRange(0, len(pinned)-1).Draw(t, "unpin")
					p.unpin(pinned[i : i+1])
					pinned = slices.Delete(pinned, i, i+1)
				}
			case 4:
				if rapid.IntRange(0, 9).Draw(t, "reset") == 0 {
					p.reset()
				}
			}
			free := map[int32]bool{}
			for id := p.blocks[n].next; int(id) != n; id = p.blocks[id].next {
				if free[id] || slices.Contains(pinned, id) {
					t.Fatalf("block %d is in the free list twice, or pinned", id)
				}
				free[id] = true
			}
			for _, id := range pinned {
				free[id] = true
			}
			if len(free) != n || p.free != n-countDistinct(pinned) {
				t.Fatalf("%d of %d blocks accounted for, %d free", len(free), n, p.free)
			}
			keyed := 0
			for key, id := range p.byKey {
				for newer := int32(-1); id >= 0; newer, id = id, p.blocks[id].older {
					if b := p.blocks[id]; b.key != key || !b.keyed || b.newer != newer {
						t.Fatalf("key %d leads to block %+v", key, b)
					}
					keyed++
				}
			}
			if keyed != p.cached {
				t.Fatalf("%d blocks have a key, counted %d", keyed, p.cached)
			}
		}
	})
}

func countDistinct(ids []int32) int {
	m := map[int32]bool{}
	for _, id := range ids {
		m[id] = true
	}
	return len(m)
}
