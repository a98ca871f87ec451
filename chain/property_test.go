package chain

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// pieces of which awkward texts are made.
var pieces = []string{
	" ", "  ", "\n", "\r\n", "\t", "\v", "\f", "\x00", "\x1f", "a", "bc", "def", "word", "longer-words",
	"0123456789abcde", "0123456789abcdef", "0123456789abcdef0", "0123456789abcdef0123456789abcdef0123456789",
	"\u0085", "\u00a0", "\u1680", "\u2000", "\u200a", "\u200b", "\u2028", "\u202f", "\u205f", "\u3000", "\u3001",
	"é", "ж", "你好", "ひらがな", "“", "”", "🚀", "\xc2", "\xe1", "\xe1\x9a", "\xe2", "\xe2\x80", "\xe3\x80",
	"\x80", "\x85", "\xa0", "\xff", "\xf0\x9f",
}

func anyText(t *rapid.T, label string) []byte {
	var text []byte
	for _, p := range rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 300).Draw(t, label) {
		text = append(text, p...)
	}
	return text
}

func anyOptions(t *rapid.T) Options {
	return Options{
		BlockSize:     rapid.IntRange(0, 40).Draw(t, "block"),
		MaxTokenBytes: rapid.SampledFrom([]int{0, 1, 2, 3, 8, 15, 16, 17, 31, 63, 64, 65, 100}).Draw(t, "max"),
	}
}

func complete(o Options, text []byte) *Chain {
	c := new(Chain)
	c.Reset(o, 42, text)
	c.Complete()
	return c
}

func TestPropertyReference(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		steps := rapid.SliceOfN(rapid.Byte(), 0, 6).Draw(r, "steps")
		checkChain(r, new(Chain), anyOptions(r), rapid.Uint64().Draw(r, "seed"), anyText(r, "text"), steps)
	})
}

// The full blocks of a text are the first blocks of every text that goes on
// behind white space.
func TestPropertyPrefix(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		o, text := anyOptions(r), anyText(r, "text")
		space := rapid.SampledFrom([]string{" ", "\n\n", "\u3000", "\u00a0 "}).Draw(r, "space")
		grown := slices.Concat(text, []byte(space), anyText(r, "more"))
		tokens := len(complete(Options{1, o.MaxTokenBytes}, text).Hashes())
		checkCommon(r, o, text, grown, tokens)
	})
}

// If the last run itself goes on, all tokens before it stay, and all its pieces
// that are as long as they may be.
func TestPropertyGrowingRun(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		o := anyOptions(r)
		front := slices.Concat(anyText(r, "front"), []byte(" "))
		run := rapid.StringMatching(`([a-z]|[あ-ん]|é){0,40}`).Draw(r, "run")
		text := slices.Concat(front, []byte(run))
		grown := slices.Concat(text, []byte("x"), anyText(r, "more"))
		tokens := len(complete(Options{1, o.MaxTokenBytes}, front).Hashes())
		if o.MaxTokenBytes > 0 {
			tokens += len(run) / o.MaxTokenBytes
		}
		checkCommon(r, o, text, grown, tokens)
	})
}

// checkCommon checks that the blocks of the first so many tokens are the same.
func checkCommon(t *rapid.T, o Options, text, grown []byte, tokens int) {
	a, b := complete(o, text), complete(o, grown)
	for k := range tokens / max(1, o.BlockSize) {
		if a.Hashes()[k] != b.Hashes()[k] || a.End(k) != b.End(k) {
			t.Fatalf("block %d of %d tokens: %016x ends at %d, grown %016x at %d",
				k, tokens, a.Hashes()[k], a.End(k), b.Hashes()[k], b.End(k))
		}
	}
}

// Ends grow, and the text up to the end of a block has the hashes up to it.
func TestPropertyEnds(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		o, text := anyOptions(r), anyText(r, "text")
		c := complete(o, text)
		before := 0
		for k, h := range c.Hashes() {
			if c.End(k) <= before || c.End(k) > len(text) {
				r.Fatalf("block %d ends at %d, the one before at %d, the text at %d", k, c.End(k), before, len(text))
			}
			before = c.End(k)
			cut := complete(o, text[:before])
			if len(cut.Hashes()) != k+1 || cut.Hashes()[k] != h {
				r.Fatalf("text up to the end of block %d has %d blocks", k, len(cut.Hashes()))
			}
		}
	})
}
