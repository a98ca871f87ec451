package prompt

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// token is a marker with a hash.
func token(letter string, hashed string) string {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	h := xxhash.Sum64String(hashed)
	s := "\x01" + letter
	for range 11 {
		s += letters[h%64 : h%64+1]
		h /= 64
	}
	return s
}

// thing is what stands in a turn.
type thing struct {
	kind   string // text, billing, long, call, token, media, result
	lines  []string
	things []thing // of a result
}

type oturn struct {
	marker string
	soft   bool // left out without things
	things []thing
}

func textThing(s string) []thing {
	if s == "" {
		return nil
	}
	return []thing{{kind: "text", lines: []string{strings.ReplaceAll(s, "\x01", "\x01\x01")}}}
}

func longThing(letter, s string) []thing {
	if s == "" {
		return nil
	}
	return []thing{{kind: "long", lines: []string{"\x01" + letter, strings.ReplaceAll(s, "\x01", "\x01\x01")}}}
}

func tokenThing(letter, s string) []thing {
	return []thing{{kind: "token", lines: []string{token(letter, s)}}}
}

// callThing is a tool call; name and arguments are raw.
func callThing(name, arguments string) []thing {
	lines := []string{"\x01c"}
	if name != "" {
		lines = append(lines, short(name))
	}
	args := "{}"
	if s, ok := parseString(arguments); ok {
		s = strings.Trim(s, " \t\r\n")
		switch {
		case json.Valid([]byte(s)):
			args = short(s)
		case s != "":
			args = quote(s)
		}
	} else if arguments != "" {
		args = short(arguments)
	}
	return []thing{{kind: "call", lines: append(lines, args)}}
}

// mediaNamed are media known by that name. From the 1025th of a prompt on, page
// keeps one token of them only.
func mediaNamed(letter, s string) []thing {
	return []thing{{kind: "media", lines: slices.Repeat([]string{token(letter, s)}, 64)}}
}

func otherThing(o object) []thing {
	return tokenThing("o", otherName(o))
}

func otherName(o object) string {
	return o.short(func(name string) bool { return name == "id" || name == "cache_control" })
}

// mediaThing is a picture, a sound or a file.
func mediaThing(letter string, o object) []thing {
	found := map[string]string{}
	put := func(m member) {
		name := m.name
		if name == "file_url" {
			name = "url"
		}
		delete(found, name)
		if s, ok := parseString(m.raw); ok {
			found[name] = s
		}
	}
	leaf := func(name string) bool {
		return strings.Contains(" url file_url data file_data file_id media_type format ", " "+name+" ")
	}
	for _, m := range o {
		switch m.name {
		case "image_url", "video_url", "audio_url", "input_audio", "file", "source", "image", "video", "audio":
			found = map[string]string{}
			put(member{"url", m.raw})
			inner, _ := parseObject(m.raw)
			for _, m := range inner {
				if leaf(m.name) || m.name == "id" {
					put(m)
				}
			}
		default:
			if leaf(m.name) {
				put(m)
			}
		}
	}
	if data := found["data"]; data != "" && found["url"] == "" {
		kind, ok := found["media_type"]
		if format, has := found["format"]; !ok && has {
			kind = "audio/" + format
		} else if !ok && letter == "i" {
			kind = "image/jpeg"
		}
		found["url"] = "data:" + kind + ";base64," + data
	}
	for _, name := range []string{"url", "file_data", "file_id", "id"} {
		if found[name] != "" {
			return mediaNamed(letter, found[name])
		}
	}
	return mediaNamed(letter, otherName(o))
}

// contentThings is what a content member holds.
func contentThings(api API, raw string, nested bool) (things []thing) {
	if s, ok := parseString(raw); ok {
		return textThing(s)
	}
	parts, _ := parseArray(raw)
	for _, part := range parts {
		if s, ok := parseString(part); ok {
			things = append(things, textThing(s)...)
		} else if o, ok := parseObject(part); ok {
			things = append(things, partThings(api, o, nested)...)
		}
	}
	return things
}

