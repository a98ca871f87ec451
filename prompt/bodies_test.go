package prompt

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// chooser makes random bodies from rapid (which shrinks them) or from a plain
// generator.
type chooser interface{ IntN(n int) int }

type rapidChooser struct{ t *rapid.T }

func (c rapidChooser) IntN(n int) int { return rapid.IntRange(0, n-1).Draw(c.t, "n") }

// maker writes random bodies: mostly of the right shape, with strange members,
// wrong types, duplicates, escapes and spaces among it.
type maker struct {
	chooser
	b strings.Builder
}

func (m *maker) one(of ...string) string { return of[m.IntN(len(of))] }

func (m *maker) write(s ...string) {
	for _, s := range s {
		m.b.WriteString(s)
	}
}

func (m *maker) space() {
	if m.IntN(12) == 0 {
		m.write(m.one(" ", "\n\t", "  ", "\r"))
	}
}

var madeTexts = []string{
	`hello`, `two words`, ``, ` `, `a\nb`, `say \"hi\"`, `back\\slash`, `caf\u00e9`, `café — “quoted”`, `你好世界`,
	`\ud83d\ude80`, `\ud83d`, `\u0001u`, `x\u0001`, `\u0000`, `see http:\/\/x.y`, `{\"a\": 1}`, `{\"a\" : [\"\\u00e9\\n\"]}`, ` {} `, `{`,
	`x-anthropic-billing-header: cc_version=2; cch=abc;`, "nbsp\u00a0\u3000wide", `"}`[:0], `a long text that goes on for more than sixty-four bytes, so that it takes the long way`,
	`\t\b\f\r\n\/`, `text`, `user`, `assistant`,
}

var madeRoles = []string{`user`, `assistant`, `system`, `developer`, `tool`, `function`, `ctx`, `critic`, ``, `us\u0065r`}

var madeKinds = []string{
	`text`, `input_text`, `output_text`, `thinking`, `refusal`, `redacted_thinking`, `tool_use`, `tool_result`, `image_url`,
	`input_image`, `image`, `image_embeds`, `video_url`, `input_audio`, `file`, `document`, `search_result`, ``, `te\u0078t`, `summary_text`,
}

func (m *maker) str(of []string) { m.write(`"`, of[m.IntN(len(of))], `"`) }

// any writes any value.
func (m *maker) any(depth int) {
	switch n := m.IntN(12); {
	case n < 4:
		m.str(madeTexts)
	case n < 8 || depth > 5:
		m.write(m.one(`null`, `true`, `false`, `0`, `-1`, `12`, `1.50`, `1e400`, `9007199254740993`, `{}`, `[]`))
	case n < 10:
		m.array(m.IntN(3), func(int) { m.any(depth + 1) })
	default:
		m.object(depth+1, m.IntN(3), []string{"a", "b", "id", "cache_control", "text", "url"}, nil)
	}
}

func (m *maker) array(n int, f func(i int)) {
	m.write("[")
	m.space()
	for i := range n {
		if i > 0 {
			m.write(",")
			m.space()
		}
		f(i)
		m.space()
	}
	m.write("]")
}

// object writes n members with names out of a list; f writes the value of a
// member and reports whether it knows it.
func (m *maker) object(depth, n int, names []string, f func(name string) bool) {
	m.write("{")
	m.space()
	for i := range n {
		if i > 0 {
			m.write(",")
			m.space()
		}
		name := names[m.IntN(len(names))]
		spelled := name
		if m.IntN(20) == 0 && name != "" {
			spelled = fmt.Sprintf(`\u%04x%s`, name[0], name[1:])
		}
		m.write(`"`, spelled, `"`)
		m.space()
		m.write(":")
		m.space()
		if m.IntN(12) == 0 || f == nil || !f(name) {
			m.any(depth + 1)
		}
		m.space()
	}
	m.write("}")
}

func (m *maker) parts(depth int) {
	m.array(m.IntN(4), func(int) {
		if m.IntN(10) == 0 {
			m.any(depth)
			return
		}
		m.part(depth)
	})
}

