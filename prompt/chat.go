package prompt

import (
	"github.com/cespare/xxhash/v2"

	"github.com/calinix/caddy-calinix/internal/jsonscan"
)

// chatMember reads a top-level member of a chat or messages request.
func (s *scan) chatMember(name []byte, at, depth int) (end int) {
	switch string(name) {
	case "messages":
		s.turns, s.prompts = s.turns[:0], 1
		s.shaped, end = s.list(at, depth, s.message)
	case "tools":
		s.tools.lo = len(s.segments)
		_, end = s.list(at, depth, s.tool)
		s.tools.hi = len(s.segments)
	case "chat_template":
		s.seeds[seedTemplate], end = s.value(at, depth)
	case "chat_template_kwargs":
		s.seeds[seedTemplateArgs], end = s.value(at, depth)
	case "mm_processor_kwargs":
		s.seeds[seedProcessorArgs], end = s.value(at, depth)
	default:
		if s.api == Messages {
			return s.messagesMember(name, at, depth)
		}
		switch string(name) {
		case "functions": // what tools were called before
			s.functions.lo = len(s.segments)
			_, end = s.list(at, depth, s.tool)
			s.functions.hi = len(s.segments)
		case "documents":
			var v value
			v, end = s.value(at, depth)
			s.documents = s.docs(v)
		case "reasoning_effort":
			s.seeds[seedEffort], end = s.value(at, depth)
		default:
			end = s.skip(at, depth)
		}
	}
	return end
}

// messagesMember reads a top-level member that only a messages request has.
func (s *scan) messagesMember(name []byte, at, depth int) (end int) {
	switch string(name) {
	case "system":
		slot := s.slot()
		end = s.content(at, depth, false)
		s.segments[slot] = markerSegment(opSoftTurn, 's')
		s.prelude = span{slot, len(s.segments)}
	case "output_config":
		s.seeds[seedEffort] = value{}
		end = s.inner(at, depth, "effort", s.effort)
	default:
		end = s.skip(at, depth)
	}
	return end
}

func (s *scan) effort(at, depth int) (end int) {
	s.seeds[seedEffort], end = s.value(at, depth)
	return end
}

// docs makes segments of the documents member.
func (s *scan) docs(v value) span {
	lo := len(s.segments)
	if v.ok() && s.body[v.lo] == '[' && s.body[jsonscan.Space(s.body, v.lo+1)] != ']' {
		s.add(markerSegment(opDocs, 'D'))
		s.add(jsonSegment(opJSON, 0, v))
	}
	return span{lo, len(s.segments)}
}

// list reads an array of objects and calls f for each. ok says that it is an
// array with at least one element, and that all are objects.
func (s *scan) list(at, depth int, f func(at, depth int) (end int)) (ok bool, end int) {
	if !s.is(at, '[') {
		return false, s.skip(at, depth)
	}
	i, n, others := at+1, 0, 0
	for ; ; n++ {
		at, more := jsonscan.Element(s.body, i, n == 0)
		if !more {
			return n > 0 && others == 0, at
		}
		if s.is(at, '{') && !s.crowded {
			i = f(at, depth+1)
		} else {
			i = s.skip(at, depth+1)
			others++
		}
		if i < 0 {
			return false, i
		}
	}
}

// message reads an element of messages.
func (s *scan) message(at, depth int) int {
	slot := s.slot()
	nameSlot := s.slot()
	var (
		role, author, reasoning, reasoningContent, refusal str
		content, calls, legacy, audio                      span
	)
	end := s.members(at, depth, func(key jsonscan.Key, at, depth int) (end int) {
		switch string(s.name(key)) {
		case "role":
			role, end = s.str(at, depth)
		case "content":
			content.lo = len(s.segments)
			end = s.content(at, depth, false)
			content.hi = len(s.segments)
		case "name":
			author, end = s.str(at, depth)
		case "tool_calls":
			calls.lo = len(s.segments)
			_, end = s.list(at, depth, s.toolCall)
			calls.hi = len(s.segments)
		case "function_call":
			legacy.lo = len(s.segments)
			end = s.functionCall(at, depth)
			legacy.hi = len(s.segments)
		case "refusal":
			refusal, end = s.text(at, depth)
		case "reasoning":
			reasoning, end = s.text(at, depth)
		case "reasoning_content":
			reasoningContent, end = s.text(at, depth)
		case "audio":
			audio, end = s.audio(at, depth)
		default:
			end = s.skip(at, depth)
		}
		return end
	})
	if end < 0 {
		return end
	}
	s.segments[slot] = s.turn(role)
	if author.hi > author.lo {
		s.segments[nameSlot] = hashSegment(opToken, 'n', xxhash.Sum64(s.bytes(author)))
	}
	if reasoning.hi == reasoning.lo {
		reasoning = reasoningContent
	}
	s.show(span{slot, nameSlot + 1})
	s.showLong('h', reasoning)
	s.show(content)
	s.showLong('r', refusal)
	s.show(audio)
	s.show(calls)
	s.show(legacy)
	return end
}

// showLong puts a string with a marker at the conversation's end.
func (s *scan) showLong(letter byte, v str) {
	if v.hi > v.lo {
		s.add(stringSegment(opLong, letter, v))
		s.show(span{len(s.segments) - 1, len(s.segments)})
	}
}

// turn is the marker of a turn of that role.
func (s *scan) turn(role str) segment {
	name := s.bytes(role)
	var letter byte
	switch string(name) {
	case "user":
		letter = 'u'
	case "assistant":
		letter = 'a'
	case "system":
		letter = 's'
	case "developer":
		letter = 'd'
	case "tool":
		letter = 't'
	case "function":
		letter = 'f'
	case "ctx", "msg": // Claude Code's words for user
		if s.api == Messages {
			letter = 'u'
		}
	}
	if letter == 0 {
		return hashSegment(opTurn, 'x', xxhash.Sum64(name))
	}
	return markerSegment(opTurn, letter)
}