func partThings(api API, o object, nested bool) []thing {
	kind, _ := o.str("type")
	text, hasText := o.str("text")
	switch kind {
	case "text", "input_text", "output_text", "summary_text", "reasoning_text":
		things := textThing(text)
		if api == Messages && strings.HasPrefix(text, "x-anthropic-billing-header") {
			things[0].kind = "billing"
		}
		return things
	case "thinking":
		thinking, _ := o.str("thinking")
		return longThing("h", thinking)
	case "refusal":
		refusal, _ := o.str("refusal")
		return longThing("r", refusal)
	case "redacted_thinking":
		return nil
	case "tool_use", "server_tool_use", "mcp_tool_use":
		// Here the arguments are JSON, never JSON in a string.
		things := callThing(o.get("name"), "")
		if input := o.get("input"); input != "" {
			lines := things[0].lines
			lines[len(lines)-1] = short(input)
		}
		return things
	case "tool_result":
		if !nested {
			return []thing{{kind: "result", things: contentThings(api, o.get("content"), true)}}
		}
		return otherThing(o)
	case "image_url", "input_image", "image", "image_file", "image_embeds":
		return mediaThing("i", o)
	case "video_url", "input_video", "video":
		return mediaThing("v", o)
	case "audio_url", "input_audio", "audio", "audio_embeds":
		return mediaThing("w", o)
	case "file", "input_file", "document":
		return mediaThing("e", o)
	}
	if hasText {
		return textThing(text)
	}
	return otherThing(o)
}

func roleMarker(api API, role string) string {
	letters := map[string]string{"user": "u", "assistant": "a", "system": "s", "developer": "d", "tool": "t", "function": "f"}
	if api == Messages {
		letters["ctx"], letters["msg"] = "u", "u"
	}
	if l, ok := letters[role]; ok {
		return "\x01" + l
	}
	return token("x", role)
}

func toolLines(raw string) (lines []string) {
	tools, _ := parseArray(raw)
	for _, t := range tools {
		outer, ok := parseObject(t)
		if !ok {
			continue
		}
		d := outer
		f, isFunction := parseObject(outer.get("function"))
		if isFunction {
			d = f
		}
		schema := d.get("parameters")
		if schema == "" {
			schema = d.get("input_schema")
		}
		var parts []string
		for _, p := range []member{{"name", d.get("name")}, {"description", d.get("description")}, {"parameters", schema}} {
			if p.raw != "" {
				parts = append(parts, quote(p.name)+":"+short(p.raw))
			}
		}
		kind, _ := outer.str("type")
		typed := kind != "" && kind != "function" && kind != "custom"
		left := func(name string) bool {
			return strings.Contains(" function name description parameters input_schema strict cache_control defer_loading ", " "+name+" ") ||
				name == "type" && !typed
		}
		more := []string{outer.short(left)}
		typed = false
		more = append(more, f.short(left))
		for _, m := range more {
			if m != "" {
				parts = append(parts, m)
			}
		}
		lines = append(lines, "\x01F", "{"+strings.Join(parts, ",")+"}")
	}
	return lines
}

func messageTurn(api API, o object) oturn {
	role, _ := o.str("role")
	t := oturn{marker: roleMarker(api, role)}
	if name, _ := o.str("name"); name != "" {
		t.things = tokenThing("n", name)
	}
	reasoning, _ := o.str("reasoning")
	if reasoning == "" {
		reasoning, _ = o.str("reasoning_content")
	}
	t.things = append(t.things, longThing("h", reasoning)...)
	t.things = append(t.things, contentThings(api, o.get("content"), false)...)
	refusal, _ := o.str("refusal")
	t.things = append(t.things, longThing("r", refusal)...)
	if id, _ := o.object("audio").str("id"); id != "" {
		t.things = append(t.things, mediaNamed("w", id)...)
	}
	calls, _ := parseArray(o.get("tool_calls"))
	for _, c := range calls {
		call, ok := parseObject(c)
		if !ok {
			continue
		}
		if f, ok := parseObject(call.get("function")); ok {
			t.things = append(t.things, callThing(f.get("name"), f.get("arguments"))...)
		} else {
			t.things = append(t.things, otherThing(call)...)
		}
	}
	if f, ok := parseObject(o.get("function_call")); ok {
		t.things = append(t.things, callThing(f.get("name"), f.get("arguments"))...)
	}
	return t
}

