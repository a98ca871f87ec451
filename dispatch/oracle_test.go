package dispatch

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"unicode/utf8"
)

// member is a top-level member as encoding/json reads it: the name decoded,
// the value as it was spelled.
type member struct {
	name  string
	value json.RawMessage
}

// readMembers reads a JSON object by encoding/json alone; ok is false if body
// is not one object in UTF-8.
func readMembers(body []byte) (list []member, ok bool) {
	if !utf8.Valid(body) || !json.Valid(body) {
		return nil, false
	}
	d := json.NewDecoder(bytes.NewReader(body))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil, false
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, false
		}
		m := member{name: name.(string)}
		if d.Decode(&m.value) != nil {
			return nil, false
		}
		list = append(list, m)
	}
	if _, err := d.Token(); err != nil {
		return nil, false
	}
	_, err := d.Token()
	return list, err == io.EOF
}

// texts cuts an object's text into its members' texts, name and value as
// spelled and what lies between them, without the whitespace around. It
// trusts that body is well formed.
func texts(body string) (list []string) {
	body = strings.TrimSpace(body)
	body = body[1 : len(body)-1]
	depth, inString, start := 0, false, 0
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
		case c == ',' && depth == 0:
			list = append(list, strings.TrimSpace(body[start:i]))
			start = i + 1
		}
	}
	if last := strings.TrimSpace(body[start:]); last != "" {
		list = append(list, last)
	}
	return list
}
