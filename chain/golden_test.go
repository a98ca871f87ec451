package chain

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"
)

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

func TestGoldenHashes(t *testing.T) {
	var vectors []struct {
		Name      string
		Text      string
		BlockSize int `json:"block_size"`
		Tokens    int `json:"token_count"`
		Chain     []string
	}
	golden(t, "golden_hashes.json", &vectors)
	for _, limit := range []struct {
		name  string
		max   int
		equal int // vectors that the rule leaves as they are
	}{{"off", 0, 204}, {"16", 16, 176}} {
		t.Run(limit.name, func(t *testing.T) {
			var c Chain
			equal := 0
			for _, v := range vectors {
				c.Reset(Options{BlockSize: v.BlockSize, MaxTokenBytes: limit.max}, 0, []byte(v.Text))
				c.Complete()
				same := len(c.Hashes()) == len(v.Chain)
				for k := 0; same && k < len(v.Chain); k++ {
					same = c.Hashes()[k] == hex(t, v.Chain[k])
				}
				over := limit.max > 0 && longestToken(v.Text) > limit.max
				if same == over {
					t.Errorf("%s, blocks of %d: equal %v, has a token over the limit %v", v.Name, v.BlockSize, same, over)
				}
				if same {
					equal++
				}
			}
			if equal != limit.equal {
				t.Errorf("%d of %d vectors equal, want %d", equal, len(vectors), limit.equal)
			}
		})
	}
}

func longestToken(text string) int {
	longest := 0
	for _, token := range strings.Fields(text) {
		longest = max(longest, len(token))
	}
	return longest
}
