package enginesim

// readCompletions reads a body of /v1/completions.
func readCompletions(set *Settings, body node) (*ask, *apiError) {
	r := &reader{body: body}
	a := r.common(set)
	r.openAI(a)
	if body.get("prompt").absent() {
		r.fail("prompt", "prompt: Field required")
	}
	if r.boolean(body, "echo") {
		r.fail("echo", "echo: this simulated engine cannot repeat prompts")
	}
	if !body.get("suffix").absent() {
		r.fail("suffix", "suffix is not currently supported")
	}
	a.maxParam = "max_tokens"
	a.sampling.maxTokens = r.integer(a.maxParam, 1, 16)
	a.prompts = r.promptForms("prompt", tokenizer{*set.MaxTokenBytes})
	if r.err != nil {
		return nil, r.err
	}
	if body.get(a.maxParam).absent() {
		// vLLM's default of 16 gives way to a prompt that leaves less room.
		for _, p := range a.prompts {
			a.sampling.maxTokens = min(a.sampling.maxTokens, max(1, set.MaxModelLen-len(p)))
		}
	}
	return a, nil
}

type textAnswer struct {
	ID       string       `json:"id"`
	Object   string       `json:"object"`
	Created  int64        `json:"created"`
	Model    string       `json:"model"`
	Choices  []textChoice `json:"choices"`
	Usage    *usage       `json:"usage,omitempty"`
	Transfer *handout     `json:"kv_transfer_params,omitempty"`
	IDs      []uint32     `json:"prompt_token_ids,omitempty"`
}

type textChoice struct {
	Index        int       `json:"index"`
	Text         string    `json:"text"`
	Logprobs     *struct{} `json:"logprobs"`
	FinishReason *string   `json:"finish_reason"`
	StopReason   *string   `json:"stop_reason"`

	Context *contextOf `json:"disaggregated_params,omitempty"`
}

func (c *textChoice) end(s *sequence) {
	c.FinishReason = &s.script.reason
	if s.script.stop != "" {
		c.StopReason = &s.script.stop
	}
}

func newTextAnswer(j *job) textAnswer {
	return textAnswer{ID: j.id, Object: "text_completion", Created: j.created, Model: j.ask.model}
}

func wholeCompletions(j *job) any {
	u := j.usage()
	ans := newTextAnswer(j)
	ans.Usage, ans.Transfer = &u, j.handout()
	for i, s := range j.seqs {
		c := textChoice{Index: i, Text: s.script.text()}
		c.end(s)
		c.Context, ans.IDs = j.context, j.context.ids()
		ans.Choices = append(ans.Choices, c)
	}
	return ans
}

type textStream struct {
	j   *job
	out *sse
	ans textAnswer
}

func streamCompletions(j *job, out *sse) streamer {
	return &textStream{j, out, newTextAnswer(j)}
}

func (t *textStream) token(i, k int, last bool) {
	s := t.j.seqs[i]
	c := textChoice{Index: i, Text: s.script.piece(k)}
	if last {
		c.end(s)
	}
	t.ans.Choices = []textChoice{c}
	if t.j.ask.continuousUsage {
		u := t.j.usage()
		t.ans.Usage = &u
	}
	t.out.data(t.ans)
}

func (t *textStream) end() {
	if t.j.ask.includeUsage {
		u := t.j.usage()
		t.ans.Choices, t.ans.Usage = []textChoice{}, &u
		t.out.data(t.ans)
	}
	t.out.done()
}
