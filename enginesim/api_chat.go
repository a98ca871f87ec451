package enginesim

// readChat reads a body of /v1/chat/completions.
func readChat(set *Settings, body node) (*ask, *apiError) {
	r := &reader{body: body}
	a := r.common(set)
	r.openAI(a)
	a.maxParam = "max_completion_tokens"
	if body.get(a.maxParam).absent() {
		a.maxParam = "max_tokens"
	}
	a.sampling.maxTokens = r.integer(a.maxParam, 1, 0)
	c := r.chat()
	a.tools = c.tools
	r.toolChoice(a, body.get("tool_choice"), "function")
	if r.err != nil {
		return nil, r.err
	}
	a.prompts = [][]uint32{c.render(tokenizer{*set.MaxTokenBytes})}
	return a, nil
}

// chat reads messages and tools in OpenAI's chat form.
func (r *reader) chat() *chat {
	c := &chat{open: true}
	if n := r.body.get("add_generation_prompt"); n.isFalse() {
		c.open = false
	}
	if r.boolean(r.body, "continue_final_message") {
		c.open = false
	}
	for _, t := range r.list("tools") {
		f := t.get("function")
		if t.get("type").str() != "function" {
			c.tools = append(c.tools, tool{raw: t.raw})
			continue
		}
		if f.get("name").str() == "" {
			r.fail("tools", "tools: a function needs a name")
		}
		c.tools = append(c.tools, tool{name: f.get("name").str(), description: f.get("description").str(), schema: f.get("parameters")})
	}
	messages := r.body.get("messages")
	switch {
	case messages.absent():
		r.fail("messages", "messages: Field required")
	case !messages.isArray():
		r.fail("messages", "messages: Input should be a valid list")
	case len(messages.kids) == 0:
		r.fail("messages", "messages: List should have at least 1 item")
	}
	for _, m := range messages.kids {
		t := turn{role: m.get("role").str()}
		if t.role == "" {
			r.fail("messages", "messages: a message needs a role")
		}
		t.content = r.content("messages", m.get("content"))
		for _, k := range m.get("tool_calls").kids {
			f := k.get("function")
			t.calls = append(t.calls, call{f.get("name").str(), f.get("arguments").str()})
		}
		if len(t.calls) == 0 && m.get("content").absent() && t.role != "assistant" {
			r.fail("messages", "messages: a message of role %q needs content", t.role)
		}
		c.turns = append(c.turns, t)
	}
	return c
}

func (r *reader) list(name string) []node {
	n := r.body.get(name)
	if !n.absent() && !n.isArray() {
		r.fail(name, "%s: Input should be a valid list", name)
		return nil
	}
	return n.kids
}

// content reads a message's content, a string or parts, of any of the APIs.
func (r *reader) content(param string, n node) (parts []part) {
	if n.absent() {
		return nil
	}
	if n.isString() {
		return []part{{text: n.str()}}
	}
	if !n.isArray() {
		r.fail(param, "%s: content should be a string or a list of parts", param)
	}
	media := func(name string) { parts = append(parts, part{media: name}) }
	for _, p := range n.kids {
		switch kind := p.get("type").str(); kind {
		case "text", "input_text", "output_text", "refusal":
			text := p.get("text")
			if kind == "refusal" {
				text = p.get("refusal")
			}
			if !text.isString() {
				r.fail(param, "%s: a part of type %q needs its text", param, kind)
			}
			parts = append(parts, part{text: text.str()})
		case "image_url", "input_image":
			url := p.get("image_url")
			if url.isObject() {
				url = url.get("url")
			}
			if url.str() == "" {
				r.fail(param, "%s: a part of type %q needs an image_url", param, kind)
			}
			media(url.str())
		case "image": // Anthropic
			src := p.get("source")
			if src.get("type").str() == "url" {
				if src.get("url").str() == "" {
					r.fail(param, "%s: an image needs the url of its source", param)
				}
				media(src.get("url").str())
			} else {
				media("data:" + src.get("media_type").str() + ";base64," + src.get("data").str())
			}
		case "input_audio", "audio_url", "video_url", "file", "input_file", "document":
			media("data:" + string(p.raw))
		default:
			r.fail(param, "%s: unknown content part type %q", param, kind)
		}
	}
	return parts
}

