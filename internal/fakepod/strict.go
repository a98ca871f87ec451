package fakepod

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// Strict says how closely a pod looks at generation requests before it
// answers. A refusal is a 400 with an error object, as vLLM gives it.
type Strict uint8

// The degrees.
const (
	// Lenient takes everything.
	Lenient Strict = iota
	// VLLM refuses what vLLM's API server refuses: a body that is no JSON
	// object, members of a wrong type, min_tokens above the output limit,
	// limits below 1, stream_options without stream, and a streaming prefill
	// leg (kv_transfer_params.do_remote_decode).
	VLLM
	// VLLMPrefill is VLLM of a pod that only prefills: every stream is refused.
	VLLMPrefill
)

// check returns the refusal of the request, or nil.
func (s Strict) check(q *Request) *Reply {
	if s == Lenient || q.Method != http.MethodPost {
		return nil
	}
	for _, suffix := range []string{"/completions", "/responses", "/messages", "/embeddings"} {
		if strings.HasSuffix(q.Path, suffix) {
			if fault := s.fault(q, suffix); fault != "" {
				return &Reply{Status: http.StatusBadRequest, Body: errorBody(http.StatusBadRequest, fault)}
			}
			return nil
		}
	}
	return nil
}

// fault says what is wrong with the request, or "".
func (s Strict) fault(q *Request, suffix string) string {
	body, err := q.Decoded()
	if err != nil {
		return err.Error()
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal(body, &m); err != nil || m == nil {
		return "the body is no JSON object"
	}
	if !strings.HasPrefix(q.Header.Get("Content-Type"), "application/json") {
		return "Content-Type is not application/json"
	}
	need, kinds := "prompt", "string array"
	switch {
	case strings.HasSuffix(q.Path, "/chat/completions") || suffix == "/messages":
		need, kinds = "messages", "array"
	case suffix == "/responses" || suffix == "/embeddings":
		need = "input"
	}
	for _, f := range []struct{ name, kinds string }{
		{need, kinds},
		{"model", "string"},
		{"stream", "bool null"},
		{"stream_options", "object null"},
		{"max_tokens", "int null"},
		{"max_completion_tokens", "int null"},
		{"max_output_tokens", "int null"},
		{"min_tokens", "int null"},
		{"n", "int null"},
		{"temperature", "number int null"},
		{"top_p", "number int null"},
		{"seed", "int null"},
		{"user", "string null"},
		{"cache_salt", "string null"},
		{"tools", "array null"},
		{"kv_transfer_params", "object null"},
	} {
		v, there := m[f.name]
		if !there {
			if f.name == need {
				return f.name + ": field required"
			}
			continue
		}
		if kind := kindOf(v); !strings.Contains(" "+f.kinds+" ", " "+kind+" ") {
			return fmt.Sprintf("%s: input should be %s, not %s", f.name, strings.ReplaceAll(f.kinds, " ", " or "), kind)
		}
	}
	if need == "messages" {
		if fault := messagesFault(m[need]); fault != "" {
			return fault
		}
	}
	return s.limitsFault(m, suffix)
}

func messagesFault(v json.RawMessage) string {
	var messages []map[string]json.RawMessage
	if json.Unmarshal(v, &messages) != nil {
		return "messages: input should be an array of objects"
	}
	for k, m := range messages {
		if kindOf(m["role"]) != "string" {
			return fmt.Sprintf("messages[%d].role: field required, a string", k)
		}
		switch kindOf(m["content"]) {
		case "string", "array", "null":
		default:
			return fmt.Sprintf("messages[%d].content: input should be string or array", k)
		}
	}
	return ""
}

// limitsFault checks the members that depend on each other.
func (s Strict) limitsFault(m map[string]json.RawMessage, suffix string) string {
	limit, bounded := int64(0), false
	for _, name := range []string{"max_tokens", "max_completion_tokens", "max_output_tokens"} { // later ones win
		if v, ok := number64(m[name]); ok {
			if v < 1 {
				return fmt.Sprintf("%s must be at least 1, got %d", name, v)
			}
			limit, bounded = v, true
		}
	}
	if suffix == "/messages" && !bounded {
		return "max_tokens: field required"
	}
	if v, ok := number64(m["min_tokens"]); ok {
		if v < 0 {
			return fmt.Sprintf("min_tokens must be at least 0, got %d", v)
		}
		if bounded && v > limit {
			return fmt.Sprintf("min_tokens must be less than or equal to max_tokens=%d, got %d", limit, v)
		}
	}
	if v, ok := number64(m["n"]); ok && v < 1 {
		return fmt.Sprintf("n must be at least 1, got %d", v)
	}
	stream := string(m["stream"]) == "true"
	if kindOf(m["stream_options"]) == "object" && !stream {
		return "stream options can only be defined when `stream=True`"
	}
	var kv struct {
		DoRemoteDecode bool `json:"do_remote_decode"`
	}
	if v, ok := m["kv_transfer_params"]; ok {
		_ = json.Unmarshal(v, &kv)
	}
	if stream && (kv.DoRemoteDecode || s == VLLMPrefill) {
		return "prefill does not support streaming"
	}
	return ""
}

func number64(v json.RawMessage) (int64, bool) {
	var n int64
	if kindOf(v) != "int" || json.Unmarshal(v, &n) != nil {
		return 0, false
	}
	return n, true
}

// kindOf names the JSON type of a value that has been parsed before; "none" for
// an absent one.
func kindOf(v json.RawMessage) string {
	if len(v) == 0 {
		return "none"
	}
	switch v[0] {
	case '"':
		return "string"
	case '{':
		return "object"
	case '[':
		return "array"
	case 't', 'f':
		return "bool"
	case 'n':
		return "null"
	}
	if strings.ContainsAny(string(v), ".eE") {
		return "number"
	}
	return "int"
}
