package prompt

import "github.com/calinix/caddy-calinix/internal/jsonscan"

// mark is the byte that begins every marker: it cannot stand in text.
const mark = 0x01

// segment is a piece of the rendered prompt. It is laid out so that the
// compiler keeps it in registers.
type segment struct {
	what
	span // the string or the JSON; or as op says
}

type what struct {
	op     op
	letter byte          // of the marker
	from   source        // of the string
	form   jsonscan.Form // of the JSON
}

type op uint8

const (
	opNothing  op = iota
	opTurn        // the marker of a turn; x: lo is the role's hash
	opSoftTurn    // the same, left out if nothing follows in the turn
	opResult      // a tool's result within another turn: segments up to hi
	opText        // text
	opBilling     // text of a billing block: left out of system turns
	opLong        // a marker, then text
	opToken       // a marker with a hash, which is lo
	opMedia       // the same for media, MediaTokens times
	opCall        // the marker of a tool call; name and arguments follow
	opJSON        // a JSON value of the body
	opArgs        // a tool call's arguments: a string that holds JSON
	opNoArgs      // arguments that were not sent
	opTool        // the marker of a tool definition and its opening brace
	opMember      // a member of it, JSON; letter is its index in memberNames
	opMore        // members of it that have been written out
	opToolEnd     // its closing brace
	opDocs        // the marker of documents
	opNext        // between two prompts
)

// size is about how long the segment is when it is rendered, rather too much; of
// media it is the first token.
func (g *segment) size() int {
	const (
		marked = 4  // a separator and a marker
		hashed = 14 // with a hash
		named  = 16 // a member's name
	)
	switch g.op {
	case opNothing:
		return 0
	case opText, opBilling, opLong, opJSON, opArgs, opMore:
		return g.hi - g.lo + marked
	case opMember:
		return g.hi - g.lo + named
	case opToken, opMedia:
		return hashed
	case opTurn:
		if g.letter == 'x' {
			return hashed
		}
	}
	return marked + 1 // and the brace of a tool
}

// add appends a segment.
func (s *scan) add(g segment) {
	s.segments = append(s.segments, g)
	s.crowded = s.crowded || len(s.segments) > maxSegments
}

// addText appends a text, unless it is empty.
func (s *scan) addText(v str) {
	if v.hi > v.lo {
		s.add(stringSegment(opText, 0, v))
	}
}

// slot appends a segment that is to be filled in later.
func (s *scan) slot() int {
	s.add(segment{})
	return len(s.segments) - 1
}

func markerSegment(o op, letter byte) segment {
	return segment{what{op: o, letter: letter}, span{}}
}

func hashSegment(o op, letter byte, hash uint64) segment {
	return segment{what{op: o, letter: letter}, span{lo: int(hash)}}
}

func stringSegment(o op, letter byte, v str) segment {
	return segment{what{op: o, letter: letter, from: v.from}, v.span}
}

func jsonSegment(o op, letter byte, v value) segment {
	return segment{what{op: o, letter: letter, form: v.form}, v.span}
}

// show puts segments at the conversation's end.
func (s *scan) show(g span) {
	if g.hi == g.lo {
		return
	}
	if n := len(s.turns); n > 0 && s.turns[n-1].hi == g.lo {
		s.turns[n-1].hi = g.hi
		return
	}
	s.turns = append(s.turns, g)
}
