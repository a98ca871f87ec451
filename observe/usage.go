package observe

import "encoding/json"

// Usage is what an engine says of one request. The zero value is an engine that
// has said nothing.
type Usage struct {
	// Prompt is the number of tokens of the prompt, those that were cached
	// included; 0 if it was not said.
	Prompt int64
	// Cached is how many of them the engine found in its cache, if HasCached. An
	// engine may say nothing of it, or null: vLLM does so for 0, and for
	// everything unless it runs with --enable-prompt-tokens-details.
	Cached    int64
	HasCached bool
	// Output is the number of tokens of the answer; 0 if it was not said.
	Output int64
}

// object is the union of the members of all APIs.
type object struct {
	Prompt         *int64   `json:"prompt_tokens"`
	PromptDetails  *details `json:"prompt_tokens_details"`
	Input          *int64   `json:"input_tokens"`
	InputDetails   *details `json:"input_tokens_details"`
	CacheRead      *int64   `json:"cache_read_input_tokens"`
	CacheCreated   *int64   `json:"cache_creation_input_tokens"`
	Completion     *int64   `json:"completion_tokens"`
	OutputOfAnswer *int64   `json:"output_tokens"`
}

type details struct {
	Cached *int64 `json:"cached_tokens"`
}

// read makes a Usage of a JSON object; what makes no sense in it counts as not
// said.
func read(text []byte) (u Usage) {
	var o object
	if json.Unmarshal(text, &o) != nil {
		return Usage{}
	}
	cached := o.CacheRead
	switch {
	case o.Prompt != nil:
		u.Prompt = *o.Prompt
		cached = o.PromptDetails.cached()
	case o.Input != nil && (o.CacheRead != nil || o.CacheCreated != nil):
		u.Prompt = *o.Input + or0(o.CacheRead) + or0(o.CacheCreated)
	case o.Input != nil:
		u.Prompt = *o.Input
		cached = o.InputDetails.cached()
	}
	u.Output = max(0, or0(o.Completion), or0(o.OutputOfAnswer))
	if u.Prompt <= 0 || u.Prompt > most {
		u.Prompt = 0
		return u
	}
	if cached != nil && *cached >= 0 && *cached <= u.Prompt {
		u.Cached, u.HasCached = *cached, true
	}
	return u
}

// most is the longest prompt that is believed, in tokens.
const most = 1 << 40

func (d *details) cached() *int64 {
	if d == nil {
		return nil
	}
	return d.Cached
}

func or0(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}
