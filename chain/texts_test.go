package chain

import (
	"encoding/base64"
	"math/rand/v2"
	"strconv"
	"strings"
)

// A kind of text, with a generator. Generated texts of one kind all differ, so
// that a branch predictor cannot learn them by heart.
type kind struct {
	name string
	make func(r *rand.Rand, size int) []byte
}

var kinds = []kind{
	{"english", english},
	{"typeset", typeset},
	{"code", code},
	{"names", names},
	{"chinese", chinese},
	{"japanese", japanese},
	{"base64", base64Text},
	{"mixed", mixed},
}

var letters = "etaoinshrdlcumwfgypbvkjxqz"

func word(r *rand.Rand, b []byte) []byte {
	// Lengths of English running text: 4.7 letters on average.
	n := 1 + int(r.ExpFloat64()*1.1) + r.IntN(6)
	for range min(n, 20) {
		b = append(b, letters[int(r.ExpFloat64()*6)%len(letters)])
	}
	return b
}

func english(r *rand.Rand, size int) []byte {
	var b []byte
	for sentence := 0; len(b) < size; sentence++ {
		for range 6 + r.IntN(20) {
			b = append(word(r, b), ' ')
		}
		b[len(b)-1] = '.'
		if r.IntN(8) == 0 {
			b = append(b, "\n\n"...)
		} else {
			b = append(b, ' ')
		}
	}
	return b[:size]
}

// typeset is English with typographic quotes, dashes and accents.
func typeset(r *rand.Rand, size int) []byte {
	var b []byte
	for len(b) < size {
		switch r.IntN(50) {
		case 0, 4, 5:
			b = append(append(word(r, append(b, "“"...)), "”"...), ' ')
		case 1:
			b = append(append(b, "—"...), ' ')
		case 2:
			b = append(append(word(r, b), "é"...), ' ')
		case 3:
			b = append(append(word(r, b), "’s"...), "\u00a0"...)
		default:
			b = append(word(r, b), ' ')
		}
	}
	return b[:size]
}

func code(r *rand.Rand, size int) []byte {
	var b []byte
	for depth := 0; len(b) < size; {
		depth = max(0, min(6, depth+r.IntN(3)-1))
		b = append(b, strings.Repeat("    ", depth)...)
		for range 1 + r.IntN(6) {
			b = word(r, b)
			b = append(b, []string{" ", " := ", "(", ", ", ".", " == ", ") "}[r.IntN(7)]...)
		}
		b = append(b, '\n')
		if r.IntN(8) == 0 {
			b = append(b, '\n')
		}
	}
	return b[:size]
}

// names is text of long compound words, most of them over the common limit.
func names(r *rand.Rand, size int) []byte {
	var b []byte
	for len(b) < size {
		b = append(b, "shared-rag-context-"...)
		b = strconv.AppendInt(b, int64(r.IntN(10000)), 10)
		b = append(b, ' ')
	}
	return b[:size]
}

func chinese(r *rand.Rand, size int) []byte {
	var b []byte
	for len(b) < size {
		for range 5 + r.IntN(25) {
			b = append(b, string(rune(0x4e00+r.IntN(0x5000)))...)
		}
		b = append(b, []string{"，", "。", "、", "\n"}[r.IntN(4)]...)
	}
	return b[:size]
}

func japanese(r *rand.Rand, size int) []byte {
	var b []byte
	for len(b) < size {
		for range 5 + r.IntN(25) {
			b = append(b, string(rune([]int{0x3041, 0x30a1, 0x4e00}[r.IntN(3)]+r.IntN(80)))...)
		}
		b = append(b, []string{"、", "。", "「", "」", "\u3000", "\n"}[r.IntN(6)]...)
	}
	return b[:size]
}

func base64Text(r *rand.Rand, size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return []byte(base64.StdEncoding.EncodeToString(b))[:size]
}

// mixed has pieces of all kinds, as a chat has.
func mixed(r *rand.Rand, size int) []byte {
	var b []byte
	for len(b) < size {
		k := kinds6()[r.IntN(6)]
		b = append(b, k(r, 1+r.IntN(400))...)
		b = append(b, "\n"...)
	}
	return b[:size]
}

func kinds6() []func(*rand.Rand, int) []byte {
	return []func(*rand.Rand, int) []byte{english, typeset, code, chinese, japanese, base64Text}
}

// texts returns count texts of a kind, always the same ones.
func texts(k kind, count, size int) [][]byte {
	r := rand.New(rand.NewPCG(uint64(size), 5))
	all := make([][]byte, count)
	for i := range all {
		all[i] = k.make(r, size)
	}
	return all
}
