package selection

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/calinix/caddy-calinix/index"
)

// TestTiesByPrompt: different prompts spread over idle pods, the same prompt
// keeps its pod, and one pod more or less moves only the prompts that it wins.
func TestTiesByPrompt(t *testing.T) {
	const pods, prompts = 8, 8000
	v, all := fleetOf(make([]int32, pods), nil)
	without := all
	without.Clear(3)
	var served [pods]int
	for i := range prompts {
		r := &Request{HasKey: true, Key: xxhash.Sum64String(fmt.Sprint("prompt ", i))}
		p := Pick(v, &all, r)
		served[p]++
		if q := Pick(v, &without, r); p != 3 && q != p {
			t.Fatalf("prompt %d moved from pod %d to %d when pod 3 left", i, p, q)
		}
	}
	for p, n := range served {
		if n < 900 || n > 1100 { // 1000 expected, standard deviation 30
			t.Errorf("pod %d served %d of %d prompts, want about %d", p, n, prompts, prompts/pods)
		}
	}
}

// TestShortDistinctPrompts: forty short prompts, one after another, over pods
// with the shortest of names.
func TestShortDistinctPrompts(t *testing.T) {
	v, c := fleetOf(make([]int32, 4), nil)
	for p, id := range []string{"a", "b", "c", "d"} {
		v.ID[p] = IDHash(id)
	}
	var served [4]int
	for i := 1; i <= 40; i++ {
		key := xxhash.Sum64String(fmt.Sprintf("question %04d about topic %04d please answer briefly", i, i))
		r := &Request{Weights: SingleWeights(), Sticky: None, HasKey: true, Key: key}
		top := Score(v, &c, r)
		served[Pick(v, &top, r)]++
	}
	for p, n := range served {
		if n < 3 {
			t.Errorf("pod %d served %d of 40: %v", p, n, served)
		}
	}
}

// TestIDHash: the pick must not change with a release or a restart.
func TestIDHash(t *testing.T) {
	for id, want := range map[string]uint64{"single-1": 0x6a8d20a9403a2fef, "a": 0xd24ec4f1a98c6e5b} {
		if got := IDHash(id); got != want {
			t.Errorf("IDHash(%q) = %#x, want %#x", id, got, want)
		}
	}
	v, c := fleetOf(make([]int32, 4), nil)
	var picks []string
	for key := range uint64(12) {
		picks = append(picks, fmt.Sprint(Pick(v, &c, &Request{HasKey: true, Key: key * 0x2545f4914f6cdd1d})))
	}
	if got, want := strings.Join(picks, " "), "2 1 3 1 2 1 2 2 0 2 1 0"; got != want {
		t.Errorf("picks %q, want %q", got, want)
	}
}

// TestRotation: equals are taken in turn, in the order of the configuration,
// also while pods come and go.
func TestRotation(t *testing.T) {
	v, _ := fleetOf(make([]int32, 5), nil)
	for p := range 5 {
		v.Rank[p] = uint8(4 - p) // pod 4 is the first of the configuration
	}
	turn := uint8(255)
	for _, step := range []struct {
		pods index.Bitmap
		want int
	}{
		{index.All(5), 4},
		{index.All(5), 3},
		{index.Of(0, 1, 3, 4), 1}, // 2 is gone
		{index.All(5), 0},
		{index.All(5), 4}, // round again
		{index.Of(1, 4), 1},
		{index.Of(1, 4), 4},
		{index.Of(4), 4},
		{index.Bitmap{}, None},
	} {
		for _, r := range []*Request{{Strategy: RoundRobin, HasKey: true, TieBreak: ByPodID, Turn: turn}, {Turn: turn}} {
			if !r.Rotates() {
				t.Errorf("%+v does not rotate", r)
			}
			if got := Pick(v, &step.pods, r); got != step.want {
				t.Errorf("after rank %d of %v: pod %d, want %d", turn, step.pods, got, step.want)
			}
		}
		if step.want != None {
			turn = v.Rank[step.want]
		}
	}
}

func TestTiesByPodID(t *testing.T) {
	v, c := fleetOf(make([]int32, 3), nil)
	v.Rank[0], v.Rank[1], v.Rank[2] = 2, 0, 1
	for _, r := range []*Request{{TieBreak: ByPodID}, {TieBreak: ByPodID, HasKey: true, Key: 7, Turn: 0}} {
		if r.Rotates() {
			t.Errorf("%+v rotates", r)
		}
		if got := Pick(v, &c, r); got != 1 {
			t.Errorf("picked pod %d, want the first of the configuration, 1", got)
		}
	}
}

// TestRandom: each candidate has the same chance, whatever its load, and the
// same draws give the same picks.
func TestRandom(t *testing.T) {
	v, c := fleetOf([]int32{0, 50, 3, 7}, nil)
	rnd := rand.New(rand.NewPCG(3, 4))
	var served [4]int
	for range 4000 {
		r := &Request{Strategy: Random, TieBreak: ByPodID, HasKey: true, Key: 1, Draw: rnd.Uint64()}
		top := Score(v, &c, r)
		p := Pick(v, &top, r)
		if r.Rotates() || p != Pick(v, &top, r) {
			t.Fatal("the draw alone must decide")
		}
		served[p]++
	}
	for p, n := range served {
		if n < 900 || n > 1100 { // 1000 expected, standard deviation 27
			t.Errorf("pod %d served %d of 4000", p, n)
		}
	}
}

func TestNames(t *testing.T) {
	for s, names := range map[Strategy][2]string{
		CacheAware:  {"cacheAware", "cache_aware"},
		LeastLoaded: {"leastLoaded", "least_loaded"},
		RoundRobin:  {"roundRobin", "round_robin"},
		Random:      {"random", "random"},

		ExpectedTTFT: {"expectedTTFT", "expected_ttft"},
	} {
		for _, name := range names {
			if got, err := ParseStrategy(name); got != s || err != nil {
				t.Errorf("ParseStrategy(%q) = %v, %v", name, got, err)
			}
		}
		if s.String() != names[0] {
			t.Errorf("%d is called %q", s, s)
		}
	}
	for tb, names := range map[TieBreak][2]string{ByPrompt: {"prompt", "prompt"}, ByPodID: {"podId", "pod_id"}} {
		for _, name := range names {
			if got, err := ParseTieBreak(name); got != tb || err != nil {
				t.Errorf("ParseTieBreak(%q) = %v, %v", name, got, err)
			}
		}
		if tb.String() != names[0] {
			t.Errorf("%d is called %q", tb, tb)
		}
	}
	for _, name := range []string{"", "CacheAware", "cacheaware", "expectedTtft", "expected_t_t_f_t", "least loaded"} {
		if _, err := ParseStrategy(name); err == nil || !strings.Contains(err.Error(), "cacheAware, leastLoaded") {
			t.Errorf("ParseStrategy(%q): %v", name, err)
		}
	}
	if _, err := ParseTieBreak("pod-id"); err == nil || !strings.Contains(err.Error(), `tieBreak "pod-id"`) {
		t.Errorf("ParseTieBreak: %v", err)
	}
	if got := Strategy(9).String(); got != "unknown(9)" {
		t.Errorf("Strategy(9) is called %q", got)
	}
}
