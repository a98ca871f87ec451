package fleet

import "time"

// Sessions are the bounds of the memory of which pod served which session.
type Sessions struct {
	// TTL is how long a session is remembered without a request; 0 or less:
	// until there is no room.
	TTL time.Duration
	// Max is how many sessions are remembered; those not used for longest go
	// first. 0 or less: none.
	Max int
}

// sessions remembers, for each session's hash, the pod that served it last in
// each role. Entries lie in one slab, linked in the order of their last use; a
// full memory reuses the oldest entry and so allocates nothing. About 80 bytes a
// session. Guarded by Fleet.mu.
type sessions struct {
	bounds Sessions
	byKey  map[uint64]int32 // index into slab
	slab   []session
	free   int32 // list of unused entries, linked by newer; 0: none

	// slab[0] is the ring's anchor: its newer is the oldest entry, its older
	// the newest one.
}

type session struct {
	key          uint64
	used         int64 // nanoseconds on the fleet's clock
	older, newer int32
	served       [Roles]keeper
}

// keeper is a pod that served a session. It is forgotten by raising the count
// of the slot.
type keeper struct {
	slot   uint8
	memory uint32 // that of the slot at the time; 0: nobody
}

func newSessions(bounds Sessions) sessions {
	return sessions{bounds: bounds, byKey: map[uint64]int32{}, slab: make([]session, 1)}
}

// find returns the entry of the session, 0 if there is none or it was not used
// for too long.
func (s *sessions) find(key uint64, now int64) int32 {
	i := s.byKey[key]
	if i != 0 && s.stale(i, now) {
		s.drop(i)
		return 0
	}
	return i
}

// note remembers that the session is served by k in the role, as of now. i is
// what find returned for the key.
func (s *sessions) note(key uint64, i int32, role Role, k keeper, now int64) {
	switch {
	case s.bounds.Max <= 0:
		return
	case i == 0:
		i = s.add(key)
	default:
		s.unlink(i)
	}
	s.link(i)
	s.slab[i].used = now
	s.slab[i].served[role] = k
}

// add makes an entry that is not linked yet.
func (s *sessions) add(key uint64) int32 {
	for len(s.byKey) >= s.bounds.Max {
		s.drop(s.slab[0].newer)
	}
	i := s.free
	if i != 0 {
		s.free = s.slab[i].newer
	} else {
		i = int32(len(s.slab))
		s.slab = append(s.slab, session{})
	}
	s.slab[i] = session{key: key}
	s.byKey[key] = i
	return i
}

// drop forgets an entry.
func (s *sessions) drop(i int32) {
	delete(s.byKey, s.slab[i].key)
	s.unlink(i)
	s.slab[i].newer, s.free = s.free, i
}

// link makes the entry the newest.
func (s *sessions) link(i int32) {
	last := s.slab[0].older
	s.slab[i].older, s.slab[i].newer = last, 0
	s.slab[last].newer, s.slab[0].older = i, i
}

func (s *sessions) unlink(i int32) {
	e := &s.slab[i]
	s.slab[e.older].newer, s.slab[e.newer].older = e.newer, e.older
}

func (s *sessions) stale(i int32, now int64) bool {
	return s.bounds.TTL > 0 && now-s.slab[i].used >= int64(s.bounds.TTL)
}

// expire forgets what was not used for too long.
func (s *sessions) expire(now int64) {
	for i := s.slab[0].newer; i != 0 && s.stale(i, now); i = s.slab[0].newer {
		s.drop(i)
	}
}

// configure sets other bounds; what is beyond them goes.
func (s *sessions) configure(bounds Sessions) {
	s.bounds = bounds
	for len(s.byKey) > max(bounds.Max, 0) {
		s.drop(s.slab[0].newer)
	}
}
