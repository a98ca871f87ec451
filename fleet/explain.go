package fleet

import (
	"slices"
	"time"

	"github.com/calinix/caddy-calinix/index"
	"github.com/calinix/caddy-calinix/selection"
)

// Candidate is a pod of the role that was asked for, as the decision sees it.
type Candidate struct {
	ID  string
	Ref Ref
	// Depth is how many leading blocks of the prompt the pod holds.
	Depth int
	// Wait is how long the pod is taken to compute what it has got.
	Wait time.Duration
	// The factors and the score, also of pods that are no candidates.
	selection.Parts
	// Filtered is why the pod is no candidate, "" if it is one.
	Filtered string
}

// Explain returns the pods of the role in the order of the configuration, and
// which of them Begin would now pick, -1 if none. Nothing is reserved and
// nothing is learnt. It is for people; it allocates.
func (f *Fleet) Explain(now time.Time, a *Ask) (all []Candidate, picked int) {
	w := new(work)
	prompt := a.Chain != nil && a.Chain.Extend(1) > 0
	for {
		f.mu.Lock()
		pods, decode, reuse := f.role[a.Role], f.role[Decode], f.reuse
		f.mu.Unlock()
		w.fill(now, f.index, a, prompt, pods)
		w.fillNext(now, f.index, a, prompt, decode)
		if prompt {
			w.request.Blocks = a.Chain.Complete()
		}

		f.mu.Lock()
		if f.reuse == reuse {
			break
		}
		f.mu.Unlock()
	}
	defer f.mu.Unlock()
	draws := f.draws // the next pick draws the same number
	if a.AssumeNear && f.has(a.Near) {
		undo := f.assume(now, a)
		defer undo()
		if prompt && f.role[a.Role].Has(int(a.Near.Slot)) {
			w.hold(a.Near.Slot, a.Chain.Complete())
			if a.Strategy == selection.ExpectedTTFT {
				w.weigh(now, f.index, a)
			}
		}
		if a.Strategy.Draws() {
			draws.Uint64()
		}
	}
	f.complete(now, a, w, &draws)
	s := f.state(a)
	c := f.candidates(&s, a)
	pick := f.choose(a, &c, w)
	picked = -1
	for _, slot := range f.ranked() {
		if !s.Role.Has(int(slot)) {
			continue
		}
		if int(slot) == pick {
			picked = len(all)
		}
		p := &f.slots[slot]
		all = append(all, Candidate{
			ID: p.pod.ID, Ref: Ref{slot, p.gen}, Depth: w.query.Depth(int(slot)),
			Wait:     time.Duration(f.view.Wait(slot, w.request.Now)),
			Parts:    selection.Explain(&f.view, &c, &w.request, slot),
			Filtered: selection.Reason(&s, int(slot)),
		})
	}
	return all, picked
}

// assume counts the prefill leg that is to be taken for begun, but for what it
// has to compute, which no decode leg asks for. Guarded by mu until undo.
func (f *Fleet) assume(now time.Time, a *Ask) (undo func()) {
	slot, l := a.Near.Slot, selection.Load{Prompt: a.tokens()}
	f.view.Add(slot, 1)
	f.view.Queue(slot, l, f.clock(now), a.rate())
	return func() {
		f.view.Add(slot, -1)
		f.view.Unqueue(slot, l)
	}
}

// hold changes what the index has said to what it will say when the pod has
// been given the whole prompt.
func (w *work) hold(slot uint8, blocks int) {
	frames := w.query.Frames
	for i := range frames {
		frames[i].Pods.Clear(int(slot))
	}
	frames = slices.DeleteFunc(frames, func(f index.Frame) bool { return f.Pods.Empty() })
	if last := len(frames) - 1; last >= 0 && frames[last].Depth == blocks {
		frames[last].Pods.Set(int(slot))
	} else {
		frames = append(frames, index.Frame{Depth: blocks, Pods: index.Of(int(slot))})
	}
	w.query.Frames, w.request.Frames, w.request.Blocks = frames, frames, blocks
}