// itemTurns is the conversation of a responses input.
func itemTurns(items []object) (turns []oturn) {
	state := "" // of the assistant's turn: "", begun, words
	last := func() *oturn {
		if len(turns) == 0 {
			turns = append(turns, oturn{soft: true})
		}
		return &turns[len(turns)-1]
	}
	put := func(things ...thing) { last().things = append(last().things, things...) }
	for _, o := range items {
		kind, _ := o.str("type")
		role, hasRole := o.str("role")
		id, hasID := o.str("id")
		if kind == "" && !hasRole && hasID {
			kind = "item_reference"
		}
		was := state
		state = ""
		switch kind {
		case "", "message":
			if role == "assistant" {
				state = "words"
			}
			if role != "assistant" || was != "begun" {
				turns = append(turns, oturn{marker: roleMarker(Responses, role)})
			}
			put(contentThings(Responses, o.get("content"), false)...)
		case "function_call", "custom_tool_call":
			if state = was; was == "" {
				state = "begun"
				turns = append(turns, oturn{marker: "\x01a"})
			}
			if kind == "function_call" {
				put(callThing(o.get("name"), o.get("arguments"))...)
				break
			}
			call := callThing(o.get("name"), "")
			if input := o.get("input"); input != "" {
				call[0].lines[len(call[0].lines)-1] = short(input)
			}
			put(call...)
		case "function_call_output", "custom_tool_call_output":
			turns = append(turns, oturn{marker: "\x01t", things: contentThings(Responses, o.get("output"), false)})
		case "reasoning":
			state = "begun"
			if was != "begun" {
				turns = append(turns, oturn{marker: "\x01a"})
			}
			thoughts := contentThings(Responses, o.get("content"), false)
			if !some(thoughts) {
				thoughts = contentThings(Responses, o.get("summary"), false)
			}
			for i, t := range thoughts {
				if t.kind == "text" {
					thoughts[i].kind, thoughts[i].lines = "long", []string{"\x01h", t.lines[0]}
				}
			}
			put(thoughts...)
			if secret, _ := o.str("encrypted_content"); secret != "" && !some(thoughts) {
				put(tokenThing("h", secret)...)
			}
		case "item_reference":
			put(tokenThing("p", id)...)
		default:
			put(otherThing(o)...)
		}
	}
	return turns
}

func some(things []thing) bool { return len(things) > 0 }

// page is a rendered prompt.
type page struct {
	lines  []string
	system [2]int // of lines: the leading system turns
	begun  bool   // there are some
	media  int    // so far
	ended  bool   // no more of them can follow
}

func (p *page) render(turns []oturn) {
	for _, t := range turns {
		p.turn(t)
	}
}

// end notes that no leading system turn follows.
func (p *page) end() {
	if p.begun && !p.ended {
		p.system[1] = len(p.lines)
	}
	p.ended = true
}

func (p *page) begin(marker string) {
	if marker != "\x01s" && marker != "\x01d" {
		p.end()
	} else if !p.ended && !p.begun {
		p.begun, p.system[0] = true, len(p.lines)
	}
	p.lines = append(p.lines, marker)
}

func (p *page) turn(t oturn) {
	due := t.marker != ""
	long := false
	if t.marker == "" && len(t.things) > 0 {
		p.end()
	}
	var show func(things []thing)
	show = func(things []thing) {
		for _, thing := range things {
			if thing.kind == "billing" && t.marker == "\x01s" {
				continue
			}
			if thing.kind == "result" {
				due, long = false, false
				p.begin("\x01t")
				show(thing.things)
				due, t.soft = t.marker != "", true
				continue
			}
			if due {
				p.begin(t.marker)
				due, long = false, false
			}
			if long && (thing.kind == "text" || thing.kind == "billing") {
				p.lines = append(p.lines, "\x01=")
			}
			long = thing.kind == "long" || thing.kind == "call" || (thing.kind == "token" || thing.kind == "media") && long
			if thing.kind == "media" {
				if p.media++; p.media > 1024 {
					thing.lines = thing.lines[:1]
				}
			}
			p.lines = append(p.lines, thing.lines...)
		}
	}
	show(t.things)
	if due && !t.soft {
		p.begin(t.marker)
	}
}
