package prompt

import (
	"encoding/binary"
	"strconv"

	"github.com/cespare/xxhash/v2"
)

// The members that change the prompt in the engine's own way, or where it is
// cached.
const (
	seedSalt = iota // a cache_salt that is not a string
	seedExtraKey
	seedAdapter
	seedTemplate
	seedTemplateArgs
	seedProcessorArgs
	seedEffort
	seedMembers
)

// finish makes what depends on several members.
func (s *scan) finish() {
	lo := len(s.arena)
	for i, v := range s.seeds {
		if v.ok() {
			s.arena = strconv.AppendInt(s.arena, int64(i), 10)
			s.arena = append(s.arena, ':')
			s.arena = appendShort(s.arena, s.body[v.lo:v.hi], v.form)
			s.arena = append(s.arena, '\n')
		}
	}
	if len(s.arena) > lo {
		hash := xxhash.Sum64(s.arena[lo:])
		s.arena = binary.LittleEndian.AppendUint64(s.arena[:lo], hash)
		s.namespace = s.arenaFrom(lo)
	}

	s.references.lo = len(s.segments)
	for _, v := range [...]str{s.previous, s.conversation} {
		if v.hi > v.lo {
			s.add(hashSegment(opToken, 'p', xxhash.Sum64(s.bytes(v))))
		}
	}
	if v := s.template; v.ok() {
		lo := len(s.arena)
		s.arena = appendShort(s.arena, s.body[v.lo:v.hi], v.form)
		s.add(hashSegment(opToken, 'p', xxhash.Sum64(s.arena[lo:])))
		s.arena = s.arena[:lo]
	}
	s.references.hi = len(s.segments)
}
