package prompt

import (
	"github.com/cespare/xxhash/v2"

	"github.com/calinix/caddy-calinix/internal/jsonscan"
)

// reference is what names a picture, a sound or a file.
type reference struct {
	url, data, fileData, fileID, id str
	mediaType, format               str
}

// mediaTokens is how many tokens of the chain an image, a video, a sound or a file
// counts as: four blocks of the default size.
const mediaTokens = 64

// maxMedia is how many media of a prompt count as mediaTokens; engines take fewer
// (vLLM 999 of a kind, unless told otherwise).
const maxMedia = 1024

// media is the segment of a part that is not text: a hash of its URL or of its
// data, never the data. Data that stands beside its type, as in messages, has
// the hash of the data URL that chat has for it.
func (s *scan) media(letter byte, whole span) segment {
	var r reference
	s.reference(&r, whole.lo, 0, true)
	if r.url.hi == r.url.lo && r.data.hi > r.data.lo {
		return hashSegment(opMedia, letter, s.dataURL(letter, &r))
	}
	for _, v := range [...]str{r.url, r.fileData, r.fileID, r.id} {
		if v.hi > v.lo {
			return hashSegment(opMedia, letter, xxhash.Sum64(s.bytes(v)))
		}
	}
	g := s.other(whole)
	g.op, g.letter = opMedia, letter
	return g
}

// dataURL is the hash of the URL that stands for data and its type.
func (s *scan) dataURL(letter byte, r *reference) uint64 {
	var d xxhash.Digest
	d.Reset()
	// Writing to a hash never fails.
	_, _ = d.WriteString("data:")
	switch {
	case r.mediaType.from != nowhere:
		_, _ = d.Write(s.bytes(r.mediaType))
	case r.format.from != nowhere:
		_, _ = d.WriteString("audio/")
		_, _ = d.Write(s.bytes(r.format))
	case letter == 'i': // what vLLM takes it for
		_, _ = d.WriteString("image/jpeg")
	}
	_, _ = d.WriteString(";base64,")
	_, _ = d.Write(s.bytes(r.data))
	return d.Sum64()
}

// reference reads an object that has been read before; outer says that the
// reference may stand in a member of it.
func (s *scan) reference(r *reference, at, depth int, outer bool) int {
	return s.members(at, depth, func(key jsonscan.Key, at, depth int) (end int) {
		switch string(s.name(key)) {
		case "image_url", "video_url", "audio_url", "input_audio", "file", "source", "image", "video", "audio":
			if !outer {
				return s.skip(at, depth)
			}
			if *r = (reference{}); s.is(at, '"') {
				r.url, end = s.str(at, depth)
				return end
			}
			return s.reference(r, at, depth, false)
		case "url", "file_url":
			r.url, end = s.str(at, depth)
		case "data":
			r.data, end = s.str(at, depth)
		case "file_data":
			r.fileData, end = s.str(at, depth)
		case "file_id":
			r.fileID, end = s.str(at, depth)
		case "id":
			if outer {
				return s.skip(at, depth) // of the part, not of what it shows
			}
			r.id, end = s.str(at, depth)
		case "media_type":
			r.mediaType, end = s.str(at, depth)
		case "format":
			r.format, end = s.str(at, depth)
		default:
			end = s.skip(at, depth)
		}
		return end
	})
}

// audio reads the audio member of an assistant's message: {"id"}.
func (s *scan) audio(at, depth int) (span, int) {
	lo := len(s.segments)
	var r reference
	end := s.reference(&r, at, depth, false)
	if r.id.hi > r.id.lo {
		s.add(hashSegment(opMedia, 'w', xxhash.Sum64(s.bytes(r.id))))
	}
	return span{lo, len(s.segments)}, end
}

// other is the token of an object of an unknown kind: a hash of its members.
func (s *scan) other(whole span) segment {
	lo := len(s.arena)
	s.write(whole, func(name []byte) bool {
		return string(name) == "cache_control" || string(name) == "id"
	})
	hash := xxhash.Sum64(s.arena[lo:])
	s.arena = s.arena[:lo]
	return hashSegment(opToken, 'o', hash)
}

// write appends to the arena the members of an object that has been read
// before, in short form: without those that are left out, and those that are
// null.
func (s *scan) write(object span, left func(name []byte) bool) {
	empty := len(s.arena)
	s.members(object.lo, 0, func(key jsonscan.Key, at, depth int) int {
		out := left(s.name(key))
		v, end := s.value(at, depth)
		if out || !v.ok() {
			return end
		}
		if len(s.arena) > empty {
			s.arena = append(s.arena, ',')
		}
		s.arena = appendEscapes(s.arena, s.body[key.Lo-1:key.Hi+1])
		s.arena = append(s.arena, ':')
		s.arena = appendShort(s.arena, s.body[v.lo:v.hi], v.form)
		return end
	})
}