func (m *maker) part(depth int) {
	names := []string{"type", "type", "type", "text", "text", "thinking", "refusal", "name", "input", "content", "image_url", "source", "file", "input_audio", "file_id", "cache_control", "id", "x", "url"}
	m.object(depth, 1+m.IntN(5), names, func(name string) bool {
		switch name {
		case "type":
			m.str(madeKinds)
		case "text", "thinking", "refusal", "name", "file_id":
			m.str(madeTexts)
		case "content":
			m.content(depth + 1)
		case "image_url", "source", "file", "input_audio":
			if m.IntN(3) == 0 {
				m.str(madeTexts)
				break
			}
			m.object(depth, m.IntN(4), []string{"url", "data", "media_type", "format", "file_id", "file_data", "id", "detail", "type"}, func(string) bool { m.str(madeTexts); return true })
		default:
			return false
		}
		return true
	})
}

func (m *maker) content(depth int) {
	switch {
	case depth > 6 || m.IntN(2) == 0:
		m.str(madeTexts)
	default:
		m.parts(depth)
	}
}

func (m *maker) function(depth int) {
	m.object(depth, 1+m.IntN(3), []string{"name", "arguments", "arguments", "x"}, func(name string) bool {
		if name != "x" {
			m.str(madeTexts)
		}
		return name != "x"
	})
}

func (m *maker) calls(depth int) {
	m.array(m.IntN(3), func(int) {
		m.object(depth, m.IntN(4), []string{"id", "type", "function", "function", "custom"}, func(name string) bool {
			if name == "function" {
				m.function(depth + 1)
			}
			return name == "function"
		})
	})
}

func (m *maker) message(depth int) {
	names := []string{"role", "role", "content", "content", "content", "name", "tool_calls", "function_call", "refusal", "reasoning", "reasoning_content", "audio", "tool_call_id", "x"}
	m.object(depth, m.IntN(6), names, func(name string) bool {
		switch name {
		case "role":
			m.str(madeRoles)
		case "content":
			m.content(depth)
		case "tool_calls":
			m.calls(depth)
		case "function_call":
			m.function(depth)
		case "name", "refusal", "reasoning", "reasoning_content":
			m.str(madeTexts)
		case "audio":
			m.object(depth, m.IntN(2), []string{"id", "data"}, func(string) bool { m.str(madeTexts); return true })
		default:
			return false
		}
		return true
	})
}

func (m *maker) item(depth int) {
	names := []string{"type", "type", "role", "content", "content", "output", "summary", "name", "arguments", "input", "id", "encrypted_content", "status"}
	m.object(depth, m.IntN(6), names, func(name string) bool {
		switch name {
		case "type":
			m.write(`"`, m.one("message", "function_call", "function_call_output", "reasoning", "item_reference", "custom_tool_call", "custom_tool_call_output", "web_search_call"), `"`)
		case "role":
			m.str(madeRoles)
		case "content", "output", "summary":
			m.content(depth)
		case "name", "arguments", "id", "encrypted_content":
			m.str(madeTexts)
		default:
			return false
		}
		return true
	})
}

func (m *maker) tools(depth int) {
	inner := []string{"name", "description", "parameters", "input_schema", "strict", "type", "cache_control", "x"}
	outer := append([]string{"function", "function"}, inner...)
	m.array(m.IntN(3), func(int) {
		m.object(depth, m.IntN(5), outer, func(name string) bool {
			switch name {
			case "function":
				m.object(depth, m.IntN(5), inner, nil)
			case "type":
				m.write(`"`, m.one("function", "custom", "web_search", ""), `"`)
			default:
				return false
			}
			return true
		})
	})
}

func (m *maker) ids(n int) {
	m.array(n, func(int) { m.write(fmt.Sprint(m.IntN(200000))) })
}

