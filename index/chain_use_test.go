package index_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/chain"
	"github.com/calinix/caddy-calinix/index"
)

// A prompt's way through the index: asked before the pick, registered after it.
func Example() {
	x := index.New(index.Options{MaxBlocks: 1_000_000, StaleTTL: time.Hour})
	now := time.Unix(1_000_000_000, 0)
	var q index.Query
	var c chain.Chain

	first := "You are a helpful assistant. What is the capital of France?"
	c.Reset(chain.Options{BlockSize: 4}, 0, []byte(first))
	x.Query(&q, &c, index.All(3))
	fmt.Println("first turn:", len(q.Frames), "frames")
	x.Register(now, 2, &c, &q)

	c.Reset(chain.Options{BlockSize: 4}, 0, []byte(first+" Paris. And how many people live there, about?"))
	x.Query(&q, &c, index.All(3))
	for _, f := range q.Frames {
		fmt.Println("second turn:", f.Pods, "hold", f.Depth, "of", c.Complete(), "blocks")
	}
	// Output:
	// first turn: 0 frames
	// second turn: {2} hold 2 of 5 blocks
}

// TestConversation: with real chains, too, the depth of a follow-up turn is that of the
// turn before, however long the prompts are, and other prompts do not matter.
func TestConversation(t *testing.T) {
	x := index.New(index.Options{})
	now := time.Unix(1_000_000_000, 0)
	var q index.Query
	var c chain.Chain
	for blocks := 1; blocks < 3000; blocks = blocks*3/2 + 1 {
		text := strings.Repeat(fmt.Sprintf("word%d ", blocks), 16*blocks)
		for pod := range 3 {
			c.Reset(chain.Options{BlockSize: 16, MaxTokenBytes: 16}, 7, []byte(text[:len(text)/(pod+1)]))
			x.Query(&q, &c, index.All(256))
			x.Register(now, uint8(100*pod), &c, &q)
			if c.Complete() < blocks/(pod+1) {
				t.Fatalf("%d blocks, want %d", c.Complete(), blocks/(pod+1))
			}
		}
		c.Reset(chain.Options{BlockSize: 16, MaxTokenBytes: 16}, 7, []byte(text+"and something new"))
		x.Query(&q, &c, index.All(256))
		for pod := range 3 {
			// The last block of a part may be a partial one, which the whole has not.
			if got, want := q.Depth(100*pod), blocks/(pod+1); got != want && got != want-1 {
				t.Errorf("%d blocks: pod %d holds %d, want %d", blocks, 100*pod, got, want)
			}
		}
		if got := q.Depth(0); got != blocks {
			t.Errorf("%d blocks: pod 0 holds %d", blocks, got)
		}
	}
}
