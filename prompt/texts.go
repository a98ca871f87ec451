package prompt

import "github.com/calinix/caddy-calinix/internal/jsonscan"

// completionsMember reads a top-level member of a completions request.
func (s *scan) completionsMember(name []byte, at, depth int) (end int) {
	switch string(name) {
	case "prompt":
		end = s.texts(at, depth)
	case "best_of":
		s.bestOf, end = s.value(at, depth)
	default:
		end = s.skip(at, depth)
	}
	return end
}

// embeddingsMember reads a top-level member of an embeddings request.
func (s *scan) embeddingsMember(name []byte, at, depth int) (end int) {
	if string(name) == "input" {
		return s.texts(at, depth)
	}
	return s.skip(at, depth)
}

// texts reads a prompt in one of its six forms: a string, an array of strings,
// of token ids, or of arrays of token ids.
func (s *scan) texts(at, depth int) (end int) {
	s.turns, s.prompts, s.ids, s.shaped = s.turns[:0], 0, 0, false
	lo := len(s.segments)
	switch {
	case s.is(at, '"'):
		end = s.oneText(at, depth)
	case s.is(at, '['):
		end = s.array(at, depth)
	default:
		return s.skip(at, depth)
	}
	s.shaped = s.prompts > 0
	s.show(span{lo, len(s.segments)})
	return end
}

func (s *scan) oneText(at, depth int) int {
	v, end := s.text(at, depth)
	s.next()
	s.addText(v)
	return end
}

// next begins another prompt.
func (s *scan) next() {
	if s.prompts > 0 {
		s.add(markerSegment(opNext, 'p'))
	}
	s.prompts++
}

// array reads an array of prompts, or of token ids. If its elements do not
// agree, it leaves no prompt.
func (s *scan) array(at, depth int) (end int) {
	i := at + 1
	first := jsonscan.Space(s.body, i)
	if !s.is(first, '"') && !s.is(first, '[') {
		lo := len(s.arena)
		var ok bool
		if ok, end = s.idList(at, depth); ok {
			s.addIDs(lo)
		}
		return end
	}
	kind, agree := s.body[first], true
	for n := 0; ; n++ {
		at, more := jsonscan.Element(s.body, i, n == 0)
		if !more {
			i = at
			break
		}
		lo := len(s.arena)
		var ok bool
		switch {
		case !s.is(at, kind), s.crowded:
			i = s.skip(at, depth+1)
		case kind == '"':
			i, ok = s.oneText(at, depth+1), true
		default:
			if ok, i = s.idList(at, depth+1); ok {
				s.addIDs(lo)
			}
		}
		if i < 0 {
			return i
		}
		agree = agree && ok
	}
	if !agree {
		s.prompts, s.ids = 0, 0
	}
	return i
}

func (s *scan) addIDs(lo int) {
	s.next()
	s.add(stringSegment(opText, 0, s.arenaFrom(lo)))
}