func (m *maker) prompt(depth int) {
	switch m.IntN(7) {
	case 0, 1:
		m.str(madeTexts)
	case 2:
		m.array(m.IntN(4), func(int) { m.str(madeTexts) })
	case 3:
		m.ids(m.IntN(12))
	case 4:
		m.array(m.IntN(4), func(int) { m.ids(m.IntN(5)) })
	case 5:
		m.array(1+m.IntN(3), func(int) {
			m.write(m.one(`1`, `22`, `"a"`, `[3]`, `["b"]`, `[]`, `-4`, `5.0`, `6e0`, `1234567890123456789`, `123456789012345678`, `0`, `null`))
		})
	default:
		m.any(depth)
	}
}

var madeMembers = map[API][]string{
	Other:       {},
	Chat:        {"messages", "messages", "messages", "tools", "functions", "documents", "chat_template", "chat_template_kwargs", "mm_processor_kwargs", "reasoning_effort"},
	Completions: {"prompt", "prompt", "best_of"},
	Embeddings:  {"input", "input"},
	Responses:   {"input", "input", "input", "instructions", "tools", "previous_response_id", "conversation", "prompt", "reasoning"},
	Messages:    {"messages", "messages", "messages", "system", "tools", "output_config", "chat_template_kwargs"},
}

// body writes a body for the API.
func (m *maker) body(api API) []byte {
	m.b.Reset()
	names := append([]string{"model", "cache_salt", "stream", "stream_options", "n", "user", "prompt_cache_key", "session_id", "lora_path", "extra_key", "x"}, madeMembers[api]...)
	names = append(names, madeMembers[api]...)
	m.space()
	m.object(0, m.IntN(9), names, func(name string) bool {
		switch name {
		case "messages":
			m.array(m.IntN(5), func(int) { m.message(3) })
		case "input", "prompt":
			switch {
			case api == Completions || api == Embeddings:
				m.prompt(1)
			case name == "prompt" || m.IntN(4) == 0:
				m.str(madeTexts)
			default:
				m.array(m.IntN(5), func(int) { m.item(3) })
			}
		case "tools", "functions":
			m.tools(2)
		case "documents":
			m.array(m.IntN(3), func(int) { m.any(3) })
		case "system":
			m.content(1)
		case "model", "cache_salt", "instructions", "user", "prompt_cache_key", "session_id", "previous_response_id", "conversation":
			m.str(madeTexts)
		case "stream":
			m.write(m.one("true", "false", "null"))
		case "n", "best_of":
			m.write(m.one("1", "2", "0", "-1", "99999999999999999999", "1.0"))
		case "reasoning", "output_config":
			m.object(1, m.IntN(3), []string{"effort", "summary"}, nil)
		case "stream_options":
			m.object(1, m.IntN(3), []string{"include_usage", "x"}, func(string) bool { m.write(m.one("true", "false", "1")); return true })
		default:
			return false
		}
		return true
	})
	m.space()
	return []byte(m.b.String())
}

func TestParseProperty(t *testing.T) {
	var r Request // one for all: nothing may be left of the body before
	rapid.Check(t, func(t *rapid.T) {
		m := maker{chooser: rapidChooser{t}}
		api := API(rapid.IntRange(0, int(Messages)).Draw(t, "api"))
		checkParse(t, &r, api, m.body(api))
	})
}

// The same, many more, some of them damaged.
func TestParseRandom(t *testing.T) {
	n := 10000
	if testing.Short() {
		n = 3000
	}
	var r Request
	rng := rand.New(rand.NewPCG(11, 12))
	m := maker{chooser: rng}
	for range n {
		api := API(rng.IntN(int(Messages) + 1))
		body := m.body(api)
		if rng.IntN(8) == 0 {
			body[rng.IntN(len(body))] = byte(rng.IntN(256))
		}
		checkParse(t, &r, api, body)
	}
}

// FuzzParse: the oracle over whatever the fuzzer makes of random bodies.
func FuzzParse(f *testing.F) {
	m := maker{chooser: rand.New(rand.NewPCG(13, 14))}
	for i := range 120 {
		api := API(i % (int(Messages) + 1))
		f.Add(uint8(api), m.body(api))
	}
	var r Request
	f.Fuzz(func(t *testing.T, api uint8, body []byte) {
		checkParse(t, &r, API(api%(uint8(Messages)+1)), body)
	})
}
