package prompt

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// conversation is one that clients send again and again, each time with more turns.
type conversation struct {
	system []string // texts of the system or developer message; none: there is none
	role   string   // of that
	tools  []string
	turns  []turn
}

// turn is what one side says; a tool's call stands with its result.
type turn struct {
	role  string // user, assistant, call
	texts []string
	image string
}

var (
	someText = rapid.Custom(func(t *rapid.T) string {
		s := rapid.StringMatching(`[a-zé"\\ ]{0,11}[a-z]`).Draw(t, "text")
		if rapid.IntRange(0, 9).Draw(t, "long") == 0 {
			s = strings.Repeat("it is said ", 500) + s + strings.Repeat(" and more of it", 500)
		}
		return s
	})
	someTexts = rapid.SliceOfN(someText, 1, 3)
	userTurn  = rapid.Custom(func(t *rapid.T) turn {
		return turn{"user", someTexts.Draw(t, "texts"), rapid.SampledFrom([]string{"", "", "AAAA", "BBBB"}).Draw(t, "image")}
	})
	laterTurn = rapid.Custom(func(t *rapid.T) turn {
		if role := rapid.SampledFrom([]string{"user", "assistant", "call"}).Draw(t, "role"); role != "user" {
			return turn{role, someTexts.Draw(t, "texts"), ""}
		}
		return userTurn.Draw(t, "user")
	})
	conversations = rapid.Custom(func(t *rapid.T) *conversation {
		c := &conversation{
			system: rapid.SliceOfN(someText, 0, 3).Draw(t, "system"),
			role:   rapid.SampledFrom([]string{"system", "developer"}).Draw(t, "role of the system message"),
			tools:  rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,5}`), 0, 4, rapid.ID[string]).Draw(t, "tools"),
		}
		if rapid.Bool().Draw(t, "the assistant begins") {
			c.turns = append(c.turns, turn{role: "assistant", texts: someTexts.Draw(t, "greeting")})
		}
		c.turns = append(c.turns, userTurn.Draw(t, "first"))
		c.turns = append(c.turns, rapid.SliceOfN(laterTurn, 0, 6).Draw(t, "turns")...)
		return c
	})
)

// first is the index of the user's first turn.
func (c *conversation) first() int {
	return slices.IndexFunc(c.turns, func(u turn) bool { return u.role == "user" })
}

// spelt writes a string as JSON, in one of two ways.
func spelt(t *rapid.T, s string) string {
	if rapid.Bool().Draw(t, "escape") {
		var b strings.Builder
		for _, r := range s {
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		return `"` + b.String() + `"`
	}
	return quote(s)
}

// images are how an image stands in a message, by the type of the texts beside it.
var images = map[API]string{
	Chat:      `{"type":"image_url","image_url":{"url":"data:image/png;base64,%s"}}`,
	Messages:  `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"%s"}}`,
	Responses: `{"type":"input_image","image_url":"data:image/png;base64,%s"}`,
}

// parts writes the content of a message: a string, or a list of parts, the texts of
// that type.
func parts(t *rapid.T, api API, kind string, u turn) string {
	if u.image == "" && rapid.Bool().Draw(t, "as a string") {
		return spelt(t, strings.Join(u.texts, "\n"))
	}
	var list []string
	for _, text := range u.texts {
		list = append(list, fmt.Sprintf(`{"type":%q,"text":%s}`, kind, spelt(t, text)))
	}
	if u.image != "" {
		list = append(list, fmt.Sprintf(images[api], u.image))
	}
	return "[" + strings.Join(list, ",") + "]"
}

// body writes a request with the first n turns.
func (c *conversation) body(t *rapid.T, api API, n int) string {
	members := []string{`"model":"m"`, `"stream":true`, `"temperature":0.5`}
	var list []string
	system := turn{texts: c.system}
	switch api {
	case Messages:
		if len(c.system) > 0 {
			members = append(members, `"system":`+parts(t, api, "text", system))
		}
		members = append(members, `"max_tokens":9`)
		list = c.messages(t, n)
		members = append(members, `"messages":[`+strings.Join(list, ",")+`]`)
	case Responses:
		if len(c.system) > 0 && c.role == "system" {
			members = append(members, `"instructions":`+spelt(t, strings.Join(c.system, "\n")))
		} else if len(c.system) > 0 {
			list = append(list, `{"role":"developer","content":`+parts(t, api, "input_text", system)+`}`)
		}
		if u := c.turns[0]; n == 1 && len(list) == 0 && u.role == "user" && u.image == "" && rapid.Bool().Draw(t, "a text alone") {
			members = append(members, `"input":`+spelt(t, strings.Join(u.texts, "\n")))
			break
		}
		list = append(list, c.items(t, n)...)
		members = append(members, `"input":[`+strings.Join(list, ",")+`]`)
	default:
		if len(c.system) > 0 {
			list = append(list, fmt.Sprintf(`{"role":%q,"content":%s}`, c.role, parts(t, api, "text", system)))
		}
		list = append(list, c.chat(t, n)...)
		members = append(members, `"messages":[`+strings.Join(list, ",")+`]`)
	}
	if tools := c.listed(t, api); tools != "" {
		members = append(members, `"tools":[`+tools+`]`)
	}
	return "{" + strings.Join(rapid.Permutation(members).Draw(t, "members"), ",") + "}"
}

// listed writes some of the tools, in any order.
func (c *conversation) listed(t *rapid.T, api API) string {
	var list []string
	for _, name := range rapid.Permutation(c.tools).Draw(t, "tools")[:rapid.IntRange(0, len(c.tools)).Draw(t, "number of tools")] {
		list = append(list, fmt.Sprintf(map[API]string{
			Chat:      `{"type":"function","function":{"name":%q,"parameters":{"type":"object"}}}`,
			Messages:  `{"name":%q,"input_schema":{"type":"object"}}`,
			Responses: `{"type":"function","name":%q,"parameters":{"type":"object"}}`,
		}[api], name))
	}
	return strings.Join(list, ",")
}

func (c *conversation) chat(t *rapid.T, n int) (list []string) {
	for i, u := range c.turns[:n] {
		if u.role == "call" {
			list = append(list, fmt.Sprintf(`{"role":"assistant","content":null,"tool_calls":[{"id":"c%d","type":"function","function":{"name":"f","arguments":"{}"}}]}`, i))
			list = append(list, fmt.Sprintf(`{"role":"tool","tool_call_id":"c%d","content":%s}`, i, parts(t, Chat, "text", u)))
			continue
		}
		list = append(list, fmt.Sprintf(`{"content":%s,"role":%q}`, parts(t, Chat, "text", u), u.role))
	}
	return list
}

func (c *conversation) messages(t *rapid.T, n int) (list []string) {
	for i, u := range c.turns[:n] {
		if u.role == "call" {
			list = append(list, fmt.Sprintf(`{"role":"assistant","content":[{"type":"tool_use","id":"c%d","name":"f","input":{}}]}`, i))
			list = append(list, fmt.Sprintf(`{"role":"user","content":[{"type":"tool_result","tool_use_id":"c%d","content":%s}]}`, i, parts(t, Messages, "text", u)))
			continue
		}
		list = append(list, fmt.Sprintf(`{"role":%q,"content":%s}`, u.role, parts(t, Messages, "text", u)))
	}
	return list
}

func (c *conversation) items(t *rapid.T, n int) (list []string) {
	for i, u := range c.turns[:n] {
		switch u.role {
		case "call":
			list = append(list, fmt.Sprintf(`{"type":"function_call","call_id":"c%d","name":"f","arguments":"{}"}`, i))
			list = append(list, fmt.Sprintf(`{"type":"function_call_output","call_id":"c%d","output":%s}`, i, parts(t, Responses, "input_text", u)))
		case "assistant":
			list = append(list, `{"type":"message","role":"assistant","content":`+parts(t, Responses, "output_text", u)+`}`)
		default:
			list = append(list, `{"role":"user","content":`+parts(t, Responses, "input_text", u)+`}`)
		}
	}
	return list
}

// TestOpeningOfAGrowingConversation: whatever is said later, however a client writes
// it down and lists its tools, a conversation keeps its opening; another first
// message, or another system message, makes another one.
func TestOpeningOfAGrowingConversation(t *testing.T) {
	open := func(t *rapid.T, api API, body string) string {
		var r Request
		r.Parse(api, []byte(body))
		if !r.OK || len(r.Opening) == 0 {
			t.Fatalf("no opening: %s", body)
		}
		return string(r.Opening)
	}
	rapid.Check(t, func(t *rapid.T) {
		c := conversations.Draw(t, "conversation")
		api := rapid.SampledFrom([]API{Chat, Messages, Responses}).Draw(t, "api")
		at := c.first()
		body := c.body(t, api, at+1)
		want := open(t, api, body)
		for n := at + 2; n <= len(c.turns); n++ {
			grown := c.body(t, api, n)
			if got := open(t, api, grown); got != want {
				t.Fatalf("%s\nopens with\n%q\n%s\nopened with\n%q", grown, got, body, want)
			}
		}
		other := *c
		if len(c.system) > 0 && rapid.Bool().Draw(t, "another system message") {
			other.system = someTexts.Draw(t, "other system message")
			if strings.Join(other.system, "\n") == strings.Join(c.system, "\n") {
				t.Skip("the same")
			}
		} else {
			other.turns = slices.Clone(c.turns)
			other.turns[at] = userTurn.Draw(t, "other first message")
			if a, b := other.turns[at], c.turns[at]; strings.Join(a.texts, "\n") == strings.Join(b.texts, "\n") && a.image == b.image {
				t.Skip("the same")
			}
		}
		if got := open(t, api, other.body(t, api, len(other.turns))); got == want {
			t.Fatalf("%+v\n%+v\nboth open with\n%q", c, other, got)
		}
	})
}
