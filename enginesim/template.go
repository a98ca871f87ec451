package enginesim

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
)

// turn is one message of a chat, the same for every API that carries chats, so that
// the same conversation is the same prompt in each.
type turn struct {
	role    string
	content []string // texts and image marks, in order
	calls   []call   // tool calls of an assistant
}

type call struct{ name, arguments string }

// tool is a function that the model may call. Another kind of tool is kept as raw.
type tool struct {
	name, description string
	schema            node
	raw               []byte
}

// chat is a conversation before it is rendered.
type chat struct {
	tools []tool
	turns []turn
	open  bool // the answer is a new turn; else it continues the last one
}

// render gives the prompt as token ids: tools, turns, and the marker that opens the
// answer.
func (c *chat) render(t tokenizer) []uint32 {
	ids := make([]uint32, 0, 64)
	c.each(t, func(token string) { ids = append(ids, tokenID(token)) })
	return ids
}

// each calls f with every token of the rendered prompt.
func (c *chat) each(t tokenizer, f func(token string)) {
	if len(c.tools) > 0 {
		f(marker("tools"))
		for _, d := range c.tools {
			t.each(d.text(), f)
		}
	}
	for _, m := range c.turns {
		f(marker(m.role))
		for _, part := range m.content {
			t.each(part, f)
		}
		for _, k := range m.calls {
			t.each(k.name, f)
			t.each(k.arguments, f)
		}
	}
	if c.open {
		f(marker("assistant"))
	}
}

// marker is the token that opens a turn. "developer" is another word for "system".
func marker(role string) string {
	if role == "developer" {
		role = "system"
	}
	return "<|" + role + "|>"
}

// text is a tool as chat templates write it: its JSON without spaces, whatever the
// API's own form is.
func (d *tool) text() string {
	if d.raw != nil {
		return compact(d.raw)
	}
	var b strings.Builder
	b.WriteString(`{"type":"function","function":{"name":`)
	b.Write(appendJSON(nil, d.name))
	if d.description != "" {
		b.WriteString(`,"description":`)
		b.Write(appendJSON(nil, d.description))
	}
	if !d.schema.absent() {
		b.WriteString(`,"parameters":` + compact(d.schema.raw))
	}
	b.WriteString("}}")
	return b.String()
}

func compact(raw []byte) string {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return string(raw)
	}
	return b.String()
}

// imageMark stands for an image in the prompt: its URL, or the digest of its data.
func imageMark(url string) string {
	if strings.HasPrefix(url, "data:") {
		sum := sha256.Sum256([]byte(url))
		return hex.EncodeToString(sum[:8])
	}
	return url
}

// appendJSON adds v as JSON, with <, > and & left as they are.
func appendJSON(dst []byte, v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic("enginesim: encoding an answer: " + err.Error()) // own types only: cannot fail
	}
	return append(dst, bytes.TrimSuffix(b.Bytes(), []byte("\n"))...)
}
