package prompt

import (
	"github.com/cespare/xxhash/v2"

	"github.com/calinix/caddy-calinix/internal/jsonscan"
)

// reply says what the last turn of a Responses input holds. There a turn of
// the assistant may be spread over several items, which engines put together.
type reply uint8

const (
	noReply   reply = iota // the last turn is not the assistant's
	begun                  // it has reasoning or calls, no message yet
	withWords              // it has a message
)

// responsesMember reads a top-level member of a responses request.
func (s *scan) responsesMember(name []byte, at, depth int) (end int) {
	switch string(name) {
	case "input":
		s.turns, s.prompts, s.open = s.turns[:0], 1, noReply
		if s.is(at, '"') {
			s.shaped = true
			slot := s.slot()
			end = s.content(at, depth, false)
			s.segments[slot] = markerSegment(opTurn, 'u')
			s.show(span{slot, len(s.segments)})
		} else {
			s.shaped, end = s.list(at, depth, s.item)
		}
	case "instructions":
		slot := s.slot()
		var v str
		v, end = s.text(at, depth)
		s.segments[slot] = markerSegment(opSoftTurn, 's')
		s.addText(v)
		s.prelude = span{slot, len(s.segments)}
	case "tools":
		s.tools.lo = len(s.segments)
		_, end = s.list(at, depth, s.tool)
		s.tools.hi = len(s.segments)
	case "previous_response_id":
		s.previous, end = s.str(at, depth)
	case "conversation":
		if s.is(at, '"') {
			s.conversation, end = s.str(at, depth)
			break
		}
		s.conversation = str{}
		end = s.inner(at, depth, "id", func(at, depth int) (end int) {
			s.conversation, end = s.str(at, depth)
			return end
		})
	case "prompt":
		s.template, end = s.value(at, depth)
	case "reasoning":
		s.seeds[seedEffort] = value{}
		end = s.inner(at, depth, "effort", s.effort)
	default:
		end = s.skip(at, depth)
	}
	return end
}

// item is what is read of an item of a responses input.
type item struct {
	kind, role, id, encrypted str
	function                  function
	input                     value
	content, output, summary  span
}

// item reads an item of a responses input.
func (s *scan) item(at, depth int) int {
	var m item
	slot := s.slot()
	end := s.members(at, depth, func(key jsonscan.Key, at, depth int) (end int) {
		switch string(s.name(key)) {
		case "type":
			m.kind, end = s.str(at, depth)
		case "role":
			m.role, end = s.str(at, depth)
		case "content":
			m.content, end = s.contentSpan(at, depth)
		case "output":
			m.output, end = s.contentSpan(at, depth)
		case "summary":
			m.summary, end = s.contentSpan(at, depth)
		case "input":
			m.input, end = s.value(at, depth)
		case "id":
			m.id, end = s.str(at, depth)
		case "encrypted_content":
			m.encrypted, end = s.str(at, depth)
		default:
			end = s.functionMember(&m.function, key, at, depth)
		}
		return end
	})
	if end >= 0 {
		s.finishItem(slot, &m, span{at, end})
	}
	return end
}

func (s *scan) contentSpan(at, depth int) (span, int) {
	lo := len(s.segments)
	end := s.content(at, depth, false)
	return span{lo, len(s.segments)}, end
}

// finishItem puts an item at the conversation's end.
func (s *scan) finishItem(slot int, m *item, whole span) {
	kind := string(s.bytes(m.kind))
	if kind == "" && m.role.from == nowhere && m.id.from != nowhere {
		kind = "item_reference"
	}
	was := s.open
	s.open = noReply
	head := span{slot, slot + 1}
	switch kind {
	case "", "message":
		s.segments[slot] = s.turn(m.role)
		if s.segments[slot].letter == 'a' {
			if was == begun {
				s.segments[slot] = segment{}
			}
			s.open = withWords
		}
		s.show(head)
		s.show(m.content)
	case "function_call", "custom_tool_call":
		if kind == "custom_tool_call" {
			m.function.arguments, m.function.input = str{}, m.input
		}
		s.open = max(was, begun)
		s.continueReply(slot, was == noReply)
		lo := len(s.segments)
		s.call(m.function.name, m.function.input, m.function.arguments)
		s.show(span{lo, len(s.segments)})
	case "function_call_output", "custom_tool_call_output":
		s.segments[slot] = markerSegment(opTurn, 't')
		s.show(head)
		s.show(m.output)
	case "reasoning":
		s.open = begun
		s.continueReply(slot, was != begun)
		thought := m.content
		if thought.hi == thought.lo {
			thought = m.summary
		}
		for i := thought.lo; i < thought.hi; i++ {
			if g := &s.segments[i]; g.op == opText {
				g.op, g.letter = opLong, 'h'
			}
		}
		s.show(thought)
		if thought.hi == thought.lo && m.encrypted.hi > m.encrypted.lo {
			s.showToken('h', s.bytes(m.encrypted))
		}
	case "item_reference":
		s.showToken('p', s.bytes(m.id))
	default:
		s.segments[slot] = s.other(whole)
		s.show(head)
	}
}

// continueReply begins a turn of the assistant, if there is none to go on
// with.
func (s *scan) continueReply(slot int, begin bool) {
	if begin {
		s.segments[slot] = markerSegment(opTurn, 'a')
		s.show(span{slot, slot + 1})
	}
}

func (s *scan) showToken(letter byte, name []byte) {
	s.add(hashSegment(opToken, letter, xxhash.Sum64(name)))
	s.show(span{len(s.segments) - 1, len(s.segments)})
}
