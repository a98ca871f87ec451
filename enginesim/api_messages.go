package enginesim

import (
	"encoding/json"
	"net/http"
)

// readMessages reads a body of Anthropic's /v1/messages.
func readMessages(set *Settings, body node) (*ask, *apiError) {
	r := &reader{body: body}
	a := r.common(set)
	a.maxParam = "max_tokens"
	if body.get(a.maxParam).absent() {
		r.fail(a.maxParam, "max_tokens: Field required")
	}
	a.sampling.maxTokens = r.integer(a.maxParam, 1, 0)
	a.sampling.stop = r.stops("stop_sequences")
	c := r.anthropicChat()
	a.tools = c.tools
	r.toolChoice(a, body.get("tool_choice"), "")
	if r.err != nil {
		return nil, r.err
	}
	a.prompts = [][]uint32{c.render(tokenizer{*set.MaxTokenBytes})}
	return a, nil
}

// anthropicChat reads tools, system and messages. Blocks become the turns that the
// chat form would have: results of tools are turns of their own.
func (r *reader) anthropicChat() *chat {
	const name = "messages"
	c := &chat{open: true}
	for _, t := range r.list("tools") {
		c.tools = append(c.tools, tool{name: t.get("name").str(), description: t.get("description").str(), schema: t.get("input_schema")})
	}
	if s := r.body.get("system"); !s.absent() {
		c.turns = append(c.turns, turn{role: "system", content: r.content("system", s)})
	}
	messages := r.body.get(name)
	if !messages.isArray() || len(messages.kids) == 0 {
		r.fail(name, "messages: Field required, a list of at least 1 item")
	}
	for _, m := range messages.kids {
		role := m.get("role").str()
		if role != "user" && role != "assistant" {
			r.fail(name, "messages: role should be 'user' or 'assistant', got %q", role)
		}
		content := m.get("content")
		t := turn{role: role}
		if content.isString() {
			t.content = []part{{text: content.str()}}
		} else if !content.isArray() {
			r.fail(name, "messages: content should be a string or a list of blocks")
		}
		for _, b := range content.kids {
			switch b.get("type").str() {
			case "tool_use":
				t.calls = append(t.calls, call{b.get("name").str(), compact(b.get("input").raw)})
			case "tool_result":
				c.turns = append(c.turns, turn{role: "tool", content: r.content(name, b.get("content"))})
			case "thinking", "redacted_thinking": // not part of later prompts
			default:
				t.content = append(t.content, r.content(name, node{raw: []byte("[]"), kids: []node{b}})...)
			}
		}
		if len(t.content)+len(t.calls) > 0 {
			c.turns = append(c.turns, t)
		}
	}
	return c
}

// countTokens serves /v1/messages/count_tokens.
func (e *Engine) countTokens(w http.ResponseWriter, r *http.Request, set Settings) {
	body, ok := readBody(w, r, writeAnthropicError)
	if !ok {
		return
	}
	rd := &reader{body: body}
	c := rd.anthropicChat()
	if rd.err != nil {
		writeAnthropicError(w, rd.err)
		return
	}
	writeJSON(w, http.StatusOK, map[string]int{"input_tokens": len(c.render(tokenizer{*set.MaxTokenBytes}))})
}

type messageJSON struct {
	ID           string         `json:"id"`
	Type         string         `json:"type"`
	Role         string         `json:"role"`
	Model        string         `json:"model"`
	Content      []messageBlock `json:"content"`
	StopReason   *string        `json:"stop_reason"`
	StopSequence *string        `json:"stop_sequence"`
	Usage        messageUsage   `json:"usage"`
	Transfer     *handout       `json:"kv_transfer_params,omitempty"`
}

type messageBlock struct {
	Type  string          `json:"type"`
	Text  *string         `json:"text,omitempty"`
	ID    string          `json:"id,omitempty"`
	Name  string          `json:"name,omitempty"`
	Input json.RawMessage `json:"input,omitempty"`
}

// messageUsage follows Anthropic: input_tokens are those not read from the cache.
type messageUsage struct {
	InputTokens  int `json:"input_tokens"`
	CacheCreated int `json:"cache_creation_input_tokens"`
	CacheRead    int `json:"cache_read_input_tokens"`
	OutputTokens int `json:"output_tokens"`
}

func (j *job) messageUsage() messageUsage {
	u := j.usage()
	return messageUsage{InputTokens: u.PromptTokens - u.cached, CacheRead: u.cached, OutputTokens: u.CompletionTokens}
}

// block is the one content block, with the text or the arguments said so far.
func (j *job) block(text string) messageBlock {
	s := j.seqs[0]
	if s.script.tool == "" {
		return messageBlock{Type: "text", Text: &text}
	}
	input := json.RawMessage(text)
	if !json.Valid(input) { // not yet begun, or cut short by max_tokens
		input = json.RawMessage("{}")
	}
	return messageBlock{Type: "tool_use", ID: s.callID(), Name: s.script.tool, Input: input}
}

// stopReason gives the end in Anthropic's words.
func (j *job) stopReason() (reason string, sequence *string) {
	s := &j.seqs[0].script
	switch {
	case s.reason == "length":
		return "max_tokens", nil
	case s.tool != "":
		return "tool_use", nil
	case s.stop != "":
		return "stop_sequence", &s.stop
	default:
		return "end_turn", nil
	}
}

func (j *job) message() messageJSON {
	return messageJSON{ID: j.id, Type: "message", Role: "assistant", Model: j.ask.model, Content: []messageBlock{}, Usage: j.messageUsage()}
}

func wholeMessage(j *job) any {
	m := j.message()
	reason, sequence := j.stopReason()
	m.Content = append(m.Content, j.block(j.seqs[0].script.text()))
	m.StopReason, m.StopSequence, m.Transfer = &reason, sequence, j.handout()
	return m
}

type messageStream struct {
	j   *job
	out *sse
}

func streamMessage(j *job, out *sse) streamer { return &messageStream{j, out} }

func (m *messageStream) event(name string, fields map[string]any) {
	fields["type"] = name
	m.out.named(name, fields)
}

func (m *messageStream) token(_, k int, _ bool) {
	s := &m.j.seqs[0].script
	if k == 0 {
		start := m.j.message()
		start.Usage.OutputTokens = 0
		m.event("message_start", map[string]any{"message": start})
		m.event("content_block_start", map[string]any{"index": 0, "content_block": m.j.block("")})
	}
	delta := map[string]string{"type": "text_delta", "text": s.piece(k)}
	if s.tool != "" {
		delta = map[string]string{"type": "input_json_delta", "partial_json": s.piece(k)}
	}
	m.event("content_block_delta", map[string]any{"index": 0, "delta": delta})
}

func (m *messageStream) end() {
	reason, sequence := m.j.stopReason()
	m.event("content_block_stop", map[string]any{"index": 0})
	m.event("message_delta", map[string]any{
		"delta": map[string]any{"stop_reason": reason, "stop_sequence": sequence},
		"usage": m.j.messageUsage(),
	})
	m.event("message_stop", map[string]any{})
}
