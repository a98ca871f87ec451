package config

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// decoder fills sections from YAML nodes and remembers where each key stands.
type decoder struct {
	file   string
	places map[string]Place // by JSON path
	faults Faults
	pod    string // id of the pod that is being decoded
	pairsN int    // pairs of keys and values seen, aliases expanded
}

// position is a key's path in both spellings.
type position struct{ path, key string }

func (p position) field(path, key string) position {
	return position{path: join(p.path, path), key: join(p.key, key)}
}

// mapping fills fields from the keys of n. The fields' YAML keys are relative to
// n and may have dots, the JSON keys are relative to at.path.
func (d *decoder) mapping(n *yaml.Node, fields []Field, at position) {
	for _, p := range d.pairs(n, at.key) {
		name := p.key.Value
		var group []Field
		found := false
		for _, f := range fields {
			if f.YAML == name {
				found = true
				d.value(deref(p.value), f, at.field(f.name(), name))
			} else if deeper, ok := strings.CutPrefix(f.YAML, name+"."); ok {
				f.YAML = deeper
				group = append(group, f)
			}
		}
		switch value := deref(p.value); {
		case found:
		case group == nil:
			d.unknown(p.key, fields, at)
		case !isNull(value):
			d.mapping(value, group, position{path: at.path, key: join(at.key, name)})
		}
	}
}

// unknown refuses a key with the best advice there is.
func (d *decoder) unknown(key *yaml.Node, fields []Field, at position) {
	var here []string
	for _, f := range fields {
		if name, _, _ := strings.Cut(f.YAML, "."); len(here) == 0 || here[len(here)-1] != name {
			here = append(here, name)
		}
	}
	full := join(at.key, key.Value)
	if UnavailableKey(at.path, key.Value) {
		d.fault(key, full, unavailable)
	} else if path, ok := elsewhere(key.Value); ok {
		d.fault(key, full, "unknown key here, did you mean %s?", path)
	} else if near, ok := Nearest(key.Value, here); ok {
		d.fault(key, full, "unknown key, did you mean %s?", near)
	} else {
		d.fault(key, full, "unknown key, want %s", orList(here))
	}
}

// value fills one field. Null is the same as nothing.
func (d *decoder) value(n *yaml.Node, f Field, at position) {
	d.places[at.path] = Place{File: d.file, Line: n.Line, Key: at.key, Text: shown(n)}
	if isNull(n) {
		return
	}
	switch ptr := f.Ptr.(type) {
	case *string:
		d.text(n, at, ptr)
	case **bool:
		if d.scalar(n, at, "true or false", "!!bool") {
			v := strings.EqualFold(n.Value, "true")
			*ptr = &v
		}
	case **int:
		*ptr = integer[int](d, n, at, "a whole number")
	case **int64:
		*ptr = integer[int64](d, n, at, "a whole number")
	case **Duration:
		if ms := integer[int64](d, n, at, "a whole number of milliseconds"); ms != nil {
			// Beyond the bounds of validation it only matters on which side.
			v := Duration(min(max(*ms, -1), maxDuration.Milliseconds()+1)) * Duration(time.Millisecond)
			*ptr = &v
		}
	case **float64:
		var v float64
		if d.scalar(n, at, "a number", "!!int", "!!float") && d.decoded(n, at, &v) {
			*ptr = &v
		}
	case *[]int:
		d.list(n, at, func(n *yaml.Node, at position) {
			if v := integer[int](d, n, at, "a whole number"); v != nil {
				*ptr = append(*ptr, *v)
			}
		})
	case *[]string:
		d.list(n, at, func(n *yaml.Node, at position) {
			var v string
			if d.text(n, at, &v) {
				*ptr = append(*ptr, v)
			}
		})
	case *map[string]string:
		m := map[string]string{}
		for _, p := range d.pairs(n, at.key) {
			at := at.field(p.key.Value, p.key.Value)
			value := deref(p.value)
			// The values may be secrets and are never shown.
			d.places[at.path] = Place{File: d.file, Line: value.Line, Key: at.key}
			var v string
			if d.text(value, at, &v) {
				m[p.key.Value] = v
			}
		}
		*ptr = m
	case *[]json.RawMessage:
		d.list(n, at, func(n *yaml.Node, at position) {
			if raw, ok := d.object(n, at); ok {
				*ptr = append(*ptr, raw)
			}
		})
	case *map[string]*Model:
		*ptr = map[string]*Model{}
		for _, p := range d.pairs(n, at.key) {
			at, value := at.field(p.key.Value, p.key.Value), deref(p.value)
			d.places[at.path] = Place{File: d.file, Line: p.key.Line, Key: at.key}
			m := new(Model)
			if !isNull(value) {
				d.mapping(value, Fields(m), at)
			}
			(*ptr)[p.key.Value] = m
		}
	case *[]Pod:
		d.list(n, at, func(n *yaml.Node, at position) {
			*ptr = append(*ptr, Pod{})
			if len(*ptr) <= MaxPods+1 { // more are refused anyway
				d.pod = podID(n)
				d.mapping(n, Fields(&(*ptr)[len(*ptr)-1]), at)
				d.pod = ""
			}
		})
	default:
		section, _ := f.Section()
		d.mapping(n, Fields(section), at)
	}
}