// toolChoice decides whether the answer must be a tool call. inner is the member of
// tool_choice that holds the function's name, "" if the name stands there itself.
func (r *reader) toolChoice(a *ask, choice node, inner string) {
	name := choice.get("name").str()
	if inner != "" {
		name = choice.get(inner).get("name").str()
	}
	required := choice.str() == "required" || choice.get("type").str() == "any"
	if !required && (name == "" || !choice.isObject()) {
		return
	}
	for i := range a.tools {
		if d := &a.tools[i]; d.raw == nil && (required || d.name == name) {
			a.forced, a.forcedReason = d, "stop"
			if required {
				a.forcedReason = "tool_calls"
			}
			return
		}
	}
	r.fail("tool_choice", "tool_choice: no such function in `tools`")
}

type toolCallJSON struct {
	Index    *int         `json:"index,omitempty"` // in streams only
	ID       string       `json:"id,omitempty"`
	Type     string       `json:"type,omitempty"`
	Function functionJSON `json:"function"`
}

type functionJSON struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

// callID is fixed by the answer, so that equal engines also agree on it.
func (s *sequence) callID() string {
	const digits = "0123456789abcdef"
	id := []byte("call_0000000000000000")
	for i, x := 5, mix(s.script.root); i < len(id); i, x = i+1, x>>4 {
		id[i] = digits[x&15]
	}
	return string(id)
}

type chatAnswer struct {
	ID       string       `json:"id"`
	Object   string       `json:"object"`
	Created  int64        `json:"created"`
	Model    string       `json:"model"`
	Choices  []chatChoice `json:"choices"`
	Usage    *usage       `json:"usage,omitempty"`
	Transfer *handout     `json:"kv_transfer_params,omitempty"`
	IDs      []uint32     `json:"prompt_token_ids,omitempty"`
}

type chatChoice struct {
	Index        int          `json:"index"`
	Message      *chatMessage `json:"message,omitempty"`
	Delta        *chatMessage `json:"delta,omitempty"`
	Logprobs     *struct{}    `json:"logprobs"`
	FinishReason *string      `json:"finish_reason"`
	StopReason   *string      `json:"stop_reason"`
	Context      *contextOf   `json:"disaggregated_params,omitempty"`
}

type chatMessage struct {
	Role      string         `json:"role,omitempty"`
	Content   *string        `json:"content"`
	ToolCalls []toolCallJSON `json:"tool_calls,omitempty"`
}

// end fills in why a choice ended.
func (c *chatChoice) end(s *sequence) {
	c.FinishReason = &s.script.reason
	if s.script.stop != "" {
		c.StopReason = &s.script.stop
	}
}

func wholeChat(j *job) any {
	u := j.usage()
	ans := chatAnswer{ID: j.id, Object: "chat.completion", Created: j.created, Model: j.ask.model, Usage: &u, Transfer: j.handout()}
	for i, s := range j.seqs {
		text := s.script.text()
		c := chatChoice{Index: i, Message: &chatMessage{Role: "assistant", Content: &text}}
		if s.script.tool != "" {
			c.Message.Content = nil
			c.Message.ToolCalls = []toolCallJSON{{ID: s.callID(), Type: "function", Function: functionJSON{s.script.tool, text}}}
		}
		c.end(s)
		c.Context, ans.IDs = j.context, j.context.ids()
		ans.Choices = append(ans.Choices, c)
	}
	return ans
}

type chatStream struct {
	j   *job
	out *sse
	ans chatAnswer
}

func streamChat(j *job, out *sse) streamer {
	return &chatStream{j, out, chatAnswer{ID: j.id, Object: "chat.completion.chunk", Created: j.created, Model: j.ask.model}}
}

func (c *chatStream) token(i, k int, last bool) {
	s := c.j.seqs[i]
	piece := s.script.piece(k)
	if k == 0 {
		c.chunk(chatChoice{Index: i, Delta: &chatMessage{Role: "assistant", Content: new("")}})
	}
	choice := chatChoice{Index: i, Delta: &chatMessage{Content: &piece}}
	if s.script.tool != "" {
		call := toolCallJSON{Index: new(0), Function: functionJSON{Arguments: piece}}
		if k == 0 {
			call.ID, call.Type, call.Function.Name = s.callID(), "function", s.script.tool
		}
		choice.Delta = &chatMessage{ToolCalls: []toolCallJSON{call}}
	}
	if last {
		choice.end(s)
	}
	c.chunk(choice)
}

func (c *chatStream) chunk(choice chatChoice) {
	c.ans.Choices = []chatChoice{choice}
	if c.j.ask.continuousUsage {
		u := c.j.usage()
		c.ans.Usage = &u
	}
	c.out.data(c.ans)
}

func (c *chatStream) end() {
	if c.j.ask.includeUsage {
		u := c.j.usage()
		c.ans.Choices, c.ans.Usage = []chatChoice{}, &u
		c.out.data(c.ans)
	}
	c.out.done()
}
