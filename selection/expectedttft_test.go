package selection

import (
	"math"
	"testing"

	"github.com/calinix/caddy-calinix/index"
)

// workload lays pods out for ExpectedTTFT, each with its legs: those in waiting
// have been sent at 0, those in decoding are past their first byte.
type workload struct{ waiting, decoding []Load }

func (w *workload) fill(v *View, slot uint8) {
	for _, l := range w.decoding {
		v.Queue(slot, l, 0, 2000)
		v.Computed(slot, l, 0, 2000)
		v.Decode(slot, l, 1)
	}
	for _, l := range w.waiting {
		v.Queue(slot, l, 0, 2000)
	}
}

// TestCostFormula computes the cost of pods by hand.
func TestCostFormula(t *testing.T) {
	busy := workload{
		waiting:  []Load{{Prompt: 3000, Uncached: 1000}, {Prompt: 500, Uncached: 500}},
		decoding: []Load{{Prompt: 4000, Uncached: 9}, {Prompt: 6000, Uncached: 9}},
	}
	const half = second / 2
	for _, c := range []struct {
		name string
		load workload
		duty Duty
		now  int64
		want float64
	}{
		{"idle", workload{}, Serve, 0, 1.5 * 700},
		{"wait, work, company", busy, Serve, 0, 1500 + 1.5*700 + 0.01*(13500+10000+2*1000)},
		{"the queue drains by the rate", busy, Serve, half, 500 + 1.5*700 + 0.01*(13500+10000+2*1000)},
		{"and not below empty", busy, Serve, 9 * half, 1.5*700 + 0.01*(13500+10000+2*1000)},
		{"prefill pods have no decoders", busy, Compute, 0, 1500 + 1.5*700 + 0.01*13500},
		{"decode pods do not compute", busy, Generate, 0, 13500 + 10000 + 2*1000 + 0.1*700},
	} {
		v := &View{}
		c.load.fill(v, 3)
		all := index.Of(3)
		r := &Request{
			Strategy: ExpectedTTFT, TTFT: DefaultTTFT(), Duty: c.duty, Tokens: 1000, Now: c.now,
			Frames: []index.Frame{{Depth: 5, Pods: index.Of(3)}}, Work: []float64{700, 1000},
		}
		if got := -Explain(v, &all, r, 3).Score; math.Abs(got-c.want) > 1e-6 {
			t.Errorf("%s: cost %v, want %v", c.name, got, c.want)
		}
	}
}

// TestWork: what a prompt adds to a pod, and how much of it is forgiven.
func TestWork(t *testing.T) {
	d := DefaultTTFT()
	for _, c := range []struct {
		prompt, held, hot int64
		want              float64
	}{
		{1000, 0, 0, 1000},
		{1000, 400, 400, 600},
		{1000, 1000, 1000, 1}, // the last token is always computed
		{1000, 0, 800, 0.3*1000 + 0.7*200},
		{1000, 400, 1000, 0.3*600 + 0.7},
		{1000, 400, 100, 600}, // a hot part that is held anyway
	} {
		if got := d.Work(c.prompt, c.held, c.hot); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("Work(%d, %d, %d) = %v, want %v", c.prompt, c.held, c.hot, got, c.want)
		}
	}
}

// TestQueueReturnsToNothing: whatever order legs end in, nothing is left.
func TestQueueReturnsToNothing(t *testing.T) {
	v := &View{}
	loads := []Load{{7, 3}, {1 << 40, 1 << 40}, {5, 5}}
	for i, l := range loads {
		v.Queue(9, l, int64(i), 1.5)
	}
	for i, l := range loads {
		v.Computed(9, l, int64(i), 1.5)
		v.Decode(9, l, 1)
	}
	for _, l := range loads {
		v.Decode(9, l, -1)
		v.Unqueue(9, l)
	}
	if got := v.Backlog(9); got != (Backlog{Empty: 2}) {
		t.Errorf("left: %+v", got)
	}
	// A clock that stands, a rate near nothing and no end of work: no overflow.
	for range 1000 {
		v.Queue(9, Load{1 << 40, 1 << 40}, 0, 1e-9)
	}
	if b := v.Backlog(9); b.Empty < 0 || b.Empty > 2*maxWait {
		t.Errorf("empty at %d", b.Empty)
	}
}

// TestTokensNotRequests: one long prompt is more load than many short ones.
func TestTokensNotRequests(t *testing.T) {
	v := &View{}
	long := workload{waiting: []Load{{Prompt: 60000, Uncached: 60000}}}
	short := workload{}
	for range 20 {
		short.waiting = append(short.waiting, Load{Prompt: 500, Uncached: 500})
	}
	long.fill(v, 0)
	short.fill(v, 1)
	all := index.All(2)
	r := &Request{Strategy: ExpectedTTFT, TTFT: DefaultTTFT(), Tokens: 500, Work: []float64{500}}
	if top := Score(v, &all, r); top != index.Of(1) {
		t.Errorf("picked of %v", top)
	}
}
