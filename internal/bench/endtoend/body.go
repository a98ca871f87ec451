package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// bodiesOf returns n different chat requests of about size bytes each, the same
// for the same arguments.
func bodiesOf(n, size int) [][]byte {
	rng := rand.New(rand.NewPCG(uint64(n), uint64(size)))
	bodies := make([][]byte, n)
	for i := range bodies {
		head := fmt.Sprintf(`{"model":"sim","stream":true,"max_tokens":%d,"messages":[{"role":"user","content":"`, answerTokens)
		const tail = `"}]}`
		var b strings.Builder
		b.WriteString(head)
		for b.Len() < size-len(tail)-12 {
			for range 2 + rng.IntN(9) {
				b.WriteByte(byte('a' + rng.IntN(26)))
			}
			b.WriteByte(' ')
		}
		b.WriteString(tail)
		bodies[i] = []byte(b.String())
	}
	return bodies
}

// answerTokens is how many tokens every request asks for.
const answerTokens = 50
