package prompt

import (
	"encoding/json"
	"fmt"
	"strings"
)

// What the oracle needs of JSON, over encoding/json.

// member is a member of an object; an object is its members in order.
type member struct {
	name string
	raw  string
}

type object []member

// parseObject reads an object level by level; ok is false for another value.
func parseObject(raw string) (o object, ok bool) {
	dec := json.NewDecoder(strings.NewReader(raw))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return nil, false
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			panic(err)
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			panic(err)
		}
		o = append(o, member{name.(string), string(value)})
	}
	return o, true
}

// get is the raw value of the last member of that name, "" if there is none or
// if it is null.
func (o object) get(name string) string {
	raw := ""
	for _, m := range o {
		if m.name == name {
			raw = m.raw
		}
	}
	if raw == "null" {
		return ""
	}
	return raw
}

func (o object) str(name string) (string, bool) { return parseString(o.get(name)) }

func (o object) object(name string) object {
	inner, _ := parseObject(o.get(name))
	return inner
}

func parseString(raw string) (s string, ok bool) {
	ok = strings.HasPrefix(raw, `"`)
	if ok {
		if err := json.Unmarshal([]byte(raw), &s); err != nil {
			panic(err)
		}
	}
	return s, ok
}

func parseArray(raw string) (a []string, ok bool) {
	if !strings.HasPrefix(raw, "[") {
		return nil, false
	}
	var elements []json.RawMessage
	if err := json.Unmarshal([]byte(raw), &elements); err != nil {
		panic(err)
	}
	for _, e := range elements {
		a = append(a, string(e))
	}
	return a, true
}

// quote is a string as JSON in short form.
func quote(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteString(`\` + string(r))
		case strings.ContainsRune("\b\f\n\r\t", r):
			b.WriteString(map[rune]string{'\b': `\b`, '\f': `\f`, '\n': `\n`, '\r': `\r`, '\t': `\t`}[r])
		case r < 0x20:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return `"` + b.String() + `"`
}

// short is a JSON value in short form.
func short(raw string) string {
	dec := json.NewDecoder(strings.NewReader(raw))
	dec.UseNumber()
	var value func() string
	value = func() string {
		tok, err := dec.Token()
		if err != nil {
			panic(err)
		}
		var parts []string
		switch tok := tok.(type) {
		case json.Delim:
			for dec.More() {
				part := value()
				if tok == '{' {
					part += ":" + value()
				}
				parts = append(parts, part)
			}
			end, _ := dec.Token()
			return tok.String() + strings.Join(parts, ",") + fmt.Sprint(end)
		case string:
			return quote(tok)
		case nil:
			return "null"
		default:
			return fmt.Sprint(tok)
		}
	}
	return value()
}

// members is the short form of an object without its braces, its nulls and
// what is left out.
func (o object) short(left func(name string) bool) string {
	var parts []string
	for _, m := range o {
		if m.raw != "null" && !left(m.name) {
			parts = append(parts, quote(m.name)+":"+short(m.raw))
		}
	}
	return strings.Join(parts, ",")
}
