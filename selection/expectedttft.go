package selection

import (
	"math"

	"github.com/calinix/caddy-calinix/index"
)

// TTFT are the constants of the strategy ExpectedTTFT. The defaults suit every
// trace and engine that they were tried on; see docs/routing-policies.md.
type TTFT struct {
	// PrefillRate is how many tokens a second a pod computes at the least. It
	// only says how fast a queue drains between two first bytes. Too low does
	// no harm; too high sends prompts to pods that are still busy.
	PrefillRate float64
	// Gamma is how much the work that a prompt makes counts besides the wait
	// for it: for those who come after.
	Gamma float64
	// Theta is what a token that lies in the pod's KV cache costs, in tokens to
	// compute: each step of decoding reads them all.
	Theta float64
	// Eta is which share of a hot prefix a pod that lacks it is forgiven, and
	// Replicas how often, per replica that would then exist, the prefix must
	// be asked for within the time constant of popularity to be hot.
	Eta      float64
	Replicas float64
}

// DefaultTTFT returns the constants that hold where none are given.
func DefaultTTFT() TTFT {
	return TTFT{PrefillRate: 2000, Gamma: 0.5, Theta: 0.01, Eta: 0.7, Replicas: 2}
}

// Work returns how many tokens count as work for a pod that holds the first
// held of so many tokens, when the first hot ones (no fewer than held) are worth
// one more replica.
func (t *TTFT) Work(prompt, held, hot int64) float64 {
	u := float64(max(1, prompt-held))
	if hot <= held {
		return u
	}
	return float64((1-t.Eta)*u) + float64(t.Eta*float64(max(1, prompt-hot)))
}

// Duty is what a pod does for a leg, as far as ExpectedTTFT is concerned.
type Duty uint8

const (
	// Serve is to compute the prompt and to generate the answer.
	Serve Duty = iota
	// Compute is to compute the prompt for another pod, which generates: there
	// are no decoders to disturb.
	Compute
	// Generate is to generate from a prompt that is handed over computed.
	Generate
)

// handover is the time in which a token's KV entries are handed over from pod to
// pod, in units of the time in which the token is computed: 128 KiB a token over
// 25 GB/s against 20,000 tokens a second.
const handover = 0.1

// topExpectedTTFT returns the candidates with the lowest cost, in tokens:
//
//	wait + (1+gamma)·U' + theta·(K + D + n·L)
//
// wait is what the pod has to compute first, U' what the prompt adds to it
// (Request.Work), K the tokens of all prompts at the pod, D of those among them
// that generate, n their number, and L the length of the prompt. So a request
// goes where its own first byte comes soonest, but for the work that it puts on
// others and for what it slows down. A pod that only computes prompts has no D
// and n; one that generates from computed ones costs K + D + n·L and the
// hand-over of what it lacks.
func topExpectedTTFT(v *View, c *index.Bitmap, r *Request) index.Bitmap {
	s := costs{v: v, prices: pricesOf(r), best: math.Inf(1)}
	rest := *c
	for i := range r.Frames {
		f := &r.Frames[i]
		holders := rest.And(f.Pods)
		rest = rest.AndNot(f.Pods)
		s.alike(&holders, float64(s.ofWork*r.Work[i]))
	}
	s.alike(&rest, float64(s.ofWork*r.Work[len(r.Frames)]))
	if s.top.Empty() { // no cost is a number
		return *c
	}
	return s.top
}

// prices are the factors in a request's cost.
type prices struct {
	now      int64
	ofWork   float64 // of U'
	ofWait   float64 // of nanoseconds until the queue is empty
	ofPrompt float64 // of K
	ofDecode float64 // of D + n·L
	prompt   float64 // L
}

func pricesOf(r *Request) prices {
	t := &r.TTFT
	s := prices{
		now: r.Now, ofWork: 1 + t.Gamma, ofWait: t.PrefillRate / second,
		ofPrompt: t.Theta, ofDecode: t.Theta, prompt: float64(r.Tokens),
	}
	switch r.Duty {
	case Compute:
		s.ofDecode = 0
	case Generate:
		s.ofWork, s.ofWait, s.ofPrompt, s.ofDecode = handover, 0, 1, 1
	}
	return s
}

// cost returns the cost of the pod in the slot; work is what its share of the
// prompt costs. Conversions keep products and sums apart; see weigh.
func (t *prices) cost(v *View, slot uint8, work float64) float64 {
	q := &v.queues
	wait := float64(float64(max(0, q.empty[slot]-t.now)) * t.ofWait)
	held := float64(float64(q.prompts[slot]) * t.ofPrompt)
	decode := float64(q.decoding[slot]) + float64(float64(q.decoders[slot])*t.prompt)
	return work + wait + held + float64(decode*t.ofDecode)
}

// costs is the state of one pass over the candidates.
type costs struct {
	prices
	v    *View
	best float64      // lowest cost so far
	top  index.Bitmap // pods that have it
}

// alike rates pods that hold the same part of the prompt.
func (s *costs) alike(pods *index.Bitmap, work float64) {
	v, t := s.v, s.prices
	for w, b := range pods {
		equal := uint64(0)
		for ; b != 0; b &= b - 1 {
			switch x := t.cost(v, slotAt(w, b), work); {
			case x < s.best:
				s.best, s.top, equal = x, index.Bitmap{}, b&-b
			case x == s.best:
				equal |= b & -b
			}
		}
		s.top[w] |= equal
	}
}

// costOf returns the cost of one pod, for showing.
func costOf(v *View, r *Request, slot uint8) float64 {
	work := r.Work[len(r.Frames)]
	for i := range r.Frames {
		if r.Frames[i].Pods.Has(int(slot)) {
			work = r.Work[i]
		}
	}
	t := pricesOf(r)
	return t.cost(v, slot, float64(t.ofWork*work))
}