// object turns a mapping whose keys another one knows into JSON, its own keys
// spelled as JSON has them.
func (d *decoder) object(n *yaml.Node, at position) (json.RawMessage, bool) {
	before := len(d.faults)
	members := map[string]any{}
	for _, p := range d.pairs(n, at.key) {
		var v any
		if err := p.value.Decode(&v); err != nil {
			d.fault(p.value, join(at.key, p.key.Value), "%v", err)
			continue
		}
		members[snakeCase(p.key.Value)] = v
	}
	raw, err := json.Marshal(members)
	if err != nil {
		d.fault(n, at.key, "has no form in JSON: %v", err)
	}
	return raw, len(d.faults) == before
}

// snakeCase spells a camelCase key of config.yaml as JSON and the Caddyfile do.
func snakeCase(key string) string {
	var b strings.Builder
	for _, r := range key {
		if r >= 'A' && r <= 'Z' {
			b.WriteByte('_')
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}

// podID returns the id of a pod before the pod is decoded, for messages.
func podID(n *yaml.Node) string {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if v := deref(n.Content[i+1]); n.Content[i].Value == "id" && v.Kind == yaml.ScalarNode {
			return v.Value
		}
	}
	return ""
}

// list calls element for each element of a list.
func (d *decoder) list(n *yaml.Node, at position, element func(*yaml.Node, position)) {
	if n.Kind != yaml.SequenceNode {
		d.fault(n, at.key, "want a list, got %s", describe(n))
		return
	}
	for i, e := range n.Content {
		e := deref(e)
		at := position{path: index(at.path, i), key: index(at.key, i)}
		d.places[at.path] = Place{File: d.file, Line: e.Line, Key: at.key, Text: shown(e)}
		element(e, at)
	}
}

func (d *decoder) text(n *yaml.Node, at position, out *string) bool {
	if !d.scalar(n, at, "a string", "!!str") {
		return false
	}
	*out = n.Value
	return true
}

// integer returns nil after a fault.
func integer[T int | int64](d *decoder, n *yaml.Node, at position, want string) *T {
	v := new(T)
	if !d.scalar(n, at, want, "!!int") || !d.decoded(n, at, v) {
		return nil
	}
	return v
}

// scalar checks that n is a single value with one of the tags.
func (d *decoder) scalar(n *yaml.Node, at position, want string, tags ...string) bool {
	if n.Kind == yaml.ScalarNode {
		for _, tag := range tags {
			if n.ShortTag() == tag {
				return true
			}
		}
		if want == "a string" {
			want += " (in quotes)"
		}
	}
	d.fault(n, at.key, "want %s, got %s", want, describe(n))
	return false
}

// decoded reads a number.
func (d *decoder) decoded(n *yaml.Node, at position, out any) bool {
	if err := n.Decode(out); err != nil {
		d.fault(n, at.key, "%.40s is out of range, want at most %d", n.Value, math.MaxInt64)
		return false
	}
	return true
}

// shown is a value as messages show it, "" for lists and mappings.
func shown(n *yaml.Node) string {
	switch {
	case n.Kind != yaml.ScalarNode:
		return ""
	case n.ShortTag() == "!!str":
		return strconv.Quote(short(n.Value))
	}
	return short(n.Value)
}

// describe says what a node is.
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.SequenceNode:
		return "a list"
	case yaml.MappingNode:
		return "a mapping of keys"
	}
	if isNull(n) {
		return "nothing"
	}
	return shown(n)
}
