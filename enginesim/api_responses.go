package enginesim

import "net/http"

// readResponses reads a body of /v1/responses. Nothing is stored, so ids of earlier
// responses are unknown.
func readResponses(set *Settings, body node) (*ask, *apiError) {
	r := &reader{body: body}
	a := r.common(set)
	a.maxParam = "max_output_tokens"
	a.sampling.maxTokens = r.integer(a.maxParam, 1, 0)
	if id := r.text("previous_response_id"); id != "" {
		return nil, &apiError{http.StatusNotFound, "previous_response_id", "Response with id '" + id + "' not found."}
	}
	c := &chat{open: true}
	for _, t := range r.list("tools") {
		if t.get("type").str() != "function" {
			c.tools = append(c.tools, tool{raw: t.raw})
			continue
		}
		c.tools = append(c.tools, tool{name: t.get("name").str(), description: t.get("description").str(), schema: t.get("parameters")})
	}
	if s := r.text("instructions"); s != "" {
		c.turns = append(c.turns, turn{role: "system", content: []part{{text: s}}})
	}
	r.items(c)
	a.tools = c.tools
	r.toolChoice(a, body.get("tool_choice"), "")
	if r.err != nil {
		return nil, r.err
	}
	a.prompts = [][]uint32{c.render(tokenizer{*set.MaxTokenBytes})}
	return a, nil
}

// items reads the input, a string or a list of items.
func (r *reader) items(c *chat) {
	const name = "input"
	in := r.body.get(name)
	switch {
	case in.absent():
		r.fail(name, "input: Field required")
	case in.isString():
		c.turns = append(c.turns, turn{role: "user", content: []part{{text: in.str()}}})
		return
	case !in.isArray() || len(in.kids) == 0:
		r.fail(name, "input: Input should be a string or a list of items")
	}
	for _, it := range in.kids {
		switch kind := it.get("type").str(); kind {
		case "", "message", "input_message":
			if it.get("role").str() == "" {
				r.fail(name, "input: a message needs a role")
			}
			c.turns = append(c.turns, turn{role: it.get("role").str(), content: r.content(name, it.get("content"))})
		case "function_call":
			c.addCall(call{it.get("name").str(), it.get("arguments").str()})
		case "function_call_output":
			c.turns = append(c.turns, turn{role: "tool", content: r.content(name, it.get("output"))})
		case "reasoning": // not part of later prompts
		default:
			r.fail(name, "input: unknown item type %q", kind)
		}
	}
}

// addCall joins a call to the assistant's turn before it, as in the chat form.
func (c *chat) addCall(k call) {
	if n := len(c.turns); n == 0 || c.turns[n-1].role != "assistant" {
		c.turns = append(c.turns, turn{role: "assistant"})
	}
	last := &c.turns[len(c.turns)-1]
	last.calls = append(last.calls, k)
}

type responseJSON struct {
	ID         string         `json:"id"`
	Object     string         `json:"object"`
	CreatedAt  int64          `json:"created_at"`
	Status     string         `json:"status"`
	Model      string         `json:"model"`
	Output     []outputItem   `json:"output"`
	Incomplete *incomplete    `json:"incomplete_details"`
	Usage      *responseUsage `json:"usage"`
	Transfer   *handout       `json:"kv_transfer_params,omitempty"`
}

type incomplete struct {
	Reason string `json:"reason"`
}

type responseUsage struct {
	InputTokens   int `json:"input_tokens"`
	InputDetails  any `json:"input_tokens_details"`
	OutputTokens  int `json:"output_tokens"`
	OutputDetails any `json:"output_tokens_details"`
	TotalTokens   int `json:"total_tokens"`
}

type outputItem struct {
	Type      string       `json:"type"`
	ID        string       `json:"id"`
	Status    string       `json:"status"`
	Role      string       `json:"role,omitempty"`
	Content   []outputText `json:"content,omitempty"`
	CallID    string       `json:"call_id,omitempty"`
	Name      string       `json:"name,omitempty"`
	Arguments *string      `json:"arguments,omitempty"`
}

