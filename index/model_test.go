package index

import (
	"slices"
	"time"
)

// model is the index as one would write it without thinking of speed: a list of
// entries for each pod, oldest first, and brute force for all else. It is the
// specification that the tests hold the index to.
type model struct {
	max  int
	ttl  uint32
	pods [Pods]modelPod
	now  uint32 // latest tick
	regs int    // numbers given to registrations
}

type modelPod struct {
	entries []modelEntry
	cap     int
	tick    uint32 // of the last touch
	lost    int64  // tick of the entry that was evicted last, or -1
}

type modelEntry struct {
	hash uint64
	tick uint32
	by   int // the registration that inserted it, 0 once another touched it
}

type modelReg struct {
	id    int
	pod   int
	done  int
	tick  uint32
	fresh []uint64
}

func newModel(o Options) *model {
	m := &model{}
	for p := range m.pods {
		m.pods[p].cap, m.pods[p].lost = maxEntries, -1
	}
	m.bounds(o)
	return m
}

func (m *model) bounds(o Options) {
	if m.max = o.MaxBlocks; m.max <= 0 {
		m.max = maxBlocks
	}
	m.ttl = maxTTL
	if o.StaleTTL > 0 {
		m.ttl = uint32((o.StaleTTL + 1<<tickShift - 1) >> tickShift)
	}
}

func (m *model) configure(o Options) { m.bounds(o); m.makeRoom(0) }

func (m *model) holds(pod int, hash uint64) bool {
	return slices.ContainsFunc(m.pods[pod].entries, func(e modelEntry) bool { return e.hash == hash })
}

func (m *model) blocks() map[uint64]bool {
	b := map[uint64]bool{}
	for p := range m.pods {
		for _, e := range m.pods[p].entries {
			b[e.hash] = true
		}
	}
	return b
}

func (m *model) depth(pod int, hashes []uint64) int {
	for k, h := range hashes {
		if !m.holds(pod, h) {
			return k
		}
	}
	return len(hashes)
}

// clock takes the time since the first one told to the index.
func (m *model) clock(since time.Duration) uint32 {
	t := uint32(since >> tickShift)
	m.now = max(m.now, t)
	return t
}

func (m *model) register(since time.Duration, pod int, hashes []uint64, head modelReg) modelReg {
	tick := m.clock(since)
	p := &m.pods[pod]
	n := min(len(hashes), p.cap, m.max)
	if n == 0 {
		return head
	}
	hashes = hashes[:n]
	m.expirePod(pod, tick)
	p.tick = max(p.tick, tick)
	for try := 0; ; try++ {
		need, exist := 0, m.blocks()
		for _, h := range hashes {
			if !exist[h] {
				need++
			}
		}
		insert := len(exist)+need <= m.max
		r := m.walk(pod, hashes, head, insert)
		if insert || try == maxTries || !m.makeRoom(need) {
			return r
		}
		head.id = r.id // the next try is the same request's
	}
}

func (m *model) walk(pod int, hashes []uint64, head modelReg, insert bool) modelReg {
	p := &m.pods[pod]
	m.regs++
	r := modelReg{id: m.regs, pod: pod, done: len(hashes), tick: p.tick}
	for k := len(hashes) - 1; k >= 0; k-- {
		e := modelEntry{hash: hashes[k], tick: p.tick}
		if i := slices.IndexFunc(p.entries, func(e modelEntry) bool { return e.hash == hashes[k] }); i >= 0 {
			if by := p.entries[i].by; by != 0 && by == head.id && m.stands(head) {
				e.by = r.id
				r.fresh = append(r.fresh, e.hash)
			}
			p.entries = slices.Delete(p.entries, i, i+1)
		} else if !insert {
			continue
		} else {
			e.by = r.id
			r.fresh = append(r.fresh, e.hash)
		}
		p.entries = append(p.entries, e)
	}
	for len(p.entries) > p.cap {
		m.evict(pod)
	}
	return r
}

func (m *model) evict(pod int) {
	p := &m.pods[pod]
	p.lost = int64(p.entries[0].tick)
	p.entries = slices.Delete(p.entries, 0, 1)
}

func (m *model) makeRoom(need int) bool {
	goal := m.max - need
	if len(m.blocks()) <= goal {
		return true
	}
	if goal < 0 {
		return false
	}
	goal -= min(m.max/64, 2*evictBatch, goal)
	for len(m.blocks()) > goal {
		oldest := -1
		for p := range m.pods {
			if e := m.pods[p].entries; len(e) > 0 && (oldest < 0 || e[0].tick < m.pods[oldest].entries[0].tick) {
				oldest = p
			}
		}
		if oldest < 0 {
			break
		}
		m.evict(oldest)
	}
	return len(m.blocks())+need <= m.max
}

func (m *model) expirePod(pod int, tick uint32) {
	for p := &m.pods[pod]; len(p.entries) > 0 && p.entries[0].tick+m.ttl < tick; {
		m.evict(pod)
	}
}

func (m *model) expire(since time.Duration) {
	tick := m.clock(since)
	for p := range m.pods {
		m.expirePod(p, tick)
	}
}

func (m *model) setCapacity(pod, blocks int) {
	if blocks <= 0 {
		blocks = maxEntries
	}
	p := &m.pods[pod]
	for p.cap = blocks; len(p.entries) > p.cap; {
		m.evict(pod)
	}
}

func (m *model) wipe(pod int) int {
	p := &m.pods[pod]
	n := len(p.entries)
	for len(p.entries) > 0 {
		m.evict(pod)
	}
	return n
}

func (m *model) stands(r modelReg) bool {
	return int64(r.tick) > m.pods[r.pod].lost
}

func (m *model) undo(r modelReg) {
	if !m.stands(r) {
		return
	}
	p := &m.pods[r.pod]
	p.entries = slices.DeleteFunc(p.entries, func(e modelEntry) bool {
		return e.by == r.id && slices.Contains(r.fresh, e.hash)
	})
}
