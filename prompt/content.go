package prompt

import (
	"bytes"

	"github.com/calinix/caddy-calinix/internal/jsonscan"
)

// content reads what a turn holds: a string, or an array of parts. nested says
// that it is a tool's result, which holds no further results.
func (s *scan) content(at, depth int, nested bool) int {
	if s.is(at, '"') {
		v, end := s.text(at, depth)
		s.addText(v)
		return end
	}
	if !s.is(at, '[') {
		return s.skip(at, depth)
	}
	i := at + 1
	for first := true; ; first = false {
		at, more := jsonscan.Element(s.body, i, first)
		if !more {
			return at
		}
		switch {
		case s.crowded:
			i = s.skip(at, depth+1)
		case s.is(at, '"'): // vLLM takes a string for a part
			var v str
			v, i = s.text(at, depth+1)
			s.addText(v)
		case s.is(at, '{'):
			i = s.part(at, depth+1, nested)
		default:
			i = s.skip(at, depth+1)
		}
		if i < 0 {
			return i
		}
	}
}

// part is what is read of a content part.
type part struct {
	kind, text, thinking, refusal str
	name, input                   value
}

// part reads a content part, the object at b[at].
func (s *scan) part(at, depth int, nested bool) int {
	var p part
	slot := s.slot()
	end := s.members(at, depth, func(key jsonscan.Key, at, depth int) (end int) {
		switch string(s.name(key)) {
		case "type":
			p.kind, end = s.str(at, depth)
		case "text":
			p.text, end = s.text(at, depth)
		case "thinking":
			p.thinking, end = s.text(at, depth)
		case "refusal":
			p.refusal, end = s.text(at, depth)
		case "name":
			p.name, end = s.value(at, depth)
		case "input":
			p.input, end = s.value(at, depth)
		case "content":
			s.segments = s.segments[:slot+1] // the last one counts
			if nested {
				end = s.skip(at, depth)
			} else {
				end = s.content(at, depth, true)
			}
		default:
			end = s.skip(at, depth)
		}
		return end
	})
	if end >= 0 {
		s.finishPart(slot, &p, span{at, end}, nested)
	}
	return end
}

var billingHeader = []byte("x-anthropic-billing-header")

// finishPart makes segments of a part; its slot, and the segments of its
// content, are there.
func (s *scan) finishPart(slot int, p *part, whole span, nested bool) {
	var made segment
	switch string(s.bytes(p.kind)) {
	case "text", "input_text", "output_text", "summary_text", "reasoning_text":
		made = stringSegment(opText, 0, p.text)
		if s.api == Messages && bytes.HasPrefix(s.bytes(p.text), billingHeader) {
			made.op = opBilling
		}
	case "thinking":
		made = stringSegment(opLong, 'h', p.thinking)
	case "refusal":
		made = stringSegment(opLong, 'r', p.refusal)
	case "redacted_thinking":
	case "tool_use", "server_tool_use", "mcp_tool_use":
		s.segments = s.segments[:slot]
		s.call(p.name, p.input, str{})
		return
	case "tool_result":
		if !nested {
			s.segments[slot] = segment{what{op: opResult}, span{hi: len(s.segments)}}
			return
		}
		made = s.other(whole)
	case "image_url", "input_image", "image", "image_file", "image_embeds":
		made = s.media('i', whole)
	case "video_url", "input_video", "video":
		made = s.media('v', whole)
	case "audio_url", "input_audio", "audio", "audio_embeds":
		made = s.media('w', whole)
	case "file", "input_file", "document":
		made = s.media('e', whole)
	default:
		if made = stringSegment(opText, 0, p.text); p.text.from == nowhere {
			made = s.other(whole)
		}
	}
	s.segments = s.segments[:slot]
	if made.hi > made.lo || made.op == opToken || made.op == opMedia {
		s.add(made)
	}
}
