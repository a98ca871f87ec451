package chain

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

var optionSets = []Options{
	{1, 0}, {1, 1}, {1, 16}, {2, 5}, {3, 15}, {4, 16}, {7, 17}, {16, 16}, {32, 16}, {32, 0}, {5, 63}, {6, 64}, {6, 65}, {64, 100}, {200, 0}, {200, 16}, {1000, 16},
}

func TestEqualsReference(t *testing.T) {
	var c Chain // reused on purpose
	r := rand.New(rand.NewPCG(1, 2))
	for _, k := range kinds {
		for _, size := range []int{0, 1, 7, 8, 63, 64, 65, 66, 67, 127, 128, 129, 130, 131, 132, 133, 1000, 8192, 40000} {
			for _, text := range texts(k, 2, size) {
				for _, o := range optionSets {
					var steps []byte
					for range r.IntN(5) {
						steps = append(steps, byte(r.IntN(20)))
					}
					t.Run(fmt.Sprintf("%s/%d/%d/%d", k.name, size, o.BlockSize, o.MaxTokenBytes), func(t *testing.T) {
						checkChain(t, &c, o, r.Uint64(), text, steps)
					})
				}
			}
		}
	}
}
