package yard

import (
	"bytes"
	"encoding/json"
	"hash/fnv"
	"math/rand/v2"
	"runtime"
	"testing"
)

func TestPassIsFNV1a(t *testing.T) {
	text := Prose(rand.New(rand.NewPCG(1, 2)), 1000)
	h := fnv.New64a()
	_, _ = h.Write(text)
	if got, want := Pass(text), h.Sum64(); got != want {
		t.Errorf("got %x, want %x", got, want)
	}
}

func TestEscapedNeedsEscapes(t *testing.T) {
	text := Escaped(rand.New(rand.NewPCG(1, 2)), 80_000, 80)
	if len(text) != 80_000 {
		t.Fatalf("%d bytes", len(text))
	}
	b, err := json.Marshal(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(b, []byte(`\`)); n < 800 || n > 1400 {
		t.Errorf("%d escapes in 80,000 bytes", n)
	}
}

// BenchmarkPass is the yardstick against itself: Y must be 1.
func BenchmarkPass(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	texts := make([][]byte, 256)
	for i := range texts {
		texts[i] = Prose(r, 8<<10)
	}
	var sum uint64
	Measure(b, Work{Texts: texts, Run: func(i int) { sum += Pass(texts[i%len(texts)]) }})
	runtime.KeepAlive(sum)
}
