package observe

import "bytes"

// Form is how the bytes of an answer are made up.
type Form uint8

const (
	// JSON is one JSON object.
	JSON Form = iota
	// Events are server-sent events, whose data are JSON objects, a line each.
	Events
)

// Find returns what the last object "usage" says in an answer, or in the end of
// one: a member of the JSON object, or of that of an event, or there of the
// object in its member response or message. What a model wrote cannot be taken
// for it: in a string its quotes are escaped, and deeper in the object it is not
// looked for. Time is linear, but for the tries of up to maxTries candidates.
func Find(answer []byte, form Form) Usage {
	end := len(answer)
	for range maxTries {
		i := bytes.LastIndex(answer[:end], name)
		if i < 0 {
			break
		}
		end = i
		if i > 0 && answer[i-1] == '\\' {
			continue // the end of a longer name
		}
		if text := member(answer[i+len(name):], form); text != nil {
			return read(text)
		}
	}
	return Usage{}
}

var name = []byte(`"usage"`)

// maxTries bounds how many members of that name are looked at.
const maxTries = 64

// member returns the object behind a name if it stands where usage stands: what
// follows closes the answer, or the event.
func member(rest []byte, form Form) []byte {
	at := blank(rest, 0, form)
	if at == len(rest) || rest[at] != ':' {
		return nil
	}
	from := blank(rest, at+1, form)
	if from == len(rest) || rest[from] != '{' {
		return nil
	}
	to := value(rest, from, form)
	if to < 0 {
		return nil
	}
	levels, most := 0, 1
	if form == Events {
		most = 2
	}
	for i := to; ; i++ {
		if i = blank(rest, i, form); i == len(rest) || rest[i] == '\n' || rest[i] == '\r' {
			break // of an event; between the members of an object blank skips these
		}
		switch rest[i] {
		case '}':
			levels++
		case '"', '{', '[':
			if i = value(rest, i, form) - 1; i < 0 || levels == most {
				return nil
			}
		case ']':
			return nil
		}
	}
	if levels < 1 || levels > most {
		return nil
	}
	return rest[from:to]
}

// value returns the end of the string, object or list that begins at i; -1 if it
// does not end.
func value(b []byte, i int, form Form) int {
	depth := 0
	for ; i < len(b); i++ {
		switch b[i] {
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		case '\n', '\r':
			if form == Events {
				return -1
			}
		case '"':
			for i++; i < len(b) && b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
			if depth == 0 && i < len(b) {
				return i + 1
			}
		}
	}
	return -1
}

// blank returns the first byte from i on that is no white space; an event's
// ends with its line.
func blank(b []byte, i int, form Form) int {
	for ; i < len(b); i++ {
		switch b[i] {
		case ' ', '\t':
		case '\n', '\r':
			if form == Events {
				return i
			}
		default:
			return i
		}
	}
	return i
}
