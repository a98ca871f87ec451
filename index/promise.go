package index

import (
	"math"
	"time"
)

// A pod is credited with a prompt when it gets it, but whether the prompt displaces
// anything in the pod's cache shows later: one that the engine refuses, for being too
// long, say, displaces nothing. So what RegisterHead and RegisterTail note is a
// promise. Its entries are found by queries like any others, and come on top of the
// pod's capacity until Keep makes them what the pod holds, or Undo takes them back.
// (The ceiling of the index holds for promises too: what goes for it is the oldest of
// all pods, and would have been the next to go.)

// overdraft is how many entries promises may add to a pod's capacity. Beyond it the
// oldest go at once, so that many promises at a time cost no more memory.
const overdraft = 4 * MaxChain

// over says whether the pod has more entries than it may: the oldest are to go. It has
// the form that evict takes. The caller holds the mirror's lock.
func (m *mirror) over(int64) bool {
	most := m.capacity.Load()
	return int64(m.n-m.promised) > most || int64(m.n) > most+overdraft
}

// Keep says that the pod has kept what r promised: it has computed the prompt. What
// has gone of it with the Undo of another leg comes back, and the oldest entries that
// are now beyond the pod's capacity go. c is the chain that was registered. Keep may be
// called once, and not after Undo. It takes about 50 ns for each promised block, 0.1 µs
// for each entry that goes.
func (x *Index) Keep(now time.Time, r Registration, c Chain) {
	if c == nil || r.Blocks() == 0 {
		return
	}
	m := &x.pods[r.pod]
	hashes, tick := c.Hashes(), x.tick(now)
	m.mu.Lock()
	defer m.mu.Unlock()
	r.spans(func(s span) { x.keep(m, r.pod, s, hashes, tick) })
	x.evict(r.pod, math.MaxInt, m.over)
	m.publish(x)
}

// keep makes the blocks of a span entries of the pod that are no promise. One for
// which there is no room is left out.
func (x *Index) keep(m *mirror, pod uint8, s span, hashes []uint64, tick uint32) {
	for k := min(s.to, len(hashes)) - 1; k >= s.from; k-- {
		if e, _ := x.entry(m, pod, hashes[k]); e != 0 {
			w := m.node(e).word()
			m.promised -= w & promisedFlag / promisedFlag
			m.node(e).setWord(w &^ promisedFlag)
			continue
		}
		var at spot
		room := int64(0)
		if x.own(pod, &at, hashes[k], packUse(x.decayAt(tick).now, 0), &room) == nowOwned {
			m.begin(x, tick)
			m.insert(x, at.id, 0)
		}
		x.release(room)
	}
}
