package fleet

import "time"

// trust compares what a pod was expected to find in its cache with what its
// engine says that it has found. A pod that delivers less than half is stale: it
// has a smaller cache than was thought, was restarted unseen, or others use it
// too. What the index knows of it is then cut to half of what it knew, and again
// as long as the pod delivers less than half of what is left; when it agrees the
// index may learn freely again.
//
// Verdicts are on windows of so many legs, and so long a time, that a burst of
// evictions is none. Guarded by Fleet.mu.
type trust struct {
	speaks bool // the engine has once said how many tokens were cached
	stale  bool
	limit  int // blocks that the index may know of the pod while it is stale

	legs                int // of the present window
	expected, delivered int64
	since, last         int64 // when its first and its latest leg were compared
	heard               int64 // when the latest leg of all was
}

const (
	// judgedTokens is how many tokens must have been expected of a leg for it to
	// be judged: engines find whole blocks, and never the last token.
	judgedTokens = 64
	// windowLegs and windowTime are what a verdict needs at the least.
	windowLegs = 8
	windowTime = int64(time.Second)
	// windowAge is how old the latest comparison may be for the window to go on,
	// and for a pod to stay stale.
	windowAge = int64(5 * time.Minute)
	// leastMirror is how many blocks the index may know of a stale pod: with
	// none of them it would expect nothing, and never see that the pod agrees.
	leastMirror = 64
)

// finding is what a window of comparisons comes to.
type finding uint8

const (
	open finding = iota // not yet
	agrees
	disagrees
)

// compare enters a leg.
func (t *trust) compare(now, expected, delivered int64) finding {
	if expected < judgedTokens {
		return open
	}
	if t.legs > 0 && now-t.last > windowAge {
		t.clear()
	}
	if t.legs == 0 {
		t.since = now
	}
	t.legs++
	t.last, t.heard = now, now
	t.expected += expected
	t.delivered += min(delivered, expected) // a find elsewhere makes up for nothing
	if t.legs < windowLegs || now-t.since < windowTime {
		return open
	}
	v := agrees
	if 2*t.delivered < t.expected {
		v = disagrees
	}
	t.clear()
	return v
}

func (t *trust) clear() { t.legs, t.expected, t.delivered = 0, 0, 0 }

// Word is what an engine says of one prompt, in its own tokens.
type Word struct {
	Prompt int64 // length of the prompt
	Cached int64 // what of it was cached, if HasCached
	// HasCached: engines may say nothing of it, always or if it is none.
	HasCached bool
}

// Comparison is what a Word comes to, beside what was expected. Tokens are the
// engine's.
type Comparison struct {
	// Known: the engine has said how much was cached, or is one that says
	// nothing for none. Without it the rest is zero.
	Known               bool
	Expected, Delivered int64
	// Turned: the pod is Stale from now on, or is not any more.
	Turned, Stale bool
	// Room is how many blocks the index may now know of a stale pod.
	Room int
}

// Compare takes in what the pod's engine says of the leg's prompt. Both sides
// are compared as shares: the index measures prompts in bytes and the engine in
// its tokens. It is to be called before End, and does nothing after it.
func (l *Lease) Compare(now time.Time, w Word) (c Comparison) {
	f := l.fleet
	if f == nil || w.Prompt <= 0 || l.Tokens <= 0 {
		return c
	}
	held := f.index.PodBlocks(l.ref.Slot)
	f.mu.Lock()
	s := &f.slots[l.ref.Slot]
	if l.phase == ended || s.gen != l.ref.Gen {
		f.mu.Unlock()
		return c
	}
	t := &s.trust
	t.speaks = t.speaks || w.HasCached
	if !t.speaks {
		f.mu.Unlock()
		return c
	}
	c = Comparison{
		Known:     true,
		Expected:  int64(float64(w.Prompt) * float64(l.Covered) / float64(l.Tokens)),
		Delivered: w.Cached,
	}
	v := t.compare(f.clock(now), c.Expected, c.Delivered)
	c.Turned = v == disagrees && !t.stale || v == agrees && t.stale
	switch v {
	case disagrees:
		t.stale = true
		t.limit = max(leastMirror, held/2)
	case agrees:
		t.stale, t.limit = false, 0
	}
	c.Stale, c.Room = t.stale, t.limit
	f.mu.Unlock()
	if v == disagrees || c.Turned {
		f.fit(l.ref.Slot)
	}
	return c
}

// doubt resets what is believed of an engine that is a new one.
func (s *slot) doubt() { s.trust = trust{} }

// believe ends the staleness of pods of which nothing was heard for long, and
// returns their slots. Guarded by mu.
func (f *Fleet) believe(now int64) (slots []uint8) {
	for i := range f.slots {
		if t := &f.slots[i].trust; t.stale && now-t.heard > windowAge {
			*t = trust{speaks: t.speaks}
			slots = append(slots, uint8(i))
		}
	}
	return slots
}