type outputText struct {
	Type        string     `json:"type"`
	Text        string     `json:"text"`
	Annotations []struct{} `json:"annotations"`
}

// item is the output with the text said so far.
func (j *job) item(text, status string) outputItem {
	s := j.seqs[0]
	if s.script.tool != "" {
		return outputItem{Type: "function_call", ID: "fc_" + j.id, Status: status, CallID: s.callID(), Name: s.script.tool, Arguments: &text}
	}
	it := outputItem{Type: "message", ID: "msg_" + j.id, Status: status, Role: "assistant"}
	if text != "" {
		it.Content = []outputText{{Type: "output_text", Text: text, Annotations: []struct{}{}}}
	}
	return it
}

// begun is the response before its first token.
func (j *job) begun() responseJSON {
	return responseJSON{ID: j.id, Object: "response", CreatedAt: j.created, Status: "in_progress", Model: j.ask.model, Output: []outputItem{}}
}

func wholeResponse(j *job) any {
	r, u := j.begun(), j.usage()
	r.Status = "completed"
	if j.seqs[0].script.reason == "length" {
		r.Status, r.Incomplete = "incomplete", &incomplete{"max_output_tokens"}
	}
	r.Output = append(r.Output, j.item(j.seqs[0].script.text(), r.Status))
	r.Usage = &responseUsage{
		InputTokens: u.PromptTokens, OutputTokens: u.CompletionTokens, TotalTokens: u.TotalTokens,
		InputDetails:  map[string]int{"cached_tokens": u.cached},
		OutputDetails: map[string]int{"reasoning_tokens": 0},
	}
	r.Transfer = j.handout()
	return r
}

// responseStream numbers its events.
type responseStream struct {
	j   *job
	out *sse
	n   int
}

func streamResponse(j *job, out *sse) streamer { return &responseStream{j: j, out: out} }

// event sends an event; fields beyond type and number are given.
func (r *responseStream) event(name string, fields map[string]any) {
	fields["type"], fields["sequence_number"] = name, r.n
	r.n++
	r.out.named(name, fields)
}

// part sends an event about the one output item.
func (r *responseStream) part(name string, fields map[string]any) {
	fields["output_index"] = 0
	if fields["item"] == nil {
		fields["item_id"] = r.j.item("", "").ID
		if r.j.seqs[0].script.tool == "" {
			fields["content_index"] = 0
		}
	}
	r.event(name, fields)
}

func (r *responseStream) token(_, k int, last bool) {
	s := &r.j.seqs[0].script
	isCall := s.tool != ""
	if k == 0 {
		r.event("response.created", map[string]any{"response": r.j.begun()})
		r.event("response.in_progress", map[string]any{"response": r.j.begun()})
		r.part("response.output_item.added", map[string]any{"item": r.j.item("", "in_progress")})
		if !isCall {
			r.part("response.content_part.added", map[string]any{"part": outputText{Type: "output_text", Annotations: []struct{}{}}})
		}
	}
	delta := "response.output_text"
	if isCall {
		delta = "response.function_call_arguments"
	}
	r.part(delta+".delta", map[string]any{"delta": s.piece(k)})
	if !last {
		return
	}
	if isCall {
		r.part(delta+".done", map[string]any{"arguments": s.text(), "name": s.tool})
	} else {
		r.part(delta+".done", map[string]any{"text": s.text()})
		r.part("response.content_part.done", map[string]any{"part": outputText{Type: "output_text", Text: s.text(), Annotations: []struct{}{}}})
	}
}

func (r *responseStream) end() {
	whole := wholeResponse(r.j).(responseJSON)
	r.part("response.output_item.done", map[string]any{"item": whole.Output[0]})
	r.event("response."+whole.Status, map[string]any{"response": whole})
}
