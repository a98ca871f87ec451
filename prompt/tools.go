package prompt

import "github.com/calinix/caddy-calinix/internal/jsonscan"

// call adds the segments of a tool call. arguments is a string that holds
// JSON, or input the JSON itself.
func (s *scan) call(name, input value, arguments str) {
	s.add(markerSegment(opCall, 'c'))
	if name.ok() {
		s.add(jsonSegment(opJSON, 0, name))
	}
	switch {
	case arguments.from != nowhere:
		s.add(stringSegment(opArgs, 0, arguments))
	case input.ok():
		s.add(jsonSegment(opJSON, 0, input))
	default:
		s.add(markerSegment(opNoArgs, 0))
	}
}

// function is what is read of the function of a tool call.
type function struct {
	name      value
	arguments str
	input     value // arguments that are not a string
}

// functionMember reads a member of a function into f.
func (s *scan) functionMember(f *function, key jsonscan.Key, at, depth int) (end int) {
	switch string(s.name(key)) {
	case "name":
		f.name, end = s.value(at, depth)
	case "arguments": // JSON in a string; some clients send it as it is
		if f.arguments, f.input = (str{}), (value{}); s.is(at, '"') {
			f.arguments, end = s.str(at, depth)
		} else {
			f.input, end = s.value(at, depth)
		}
	default:
		end = s.skip(at, depth)
	}
	return end
}

// function reads {"name", "arguments"}. ok says that it is an object.
func (s *scan) function(at, depth int) (f function, ok bool, end int) {
	end = s.members(at, depth, func(key jsonscan.Key, at, depth int) int {
		return s.functionMember(&f, key, at, depth)
	})
	return f, end >= 0 && s.body[at] == '{', end
}

// functionCall reads the value of a function_call member.
func (s *scan) functionCall(at, depth int) int {
	f, ok, end := s.function(at, depth)
	if ok {
		s.call(f.name, f.input, f.arguments)
	}
	return end
}

// toolCall reads an element of tool_calls. A call of something else than a
// function is known by its hash.
func (s *scan) toolCall(at, depth int) int {
	var f function
	ok := false
	end := s.inner(at, depth, "function", func(at, depth int) (end int) {
		f, ok, end = s.function(at, depth)
		return end
	})
	switch {
	case end < 0:
	case ok:
		s.call(f.name, f.input, f.arguments)
	default:
		s.add(s.other(span{at, end}))
	}
	return end
}

// definition is what is read of a tool's definition.
type definition struct {
	name, description, parameters, schema value
	kind                                  str
	more                                  bool // there are other members
}

// tool reads a tool's definition: {"type", "function"} as in chat, or flat.
func (s *scan) tool(at, depth int) int {
	var outer, inner definition
	var function value
	end := s.members(at, depth, func(key jsonscan.Key, at, depth int) (end int) {
		if string(s.name(key)) != "function" {
			return s.definitionMember(&outer, key, at, depth)
		}
		inner, function = definition{}, value{}
		end = s.members(at, depth, func(key jsonscan.Key, at, depth int) int {
			return s.definitionMember(&inner, key, at, depth)
		})
		if end >= 0 && s.body[at] == '{' {
			function.span = span{at, end}
		}
		return end
	})
	if end < 0 {
		return end
	}
	d := outer
	if function.ok() {
		d = inner
	}
	if d.parameters.ok() {
		d.schema = d.parameters
	}
	s.add(markerSegment(opTool, 'F'))
	s.addMember(0, d.name)
	s.addMember(1, d.description)
	s.addMember(2, d.schema)
	kind := string(s.bytes(outer.kind))
	typed := kind != "function" && kind != "custom" && kind != ""
	if typed || outer.more || inner.more {
		s.more(value{span: span{at, end}}, function, typed)
	}
	s.add(markerSegment(opToolEnd, 0))
	return end
}

// definitionMember reads a member of a tool's definition into d.
func (s *scan) definitionMember(d *definition, key jsonscan.Key, at, depth int) (end int) {
	switch string(s.name(key)) {
	case "name":
		d.name, end = s.value(at, depth)
	case "description":
		d.description, end = s.value(at, depth)
	case "parameters":
		d.parameters, end = s.value(at, depth)
	case "input_schema":
		d.schema, end = s.value(at, depth)
	case "type":
		d.kind, end = s.str(at, depth)
	case "strict", "cache_control", "defer_loading": // do not reach the prompt
		end = s.skip(at, depth)
	default:
		d.more = true
		end = s.skip(at, depth)
	}
	return end
}

// memberNames are the members of a definition that come first.
var memberNames = [...]string{`"name":`, `"description":`, `"parameters":`}

func (s *scan) addMember(which byte, v value) {
	if v.ok() {
		s.add(jsonSegment(opMember, which, v))
	}
}

// more adds the other members of a definition, the outer object's and then the
// function's: what a tool of another kind has, and what an engine may hand to
// the template. typed says that the kind is one of them.
func (s *scan) more(outer, function value, typed bool) {
	for _, object := range [...]value{outer, function} {
		if !object.ok() {
			continue
		}
		lo := len(s.arena)
		s.write(object.span, func(name []byte) bool {
			switch string(name) {
			case "function", "name", "description", "parameters", "input_schema", "strict", "cache_control", "defer_loading":
				return true
			case "type":
				return !typed
			}
			return false
		})
		if len(s.arena) > lo {
			s.add(stringSegment(opMore, 0, s.arenaFrom(lo)))
		}
		typed = false
	}
}
