package index

import (
	"encoding/json"
	"os"
	"strconv"
	"testing"
)

func load(t *testing.T, name string, into any) {
	t.Helper()
	data, err := os.ReadFile("../testdata/golden/" + name)
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func hex(t *testing.T, s string) uint64 {
	t.Helper()
	h, err := strconv.ParseUint(s, 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestGoldenDepths: the depths are the true contiguous ones, also where an
// ownership map has holes.
func TestGoldenDepths(t *testing.T) {
	var cases []struct {
		Name       string
		ChainID    uint64 `json:"chain_id"`
		ChainLen   int    `json:"chain_len"`
		Candidates []int
		Dead       []int
		Owned      [][]int `json:"owned_blocks_by_pod"`
		Depths     []int   `json:"true_contiguous_depths"`
	}
	load(t, "golden_prefix.json", &cases)
	if len(cases) < 16 {
		t.Fatalf("only %d cases", len(cases))
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			x := New(Options{})
			whole := newChain(c.ChainID, c.ChainLen)
			for pod, blocks := range c.Owned {
				part := &fakeChain{}
				for _, k := range blocks {
					part.hashes = append(part.hashes, whole.hashes[k])
				}
				x.Register(epoch, uint8(pod), part, nil)
			}
			var q Query
			x.Query(&q, whole, Of(c.Candidates...).AndNot(Of(c.Dead...)))
			best := 0
			for pod, want := range c.Depths {
				if got := q.Depth(pod); got != want {
					t.Errorf("pod %d: depth %d, want %d", pod, got, want)
				}
				best = max(best, want)
			}
			if q.Best() != best {
				t.Errorf("best %d, want %d", q.Best(), best)
			}
		})
	}
}

func TestGoldenShards(t *testing.T) {
	var primitives struct {
		ShardFor []struct {
			Hash         string
			Count, Shard int
		} `json:"shard_for"`
	}
	load(t, "golden_primitives.json", &primitives)
	if len(primitives.ShardFor) < 108 {
		t.Fatalf("only %d vectors", len(primitives.ShardFor))
	}
	for _, v := range primitives.ShardFor {
		if got := Shard(hex(t, v.Hash), v.Count); got != v.Shard {
			t.Errorf("Shard(%s, %d) = %d, want %d", v.Hash, v.Count, got, v.Shard)
		}
	}

	var texts []struct {
		Chain     []string
		Shards256 []int `json:"shards_256"`
		Shards7   []int `json:"shards_7"`
	}
	load(t, "golden_hashes.json", &texts)
	hashes := 0
	for _, text := range texts {
		for i, s := range text.Chain {
			h := hex(t, s)
			if Shard(h, 256) != text.Shards256[i] || Shard(h, 7) != text.Shards7[i] {
				t.Errorf("Shard(%s) = %d of 256, %d of 7, want %d, %d", s, Shard(h, 256), Shard(h, 7), text.Shards256[i], text.Shards7[i])
			}
			if own := int(spread(h) >> keyBits); own != text.Shards256[i] {
				t.Errorf("the table puts %s into shard %d, want %d", s, own, text.Shards256[i])
			}
			hashes++
		}
	}
	if hashes < 1000 {
		t.Fatalf("only %d hashes", hashes)
	}
}
