package chain

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unicode/utf8"
)

var optionSets = []Options{
	{1, 0},
	{1, 1},
	{1, 16},
	{2, 5},
	{3, 15},
	{4, 16},
	{7, 17},
	{16, 16},
	{32, 16},
	{32, 0},
	{5, 63},
	{6, 64},
	{6, 65},
	{64, 100},
	{200, 0},
	{200, 16},
	{1000, 16},
}

func TestEqualsReference(t *testing.T) {
	var c Chain // reused on purpose
	sizes := []int{0, 1, 7, 8, 63, 64, 65, 127, 128, 129, 191, 192, 193, 1000, 8192, 40000}
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			for _, size := range sizes {
				for _, text := range texts(k, 2, size) {
					for _, o := range optionSets {
						var steps []byte
						for range r.IntN(5) {
							steps = append(steps, byte(r.IntN(20)))
						}
						checkChain(t, &c, o, r.Uint64(), text, steps)
					}
				}
			}
		})
	}
}

// Every character, on every place of a chunk sooner or later.
func TestAllRunes(t *testing.T) {
	var text []byte
	for r := rune(0); r <= utf8.MaxRune; r++ {
		text = utf8.AppendRune(append(text, 'x'), r)
	}
	var c Chain
	checkChain(t, &c, Options{BlockSize: 3, MaxTokenBytes: 16}, 0, text, nil)
	checkChain(t, &c, Options{BlockSize: 3}, 0, text, nil)
}

// Texts that fill the stream many times over, runs and blocks of more bytes than
// the stream holds.
func TestHugeTexts(t *testing.T) {
	var c Chain
	run := bytes.Repeat([]byte("0123456789"), 20_000)
	words := mixed(rand.New(rand.NewPCG(1, 1)), 400_000)
	for _, text := range [][]byte{run, words, slices.Concat([]byte("a "), run, []byte(" b "), run, words)} {
		for _, o := range []Options{{1, 0}, {3, 0}, {100_000, 0}, {math.MaxInt, 16}, {4096, 16}, {2, 50_000}, {32, 16}, {1, 1}, {500, 16}} {
			checkChain(t, &c, o, 7, text, []byte{1, 1})
		}
	}
}

func TestExamples(t *testing.T) {
	for _, x := range []struct {
		text string
		o    Options
		ends []int
	}{
		{"", Options{2, 4}, nil},
		{" \t\n\u3000", Options{2, 4}, nil},
		{"to  be or\n not-to-be", Options{2, 4}, []int{6, 15, 20}},
		{"1234567812345678", Options{1, 8}, []int{8, 16}},
		{"12345678123456789", Options{1, 8}, []int{8, 16, 17}},
		{"a\u00a0b\u2003c", Options{1, 0}, []int{1, 4, 8}},
		{"a\u200bb", Options{1, 0}, []int{5}},
		{"\xffa\x80 \xe2\x80", Options{1, 0}, []int{3, 6}},
	} {
		var c Chain
		c.Reset(x.o, 0, []byte(x.text))
		var ends []int
		for k := range c.Complete() {
			ends = append(ends, c.End(k))
		}
		if !slices.Equal(ends, x.ends) {
			t.Errorf("%q %+v: ends %v, want %v", x.text, x.o, ends, x.ends)
		}
	}
}

// Extend costs what it covers: it reads little more than the blocks asked for,
// rounded up to four, however long the text.
func TestExtendIsLazy(t *testing.T) {
	for _, k := range kinds {
		text := k.make(rand.New(rand.NewPCG(3, 4)), 1<<20)
		var c Chain
		c.Reset(Options{BlockSize: 32, MaxTokenBytes: 16}, 0, text)
		for _, n := range []int{1, 4, 5, 8, 16, 17, 64} {
			got := c.Extend(n)
			if got < n || got > n+3 {
				t.Errorf("%s: Extend(%d) = %d", k.name, n, got)
			}
			if read, end := c.scan.off+c.scan.pos, c.End(got-1); read > end+200 {
				t.Errorf("%s: Extend(%d) read %d bytes for blocks that end at %d", k.name, n, read, end)
			}
			if again := c.Extend(n); again != got {
				t.Errorf("%s: Extend(%d) again = %d, was %d", k.name, n, again, got)
			}
		}
	}
}

func TestNoAllocations(t *testing.T) {
	var c Chain
	for _, k := range kinds {
		text := k.make(rand.New(rand.NewPCG(3, 4)), 50_000)
		use := func() {
			c.Reset(Options{BlockSize: 4, MaxTokenBytes: 16}, 1, text)
			for n := 8; !c.Done(); n *= 2 {
				c.Extend(n)
				c.Blocks()
			}
		}
		use()
		if n := testing.AllocsPerRun(5, use); n != 0 {
			t.Errorf("%s: %v allocations", k.name, n)
		}
	}
}

func TestResetForgets(t *testing.T) {
	var c Chain
	o := Options{BlockSize: 2, MaxTokenBytes: 16}
	long := english(rand.New(rand.NewPCG(3, 4)), 5000)
	c.Reset(o, 1, long)
	c.Extend(8) // left in the middle
	checkChain(t, &c, o, 2, []byte("a b c"), nil)
	if c.Seed() != 2 || c.Bytes() != 5 {
		t.Errorf("seed %d, bytes %d, want 2 and 5", c.Seed(), c.Bytes())
	}
}

func TestSeed(t *testing.T) {
	b := func(parts ...string) (all [][]byte) {
		for _, p := range parts {
			all = append(all, []byte(p))
		}
		return all
	}
	for _, none := range [][][]byte{nil, b(""), b("", ""), {nil}} {
		if s := Seed(none...); s != 0 {
			t.Errorf("Seed(%q) = %x, want 0", none, s)
		}
	}
	seen := map[uint64]string{0: "none"}
	for _, parts := range [][][]byte{
		b("a"), b("a", ""), b("", "a"), b("ab", "c"), b("a", "bc"), b("abc"), b("a", "b", "c"),
		b("\x00"), b("\x01\x00\x00\x00\x00\x00\x00\x00a"),
	} {
		name := fmt.Sprintf("%q", parts)
		s := Seed(parts...)
		if other, ok := seen[s]; ok {
			t.Errorf("%s has the seed of %s", name, other)
		}
		seen[s] = name
	}
}

func TestEstimateTokens(t *testing.T) {
	for bytes, want := range map[int]int{-1: 0, 0: 0, 1: 1, 4: 1, 7: 1, 8: 2, 8192: 2048} {
		if got := EstimateTokens(bytes); got != want {
			t.Errorf("EstimateTokens(%d) = %d, want %d", bytes, got, want)
		}
	}
}
