package prompt

import "github.com/calinix/caddy-calinix/internal/jsonscan"

// object reads the body. It reports whether that is one JSON object.
func (s *scan) object() bool {
	i := jsonscan.Space(s.body, 0)
	if !s.is(i, '{') {
		return false
	}
	end := s.members(i, 0, s.member)
	return end >= 0 && jsonscan.Space(s.body, end) == len(s.body)
}

// member reads the value of a top-level member.
func (s *scan) member(key jsonscan.Key, at, depth int) (end int) {
	name := s.name(key)
	switch string(name) {
	case "model":
		s.model, end = s.str(at, depth)
	case "cache_salt":
		// SGLang also takes lists of salts: they go into the seed as JSON.
		if s.salt, s.seeds[seedSalt] = (str{}), (value{}); s.is(at, '"') {
			s.salt, end = s.str(at, depth)
		} else {
			s.seeds[seedSalt], end = s.value(at, depth)
		}
	case "stream":
		s.stream, end = s.flag(at, depth)
	case "stream_options":
		s.includeUsage = false
		end = s.inner(at, depth, "include_usage", func(at, depth int) (end int) {
			s.includeUsage, end = s.flag(at, depth)
			return end
		})
	case "n":
		s.n, end = s.count(at, depth, 1)
	case "session_id":
		s.session[0], end = s.str(at, depth)
	case "prompt_cache_key":
		s.session[1], end = s.str(at, depth)
	case "safety_identifier":
		s.session[2], end = s.str(at, depth)
	case "user":
		s.session[3], end = s.str(at, depth)
	case "prefix":
		s.prefix, end = s.str(at, depth)
	case "lora_path":
		s.seeds[seedAdapter], end = s.value(at, depth)
	case "extra_key":
		s.seeds[seedExtraKey], end = s.value(at, depth)
	default:
		switch s.api {
		case Chat, Messages:
			end = s.chatMember(name, at, depth)
		case Completions:
			end = s.completionsMember(name, at, depth)
		case Embeddings:
			end = s.embeddingsMember(name, at, depth)
		case Responses:
			end = s.responsesMember(name, at, depth)
		default:
			end = s.skip(at, depth)
		}
	}
	return end
}

// members reads an object and calls f for each member, f returning the position
// after the value at b[at]; another value is skipped. Of a crowded prompt nothing
// is looked at any more below the body's own members.
func (s *scan) members(at, depth int, f func(key jsonscan.Key, at, depth int) (end int)) int {
	if !s.is(at, '{') {
		return s.skip(at, depth)
	}
	i := at + 1
	for first := true; ; first = false {
		key, at := jsonscan.Member(s.body, i, first)
		if key.Lo == 0 || at < 0 {
			return at
		}
		if s.crowded && depth > 0 {
			i = s.skip(at, depth+1)
		} else {
			i = f(key, at, depth+1)
		}
		if i < 0 {
			return i
		}
	}
}

// inner reads the value of one member of an object.
func (s *scan) inner(at, depth int, name string, f func(at, depth int) (end int)) int {
	return s.members(at, depth, func(key jsonscan.Key, at, depth int) int {
		if string(s.name(key)) == name {
			return f(at, depth)
		}
		return s.skip(at, depth)
	})
}
