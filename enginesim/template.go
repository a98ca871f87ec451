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
	content []part // in order
	calls   []call // tool calls of an assistant
}

// part is a text, or one image, sound, video or file.
type part struct {
	text  string
	media string // what it is known by; "" for a text
}

// mediaTokens is how many tokens an image, a sound, a video or a file takes.
const mediaTokens = 64

// each calls f with every token of the part. Those of media are all the same, and
// not the tokenizer's: they stand for what a vision tower makes of a picture.
func (p *part) each(t tokenizer, f func(token string)) {
	if p.media == "" {
		t.each(p.text, f)
		return
	}
	sum := sha256.Sum256([]byte(p.media))
	token := marker("media:" + hex.EncodeToString(sum[:8]))
	for range mediaTokens {
		f(token)
	}
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
		for i := range m.content {
			m.content[i].each(t, f)
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

// marker is the token that opens a turn, or stands for media. "developer" is another word for "system".
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
