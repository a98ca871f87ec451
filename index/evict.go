package index

import (
	"math"
	"time"
)

// evictBatch is how many entries are forgotten in one hold of a mirror's lock
// when there may be many; a registration at that pod waits no longer.
const evictBatch = 256

// evict forgets the pod's oldest entries, at most n of them, as long as more
// says so; more is told how many blocks have disappeared, which evict returns in
// the end. The caller holds the mirror's lock and publishes.
func (x *Index) evict(pod uint8, n int, more func(gone int64) bool) (gone int64) {
	m := &x.pods[pod]
	for i := 0; i < n && m.n > 0 && more(gone); i++ {
		if i%warmAhead == 0 {
			x.warmOldest(m)
		}
		e := m.node(m.oldest).newer()
		id := m.node(e).word() & idMask
		m.remove(x, e)
		if x.disown(pod, id) {
			gone++
		}
	}
	x.release(gone)
	return gone
}

// evictAll is evict in as many batches as needed, at most n, each under a lock
// of its own. It returns how many entries it forgot.
func (x *Index) evictAll(pod uint8, n int, more func(gone int64) bool) (entries int) {
	m := &x.pods[pod]
	for full := true; full && n > 0; n-- {
		m.mu.Lock()
		before := m.n
		x.evict(pod, evictBatch, more)
		full = before-m.n == evictBatch
		entries += int(before - m.n)
		m.publish(x)
		m.mu.Unlock()
	}
	return entries
}

// SetCapacity sets how many blocks the pod's cache holds; beyond them, the least
// recently used go, at once if there are too many now. Zero or less means
// unbounded (15.7 million).
func (x *Index) SetCapacity(pod uint8, blocks int) {
	if blocks <= 0 || blocks > maxEntries {
		blocks = maxEntries
	}
	m := &x.pods[pod]
	m.capacity.Store(int64(blocks))
	x.evictAll(pod, math.MaxInt, m.over)
}

// Wipe forgets all that the pod held when Wipe was called and returns how many
// blocks that was. Queries go on meanwhile, and registrations at this pod wait
// for a batch of entries at most.
func (x *Index) Wipe(pod uint8) int {
	left := x.pods[pod].count.Load()
	return x.evictAll(pod, math.MaxInt, func(int64) bool {
		left--
		return left >= 0
	})
}

// Expire forgets all entries that were last used longer ago than the time to
// live. The owner of the index calls it every second or so: a Query may count
// entries that outlived their time by the interval between calls and 34 ms. It
// costs 0.6 µs if there is nothing to forget.
func (x *Index) Expire(now time.Time) {
	tick := x.tick(now)
	for pod := range Pods {
		x.expire(uint8(pod), tick, math.MaxInt)
	}
}

// expire forgets the pod's entries that are too old, in at most so many batches,
// and returns how many it forgot.
func (x *Index) expire(pod uint8, tick uint32, batches int) (entries int) {
	ttl := x.ttl.Load()
	m := &x.pods[pod]
	if tail := m.tail.Load(); tail == 0 || age(tick, tail) <= ttl {
		return 0
	}
	return x.evictAll(pod, batches, func(int64) bool { return age(tick, m.node(m.oldest).word()) > ttl })
}

// makeRoom forgets the oldest entries of all pods until need more blocks fit
// under the ceiling, and reports whether they do. Entries of the same tick are as
// old as each other, then the lower pod's go first.
func (x *Index) makeRoom(need int64) bool {
	goal := x.max.Load() - need
	if x.blocks.Load() <= goal {
		return true
	}
	if goal < 0 {
		return false // the ceiling has been lowered meanwhile
	}
	// A little more, so that not each registration at the ceiling comes here.
	goal -= min(x.max.Load()/64, 2*evictBatch, goal)
	for {
		excess := x.blocks.Load() - goal
		pod, tail := x.oldest()
		if excess <= 0 || pod < 0 {
			break
		}
		m := &x.pods[pod]
		x.evictAll(uint8(pod), 1, func(gone int64) bool {
			return gone < excess && m.node(m.oldest).word() == tail
		})
	}
	return x.blocks.Load()+need <= x.max.Load()
}

// oldest returns the pod whose oldest entry is the oldest of all, and the
// mark before it; -1 if there are no entries.
func (x *Index) oldest() (pod int, tail uint32) {
	now := x.latest.Load()
	pod, oldest := -1, uint32(0)
	for p := range x.pods {
		t := x.pods[p].tail.Load()
		if t == 0 {
			continue
		}
		if a := age(now, t); pod < 0 || a > oldest {
			pod, tail, oldest = p, t, a
		}
	}
	return pod, tail
}
