package jsonscan

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// text is n bytes of words, an escape about every gap bytes (0 = none).
func text(rng *rand.Rand, n, gap int) []byte {
	var b []byte
	next := gap
	for len(b) < n {
		for range 2 + rng.IntN(8) {
			b = append(b, byte('a'+rng.IntN(26)))
		}
		b = append(b, ' ')
		if gap > 0 && len(b) >= next {
			b = append(b, []string{`\n`, `\n`, `\n`, `\n\n`, `\"`, `\"`, `\t`, `\u2019`}[rng.IntN(8)]...)
			next = len(b) + gap/2 + rng.IntN(gap)
		}
	}
	return append(b, '"')
}

func BenchmarkString(b *testing.B) {
	for _, size := range []int{8, 80, 8192, 65536} {
		for _, gap := range []int{0, 80} {
			b.Run(fmt.Sprintf("%d/escape=%d", size, gap), func(b *testing.B) {
				rng := rand.New(rand.NewPCG(7, uint64(size)))
				bodies := make([][]byte, 48)
				for i := range bodies {
					bodies[i] = text(rng, size, gap)
				}
				var dst []byte
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					dst, _, _ = AppendString(dst[:0], bodies[i%len(bodies)], 0)
				}
			})
		}
	}
}

func BenchmarkCheckText(b *testing.B) {
	for name, piece := range map[string]string{"ascii": "plain words and more ", "mixed": "it’s a “mixed” text — ", "cjk": "你好世界，这是一个测试。"} {
		b.Run(name, func(b *testing.B) {
			var s []byte
			for len(s) < 8192 {
				s = append(s, piece...)
			}
			b.SetBytes(int64(len(s)))
			for b.Loop() {
				if checkText(s) >= 0 {
					b.Fatal("refused")
				}
			}
		})
	}
}

func BenchmarkSkip(b *testing.B) {
	var schema []byte
	for i := range 60 {
		schema = append(schema, fmt.Sprintf(`%c{"type":"function","function":{"name":"tool_%d","description":"Does the thing number %d, well.\nThen stops.","parameters":{"type":"object","properties":{"path":{"type":"string","description":"where"},"depth":{"type":"integer","minimum":%d}},"required":["path"]}}}`, "[,"[min(i, 1)], i, i, i)...)
	}
	schema = append(schema, ']')
	b.SetBytes(int64(len(schema)))
	for b.Loop() {
		if Skip(schema, 0, 0) != len(schema) {
			b.Fatal("refused")
		}
	}
}
