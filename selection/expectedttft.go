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

// onNode is what part of that is left between two pods of one node.
const onNode = 0.25

// distance returns what part of that it takes to or from the pod in the slot: within
// a node there is NVLink or shared memory, of 100 GB/s and more, and within a zone
// fewer switches are shared with others.
func distance(v *View, r *Request, slot uint8) float64 {
	switch locality(v, r, slot) {
	case 100:
		return onNode
	case 50:
		return 0.5
	default:
		return 1
	}
}

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
// hand-over of what it lacks. Where the pod of the other leg is known a hand-over
// costs less the nearer it is.
func topExpectedTTFT(v *View, c *index.Bitmap, r *Request) index.Bitmap {
	s := costs{v: v, r: r, prices: pricesOf(r), best: math.Inf(1)}
	rest := *c
	for i := range r.Frames {
		f := &r.Frames[i]
		holders := rest.And(f.Pods)
		rest = rest.AndNot(f.Pods)
		s.alike(&holders, r.Work[i])
	}
	s.alike(&rest, r.Work[len(r.Frames)])
	if s.top.Empty() { // no cost is a number
		return *c
	}
	return s.top
}

// prices are the factors in a request's cost.
type prices struct {
	now      int64
	ofWork   float64 // of U'
	ofMove   float64 // of what of U' is handed over
	moved    float64 // for all that is handed over whatever the pod holds
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
		if r.Node|r.Zone != 0 { // the decode pod has been picked
			s.moved = float64(handover * s.prompt)
		}
	case Generate:
		s.ofMove = handover
		s.ofWork, s.ofWait, s.ofPrompt, s.ofDecode = 0, 0, 1, 1
	}
	return s
}

// move returns what handing over costs from afar, if the prompt is so much work.
func (t *prices) move(work float64) float64 { return float64(t.ofMove*work) + t.moved }

// of returns the cost of the pod in the slot, for which the prompt is so much work.
func (t *prices) of(v *View, r *Request, slot uint8, work float64) float64 {
	far := float64(t.move(work) * distance(v, r, slot))
	return t.cost(v, slot, float64(t.ofWork*work)+far)
}

// cost returns the cost of the pod in the slot; work is what its share of the
// prompt costs. Conversions keep products and sums apart; see weigh.
func (t *prices) cost(v *View, slot uint8, work float64) float64 {
	q := &v.queues
	wait := float64(float64(max(0, q.empty[slot]-t.now)) * t.ofWait)
	held := float64(q.prompts[slot] * t.ofPrompt)
	decode := q.decoding[slot] + float64(q.decoders[slot]*t.prompt)
	return work + wait + held + float64(decode*t.ofDecode)
}

// costs is the state of one pass over the candidates.
type costs struct {
	prices
	v    *View
	r    *Request
	best float64      // lowest cost so far
	top  index.Bitmap // pods that have it
}

// alike rates pods for which the prompt is the same work.
func (s *costs) alike(pods *index.Bitmap, work float64) {
	v, t := s.v, s.prices
	own, move := float64(t.ofWork*work), t.move(work)
	for w, b := range pods {
		equal := uint64(0)
		for ; b != 0; b &= b - 1 {
			p, all := slotAt(w, b), own
			if move != 0 {
				all += float64(move * distance(v, s.r, p))
			}
			switch x := t.cost(v, p, all); {
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
	return t.of(v, r, slot, work)
}
