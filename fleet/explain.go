package fleet

import (
	"time"

	"github.com/calinix/caddy-calinix/selection"
)

// Candidate is a pod of the role that was asked for, as the decision sees it.
type Candidate struct {
	ID  string
	Ref Ref
	// Depth is how many leading blocks of the prompt the pod holds.
	Depth int
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
		pods, reuse := f.role[a.Role], f.reuse
		f.mu.Unlock()
		w.fill(f.index, a, prompt, pods)

		f.mu.Lock()
		if f.reuse == reuse {
			break
		}
		f.mu.Unlock()
	}
	defer f.mu.Unlock()
	draws := f.draws // the next pick draws the same number
	f.complete(now, a, w, &draws)
	s := f.state(a.Role, &a.Exclude)
	c := selection.Filter(&s)
	top := selection.Score(&f.view, &c, &w.request)
	pick := selection.Pick(&f.view, &top, &w.request)
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
			Parts:    selection.Explain(&f.view, &c, &w.request, slot),
			Filtered: selection.Reason(&s, int(slot)),
		})
	}
	return all, picked
}
