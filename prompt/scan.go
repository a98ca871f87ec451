package prompt

import (
	"bytes"

	"github.com/calinix/caddy-calinix/internal/jsonscan"
)

// Sizes beyond which a buffer is given back, so that one huge request does not
// stay in memory for as long as the pool keeps its Request.
const (
	keepBytes    = 4 << 20
	keepSegments = 1 << 15
)

// maxSegments is how many segments a prompt may have. A message, a part or a
// tool takes two to six. A body can hold one for every three bytes, each of which
// takes ten times as many; no conversation comes near. A prompt that has more is
// none: it is routed by load alone.
const maxSegments = 1 << 17

// scan is the state of one Parse. Reading leaves segments, in the order of the
// body; spans of them say in which order they are rendered.
type scan struct {
	buffers
	results
}

// buffers are kept from one Parse to the next.
type buffers struct {
	arena    []byte    // decoded strings
	segments []segment // see segment.go
	turns    []span    // of segments: the conversation, or the prompts
}

// results are what one Parse finds.
type results struct {
	api  API
	body []byte

	// Of segments: what is rendered before the conversation.
	tools, functions, documents, prelude, references span

	shaped  bool // the prompt is there and has the right shape
	crowded bool // it has more than maxSegments; no more of it is read
	prompts int
	ids     int   // token ids
	open    reply // of a Responses input

	model, salt          str
	stream, includeUsage bool
	n                    int
	bestOf               value
	session              [4]str
	prefix               str
	seeds                [seedMembers]value
	namespace            str // a hash of the seeds
	// What the engine has in store for a responses request.
	previous, conversation str
	template               value
}

// stored reports whether part of the conversation is stored at one engine.
func (s *scan) stored() bool {
	return s.previous.hi > s.previous.lo || s.conversation.hi > s.conversation.lo
}

// sessionNames are the members that may hold a session key, by precedence.
var sessionNames = [...]string{"session_id", "prompt_cache_key", "safety_identifier", "user"}

func (s *scan) reset() {
	s.arena, s.segments, s.turns = s.arena[:0], s.segments[:0], s.turns[:0]
	s.results = results{n: 1}
}

// giveBack lets go of buffers that are too large to be kept. Parts of the arena
// live on in what refers to them.
func (s *scan) giveBack() {
	if cap(s.arena) > keepBytes {
		s.arena = nil
	}
	if cap(s.segments) > keepSegments {
		s.segments = nil
	}
	if cap(s.turns) > keepSegments {
		s.turns = nil
	}
}

// span is a half-open range.
type span struct{ lo, hi int }

// str is a decoded string: a part of the body, or of the arena. The zero str is
// an absent one.
type str struct {
	span
	from source
}

type source uint8

const (
	nowhere source = iota
	inBody
	inArena
)

func (s *scan) bytes(v str) []byte {
	switch v.from {
	case inBody:
		return s.body[v.lo:v.hi]
	case inArena:
		return s.arena[v.lo:v.hi:v.hi]
	default:
		return nil
	}
}

// arenaFrom is the string that has been written to the arena since it was so
// long.
func (s *scan) arenaFrom(lo int) str { return str{span{lo, len(s.arena)}, inArena} }

// value is a JSON value as it stands in the body. The zero value is an absent
// one; null is absent too.
type value struct {
	span
	form jsonscan.Form
}

func (v value) ok() bool { return v.hi > 0 }

// All methods below read the value at b[at], in depth containers, and return
// the position after it, negative for a fault.

// skip is for values that do not matter.
func (s *scan) skip(at, depth int) int { return jsonscan.Skip(s.body, at, depth) }

// value reads any value.
func (s *scan) value(at, depth int) (value, int) {
	end, form := jsonscan.Value(s.body, at, depth)
	if end < 0 || s.body[at] == 'n' {
		return value{}, end
	}
	return value{span{at, end}, form}, end
}

// str reads a string; another value is an absent one.
func (s *scan) str(at, depth int) (str, int) {
	if at >= len(s.body) || s.body[at] != '"' {
		return str{}, s.skip(at, depth)
	}
	lo := len(s.arena)
	var end int
	var escaped bool
	if s.arena, end, escaped = jsonscan.AppendString(s.arena, s.body, at+1); end < 0 {
		return str{}, end
	}
	if escaped {
		return s.arenaFrom(lo), end + 1
	}
	return str{span{at + 1, end}, inBody}, end + 1
}

// text is str for what is rendered as text: a marker's byte is written twice.
func (s *scan) text(at, depth int) (str, int) {
	v, end := s.str(at, depth)
	if v.from != inArena || bytes.IndexByte(s.arena[v.lo:], mark) < 0 {
		return v, end
	}
	doubled := bytes.ReplaceAll(s.arena[v.lo:], []byte{mark}, []byte{mark, mark})
	s.arena = append(s.arena[:v.lo], doubled...)
	v.hi = len(s.arena)
	return v, end
}

// flag reads a boolean; another value is false.
func (s *scan) flag(at, depth int) (bool, int) {
	end := s.skip(at, depth)
	return end >= 0 && s.body[at] == 't', end
}

// count reads a whole number; another value is absent.
func (s *scan) count(at, depth, absent int) (int, int) {
	end := s.skip(at, depth)
	if end < 0 {
		return absent, end
	}
	digits := s.body[at:end]
	negative := digits[0] == '-'
	if negative {
		digits = digits[1:]
	}
	n := 0
	for _, c := range digits {
		if c < '0' || c > '9' {
			return absent, end
		}
		n = min(10*n+int(c-'0'), maxCount)
	}
	if negative {
		n = -n
	}
	return n, end
}

// maxCount is as far as counting goes.
const maxCount = 1 << 30

// name returns a member's decoded name, valid until the arena is used again.
func (s *scan) name(k jsonscan.Key) []byte {
	raw := s.body[k.Lo:k.Hi]
	if !k.Escaped {
		return raw
	}
	// Beyond the arena's end: nothing refers to that.
	return jsonscan.Unescape(s.arena[len(s.arena):], raw)
}

// is reports whether b[at] is c.
func (s *scan) is(at int, c byte) bool { return at < len(s.body) && s.body[at] == c }
