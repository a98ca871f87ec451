package chain

import (
	"bytes"
	"math/bits"
	"math/rand/v2"
	"testing"
	"unicode"
	"unicode/utf8"
)

// Each value on each place of a chunk, between letters and between spaces.
func TestBlend(t *testing.T) {
	for _, around := range []byte{'a', ' ', '\n'} {
		for place := range chunkBytes {
			for v := range 256 {
				var src [windowBytes]byte
				var dst, wide [chunkBytes]byte
				for i := range src {
					src[i] = around
				}
				src[place] = byte(v)
				var want uint64
				out := src
				for i, b := range src[:chunkBytes] {
					if b < utf8.RuneSelf && unicode.IsSpace(rune(b)) {
						want |= 1 << i
						out[i] = separator
					}
				}
				if got, _ := blendWide(&wide, &src, separator); got != want || !bytes.Equal(wide[:], out[:chunkBytes]) {
					t.Fatalf("blendWide: %#x at %d among %#x: %064b, want %064b", v, place, around, got, want)
				}
				if ascii(&src) != (v < utf8.RuneSelf) {
					t.Fatalf("ascii: %#x at %d", v, place)
				}
				if v < utf8.RuneSelf {
					if got := blend(&dst, &src, separator); got != want || dst != wide {
						t.Fatalf("blend: %#x at %d among %#x: %064b, want %064b", v, place, around, got, want)
					}
				}
			}
		}
	}
}

// wideSpace knows all white space beyond ASCII, and blendWide proposes it.
func TestWideSpace(t *testing.T) {
	for r := rune(utf8.RuneSelf); r <= utf8.MaxRune; r++ {
		b := append(utf8.AppendRune(nil, r), "xxx"...)
		want := 0
		if unicode.IsSpace(r) {
			want = len(b) - 3
		}
		if got := wideSpace(b[0], b[1], b[2]); got != want {
			t.Errorf("%U: %d, want %d", r, got, want)
		}
		if want > 0 {
			var src [windowBytes]byte
			var dst [chunkBytes]byte
			copy(src[63:], b)
			if _, maybe := blendWide(&dst, &src, separator); maybe != 1<<63 {
				t.Errorf("%U at 63: maybe %x", r, maybe)
			}
		}
	}
	for _, b := range []string{"\xe2\x80 ", "\xe2\x80\x40", "\xe2\x80\xc0", "\xe2\x00\x80", "\xc2\xc2\x85"} {
		if got := wideSpace(b[0], b[1], b[2]); got != 0 {
			t.Errorf("%q: %d, want 0", b, got)
		}
	}
}

func TestNthBit(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		x := r.Uint64() & r.Uint64()
		if r.IntN(2) == 0 {
			x |= r.Uint64()
		}
		for n, rest := 1, x; rest != 0; n, rest = n+1, rest&(rest-1) {
			if got, want := nthBit(x, n), bits.TrailingZeros64(rest); got != want {
				t.Fatalf("nthBit(%x, %d) = %d, want %d", x, n, got, want)
			}
		}
	}
}

func TestTranspose(t *testing.T) {
	for i := range 8 {
		for j := range 8 {
			if got, want := transpose(1<<(8*i+j)), uint64(1)<<(8*j+i); got != want {
				t.Errorf("bit %d of byte %d: %x, want %x", j, i, got, want)
			}
		}
	}
}

func TestWithoutZeros(t *testing.T) {
	for n := range strideBytes {
		h := uint64(12345)
		for range strideBytes - n {
			h = step(h, 0)
		}
		if got := h * withoutZeros[n]; got != 12345 {
			t.Errorf("%d zeros taken out: %d", strideBytes-n, got)
		}
	}
}
