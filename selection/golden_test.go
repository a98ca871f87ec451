package selection

import (
	"encoding/json"
	"math"
	"os"
	"strconv"
	"testing"

	"github.com/calinix/caddy-calinix/index"
)

// number is a JSON number, or one of the strings "nan", "inf", "-inf".
type number float64

func (n *number) UnmarshalJSON(b []byte) error {
	s := string(b)
	if len(s) > 1 && s[0] == '"' {
		s = s[1 : len(s)-1]
	}
	f, err := strconv.ParseFloat(s, 64)
	*n = number(f)
	return err
}

// situation is one reference vector of the four-factor score.
type situation struct {
	Name     string
	Weights  struct{ Cache, Load, Sticky, Locality number }
	Pods     int
	Blocks   int   `json:"chain_len"`
	Cands    []int `json:"candidates"`
	Depths   []int
	Loads    []int32
	MaxConns []int32 `json:"max_conns"`
	Session  *string
	Sticky   *int `json:"sticky_pod"`
	Prefill  *int
	Pick     json.RawMessage
	Scores   []struct {
		Pod                           int
		Cache, Load, Sticky, Locality number
		Bits                          string `json:"final_bits"`
	} `json:"candidate_scores"`
}

// arguments turns the vector into what Score takes. Every pod has a maxConns;
// its node is its own, which puts the prefill pod near to itself alone.
func (s *situation) arguments() (*View, index.Bitmap, *Request) {
	v := &View{}
	for p := range s.Pods {
		v.SetLimit(uint8(p), s.MaxConns[p])
		v.Add(uint8(p), s.Loads[p])
		v.Rank[p], v.Node[p] = uint8(p), uint16(p+1)
	}
	r := &Request{
		TieBreak: ByPodID,
		Weights: Weights{
			float64(s.Weights.Cache), float64(s.Weights.Load),
			float64(s.Weights.Sticky), float64(s.Weights.Locality),
		},
		Blocks: s.Blocks,
		Sticky: None,
	}
	for p, d := range s.Depths {
		r.Frames = append(r.Frames, index.Frame{Depth: d, Pods: index.Of(p)})
	}
	if s.Session != nil && s.Sticky != nil {
		r.Sticky = *s.Sticky
	}
	if s.Prefill != nil {
		r.Node = uint16(*s.Prefill + 1)
	}
	return v, index.Of(s.Cands...), r
}

// TestGoldenScores compares every factor, score and pick of the reference
// vectors with ours, to the last bit.
func TestGoldenScores(t *testing.T) {
	raw, err := os.ReadFile("../testdata/golden/golden_scores.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []situation
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	if len(all) != 39 {
		t.Fatalf("%d situations, want 39", len(all))
	}
	for _, s := range all {
		t.Run(s.Name, func(t *testing.T) {
			v, c, r := s.arguments()
			top := Score(v, &c, r)
			for _, want := range s.Scores {
				got := Explain(v, &c, r, uint8(want.Pod))
				same(t, want.Pod, "cache", got.Cache, float64(want.Cache))
				same(t, want.Pod, "load", got.Load, float64(want.Load))
				same(t, want.Pod, "sticky", got.Sticky, float64(want.Sticky))
				same(t, want.Pod, "locality", got.Locality, float64(want.Locality))
				final, err := strconv.ParseUint(want.Bits, 16, 64)
				if err != nil {
					t.Fatal(err)
				}
				same(t, want.Pod, "score", got.Score, math.Float64frombits(final))
			}
			want := None
			if len(s.Cands) > 0 {
				if want, err = strconv.Atoi(string(s.Pick)); err != nil {
					t.Fatal(err)
				}
			}
			if got := Pick(v, &top, r); got != want {
				t.Errorf("picked %d, want %d", got, want)
			}
		})
	}
}

// same compares bits; all that is no number counts as the same.
func same(t *testing.T, pod int, what string, got, want float64) {
	t.Helper()
	if math.Float64bits(got) != math.Float64bits(want) && !(math.IsNaN(got) && math.IsNaN(want)) {
		t.Errorf("pod %d: %s %v (%016x), want %v (%016x)",
			pod, what, got, math.Float64bits(got), want, math.Float64bits(want))
	}
}
