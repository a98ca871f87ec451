package chain

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"
)

func TestGoldenHashes(t *testing.T) {
	var vectors []struct {
		Name      string   `json:"name"`
		Text      string   `json:"text"`
		BlockSize int      `json:"block_size"`
		Chain     []string `json:"chain"`
	}
	golden(t, "golden_hashes.json", &vectors)
	for _, limit := range []struct {
		name  string
		max   int
		equal int // vectors that the limit leaves as they are
	}{{"off", 0, 204}, {"16", 16, 176}} {
		t.Run(limit.name, func(t *testing.T) {
			var c Chain
			equal := 0
			for _, v := range vectors {
				c.Reset(Options{BlockSize: v.BlockSize, MaxTokenBytes: limit.max}, 0, []byte(v.Text))
				c.Complete()
				same := sameHashes(t, c.Hashes(), v.Chain)
				over := limit.max > 0 && longestToken(v.Text) > limit.max
				if same == over {
					t.Errorf("%s, blocks of %d: equal %v, has a token over the limit %v", v.Name, v.BlockSize, same, over)
				}
				if same {
					equal++
				}
			}
			if len(vectors) != 204 || equal != limit.equal {
				t.Errorf("%d of %d vectors equal, want %d of 204", equal, len(vectors), limit.equal)
			}
		})
	}
}

func TestGoldenPrimitives(t *testing.T) {
	var v struct {
		FNV []struct {
			Text string `json:"text"`
			Hash string `json:"fnv1a64"`
		} `json:"fnv1a64"`
		Combine []struct {
			Prev     string `json:"prev"`
			Block    string `json:"block"`
			Combined string `json:"combined"`
		} `json:"combine_cumulative"`
		ZeroBlock []string `json:"zero_block_size_means_1"`
	}
	golden(t, "golden_primitives.json", &v)
	if len(v.FNV) != 6 || len(v.Combine) != 12 {
		t.Fatalf("%d and %d vectors, want 6 and 12", len(v.FNV), len(v.Combine))
	}
	for _, f := range v.FNV {
		if got := FNV1a([]byte(f.Text)); got != hex(t, f.Hash) {
			t.Errorf("FNV1a(%q) = %016x, want %s", f.Text, got, f.Hash)
		}
	}
	for _, f := range v.Combine {
		if got := Combine(hex(t, f.Prev), hex(t, f.Block)); got != hex(t, f.Combined) {
			t.Errorf("Combine(%s, %s) = %016x, want %s", f.Prev, f.Block, got, f.Combined)
		}
	}
	var c Chain
	c.Reset(Options{}, 0, []byte("a b c"))
	if c.Complete(); !sameHashes(t, c.Hashes(), v.ZeroBlock) {
		t.Errorf("block size 0: %x, want %v", c.Hashes(), v.ZeroBlock)
	}
}

func golden(t *testing.T, name string, into any) {
	t.Helper()
	b, err := os.ReadFile("../testdata/golden/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, into); err != nil {
		t.Fatal(err)
	}
}

func hex(t *testing.T, s string) uint64 {
	t.Helper()
	v, err := strconv.ParseUint(s, 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func sameHashes(t *testing.T, got []uint64, want []string) bool {
	t.Helper()
	if len(got) != len(want) {
		return false
	}
	for k := range got {
		if got[k] != hex(t, want[k]) {
			return false
		}
	}
	return true
}

func longestToken(text string) int {
	longest := 0
	for _, token := range strings.Fields(text) {
		longest = max(longest, len(token))
	}
	return longest
}
