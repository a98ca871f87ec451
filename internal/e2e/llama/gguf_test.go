package llama

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"testing"
)

// TestGGUF: the file is as long as its header says, and the same each time.
func TestGGUF(t *testing.T) {
	m := Model{Width: 64, Layers: 2, Hidden: 96, Heads: 4, KVHeads: 2, Context: 128, Seed: 7}
	var a, b bytes.Buffer
	if m.Write(&a) != nil || m.Write(&b) != nil || sha256.Sum256(a.Bytes()) != sha256.Sum256(b.Bytes()) {
		t.Fatal("the same model is two files")
	}
	tokens, types := vocabulary()
	if len(tokens) != len(types) || tokens[endOfText] != "<|endoftext|>" || tokens[endOfTurn] != turnEnds {
		t.Errorf("vocabulary %q", tokens[endOfText-1:])
	}
	head := a.Bytes()[:24]
	n := binary.LittleEndian.Uint64(head[8:])
	if string(head[:4]) != magic || head[4] != version || n != 3+9*2 {
		t.Errorf("header %q", head)
	}
	size := 0
	for _, t := range m.tensors(len(tokens)) {
		size += aligned(t.size())
	}
	if rest := a.Len() - size; rest <= 0 || rest%alignment != 0 || rest > 1<<15 {
		t.Errorf("%d bytes before the data", rest)
	}
	m.Seed++
	b.Reset()
	if m.Write(&b) != nil || bytes.Equal(a.Bytes(), b.Bytes()) || a.Len() != b.Len() {
		t.Error("another seed is another model of the same size")
	}
}

func TestHalf(t *testing.T) {
	for x, want := range map[float64]uint16{1: 0x3c00, 0.5: 0x3800, 1.5: 0x3e00, 2: 0x4000, 0x1p-14: 0x0400} {
		if got := half(x); got != want {
			t.Errorf("%v: %#x, want %#x", x, got, want)
		}
	}
	x := 0.3 / 73.9
	bits := half(x)
	back := math.Ldexp(1+float64(bits&1023)/1024, int(bits>>10)-15)
	if math.Abs(back/x-1) > 1e-3 {
		t.Errorf("%v comes back as %v", x, back)
	}
}
