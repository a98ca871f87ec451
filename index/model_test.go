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
}

type modelPod struct {
	entries []modelEntry
	cap     int
	tick    uint32 // of the last touch
}

type modelEntry struct {
	hash     uint64
	tick     uint32
	promised bool
}

type modelReg struct {
	pod      int
	promised []uint64
}

func newModel(o Options) *model {
	m := &model{}
	for p := range m.pods {
		m.pods[p].cap = maxEntries
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

func (m *model) register(since time.Duration, pod int, hashes []uint64) {
	m.keep(since, m.promise(since, pod, hashes))
}

func (m *model) promise(since time.Duration, pod int, hashes []uint64) modelReg {
	tick := m.clock(since)
	p := &m.pods[pod]
	n := min(len(hashes), p.cap, m.max)
	if n == 0 {
		return modelReg{pod: pod}
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
		r := m.walk(pod, hashes, insert)
		if insert || try == maxTries || !m.makeRoom(need) {
			return r
		}
	}
}

func (m *model) walk(pod int, hashes []uint64, insert bool) modelReg {
	p := &m.pods[pod]
	r := modelReg{pod: pod}
	for k := len(hashes) - 1; k >= 0; k-- {
		e := modelEntry{hash: hashes[k], tick: p.tick, promised: true}
		if i := p.find(hashes[k]); i >= 0 {
			e.promised = p.entries[i].promised
			p.entries = slices.Delete(p.entries, i, i+1)
		} else if !insert {
			continue
		}
		if e.promised {
			r.promised = append(r.promised, e.hash)
		}
		p.entries = append(p.entries, e)
	}
	m.fit(pod)
	return r
}

func (p *modelPod) find(hash uint64) int {
	return slices.IndexFunc(p.entries, func(e modelEntry) bool { return e.hash == hash })
}

// fit evicts what is beyond the capacity, promises left aside.
func (m *model) fit(pod int) {
	for {
		p, kept := &m.pods[pod], 0
		for _, e := range p.entries {
			if !e.promised {
				kept++
			}
		}
		if kept <= p.cap && len(p.entries) <= p.cap+overdraft {
			return
		}
		m.evict(pod)
	}
}

func (m *model) keep(since time.Duration, r modelReg) {
	if len(r.promised) == 0 {
		return
	}
	tick := m.clock(since)
	p := &m.pods[r.pod]
	for _, h := range r.promised {
		if i := p.find(h); i >= 0 {
			p.entries[i].promised = false
		} else if exist := m.blocks(); exist[h] || len(exist) < m.max {
			p.tick = max(p.tick, tick)
			p.entries = append(p.entries, modelEntry{hash: h, tick: p.tick})
		}
	}
	m.fit(r.pod)
}

func (m *model) evict(pod int) {
	p := &m.pods[pod]
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
	m.pods[pod].cap = blocks
	m.fit(pod)
}

func (m *model) wipe(pod int) int {
	p := &m.pods[pod]
	n := len(p.entries)
	for len(p.entries) > 0 {
		m.evict(pod)
	}
	return n
}

func (m *model) undo(r modelReg) {
	p := &m.pods[r.pod]
	for _, h := range r.promised {
		if i := p.find(h); i >= 0 && p.entries[i].promised {
			p.entries = slices.Delete(p.entries, i, i+1)
		}
	}
}
