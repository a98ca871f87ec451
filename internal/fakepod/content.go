package fakepod

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// asked is what a made answer takes from the request.
type asked struct {
	pod    string
	n      int
	path   string
	model  string
	stream bool
	usage  bool // stream_options.include_usage
	prompt int  // prompt tokens to report: a quarter of the body's bytes
}

// largeBody is the size above which a body is searched and not parsed: parsing
// 10 MiB under the race detector would take longer than what tests measure.
const largeBody = 256 << 10

// askedFor reads the request's body as far as it can be read; what is not JSON
// asks for nothing.
func askedFor(q *Request) asked {
	a := asked{pod: q.Pod, n: q.N, path: q.Path, model: "fake", prompt: max(1, len(q.Body)/4)}
	if len(q.Body) > largeBody {
		a.stream = bytes.Contains(q.Body, []byte(`"stream":true`)) || bytes.Contains(q.Body, []byte(`"stream": true`))
		return a
	}
	body, err := q.Decoded()
	if err != nil {
		return a
	}
	var m struct {
		Model   any `json:"model"`
		Stream  any `json:"stream"`
		Options struct {
			IncludeUsage bool `json:"include_usage"`
		} `json:"stream_options"`
	}
	_ = json.Unmarshal(body, &m) // members of a wrong type ask for nothing, either
	if model, ok := m.Model.(string); ok {
		a.model = model
	}
	a.stream = m.Stream == true
	a.usage = m.Options.IncludeUsage
	return a
}

func (a *asked) is(suffix string) bool { return strings.HasSuffix(a.path, suffix) }

func (a *asked) id() string { return fmt.Sprintf("%s-%d", a.pod, a.n) }

// object is a JSON object that is being made.
type object = map[string]any

func (a *asked) tokens(r *Reply, out int) object {
	return object{
		"prompt_tokens": a.prompt, "completion_tokens": out, "total_tokens": a.prompt + out,
		"prompt_tokens_details": object{"cached_tokens": r.CachedTokens},
	}
}

// json is the body of an answer that is not streamed. Whatever the path, it has
// a member "pod".
func (a *asked) json(r *Reply) []byte {
	text := r.Content
	if text == "" {
		text = "pod " + a.pod + " answers"
	}
	o := object{"pod": a.pod}
	switch {
	case a.is("/chat/completions"):
		o["id"], o["object"], o["created"], o["model"] = a.id(), "chat.completion", 1, a.model
		o["choices"] = []object{{
			"index": 0, "finish_reason": "stop", "logprobs": nil,
			"message": object{"role": "assistant", "content": text, "refusal": nil},
		}}
		o["usage"] = a.tokens(r, 3)
	case a.is("/completions"):
		o["id"], o["object"], o["created"], o["model"] = a.id(), "text_completion", 1, a.model
		o["choices"] = []object{{"index": 0, "finish_reason": "stop", "logprobs": nil, "text": text}}
		o["usage"] = a.tokens(r, 3)
	case a.is("/embeddings"):
		o["object"], o["model"] = "list", a.model
		o["data"] = []object{{"object": "embedding", "index": 0, "embedding": []float64{0.25, -0.5, 0.125}}}
		o["usage"] = object{"prompt_tokens": a.prompt, "total_tokens": a.prompt}
	case a.is("/responses"):
		o["id"], o["object"], o["created_at"], o["model"], o["status"] = a.id(), "response", 1, a.model, "completed"
		o["output"] = []object{{
			"id": a.id() + "-m", "type": "message", "role": "assistant", "status": "completed",
			"content": []object{{"type": "output_text", "text": text, "annotations": []string{}}},
		}}
		o["usage"] = object{
			"input_tokens": a.prompt, "output_tokens": 3, "total_tokens": a.prompt + 3,
			"input_tokens_details": object{"cached_tokens": r.CachedTokens},
		}
	case a.is("/messages"):
		o["id"], o["type"], o["role"], o["model"], o["stop_reason"] = a.id(), "message", "assistant", a.model, "end_turn"
		o["content"] = []object{{"type": "text", "text": text}}
		o["usage"] = object{"input_tokens": a.prompt, "output_tokens": 3, "cache_read_input_tokens": r.CachedTokens}
	case a.is("/models"):
		o["object"] = "list"
		o["data"] = []object{{"id": "acme-chat-1", "object": "model", "created": 1, "owned_by": "fakepod"}}
	case a.is("/health"):
		o["status"] = "ok"
	default:
		o["path"] = a.path
	}
	if r.KV != nil {
		o["kv_transfer_params"] = r.KV
	}
	return must(json.Marshal(o))
}

// events are the pieces of a stream: content chunks, a finish chunk, the usage
// if asked for, data: [DONE]. Paths other than chat stream text chunks.
func (a *asked) events(r *Reply) (pieces [][]byte, content int) {
	content = r.Chunks
	switch {
	case content == 0:
		content = defaultChunks
	case content < 0:
		content = 0
	}
	for k := 1; k <= content; k++ {
		text := fmt.Sprintf("%s%d ", a.pod, k)
		e := a.chunk(text, nil)
		if missing := r.ChunkBytes - len(e); missing > 0 {
			e = a.chunk(text+strings.Repeat("x", missing), nil)
		} else if missing < 0 && r.ChunkBytes > 0 {
			e = small(k, r.ChunkBytes)
		}
		pieces = append(pieces, e)
	}
	pieces = append(pieces, a.chunk("", "stop"))
	if a.usage {
		pieces = append(pieces, event(object{
			"id": a.id(), "object": "chat.completion.chunk", "created": 1, "model": a.model, "pod": a.pod,
			"choices": []object{}, "usage": a.tokens(r, content),
		}))
	}
	return append(pieces, []byte("data: [DONE]\n\n")), content
}

// chunk is one event of a stream; finish is nil or the finish reason.
func (a *asked) chunk(text string, finish any) []byte {
	choice := object{"index": 0, "finish_reason": finish}
	kind := "chat.completion.chunk"
	if a.is("/completions") && !a.is("/chat/completions") {
		kind = "text_completion"
		choice["text"] = text
	} else if text == "" {
		choice["delta"] = object{}
	} else {
		choice["delta"] = object{"role": "assistant", "content": text}
	}
	return event(object{"id": a.id(), "object": kind, "created": 1, "model": a.model, "pod": a.pod, "choices": []object{choice}})
}

// small is an event of exactly size bytes, or as small as it can be.
func small(k, size int) []byte {
	e := fmt.Sprintf("data: {\"k\":%d,\"x\":\"\"}\n\n", k)
	return []byte(strings.Replace(e, `""`, `"`+strings.Repeat("x", max(0, size-len(e)))+`"`, 1))
}

func event(o object) []byte { return []byte("data: " + string(must(json.Marshal(o))) + "\n\n") }

// errorBody is an error as current vLLM words it.
func errorBody(status int, message string) []byte {
	kind := strings.ReplaceAll(http.StatusText(status), " ", "") + "Error"
	return must(json.Marshal(object{"error": object{"message": message, "type": kind, "param": nil, "code": status}}))
}

// must is for what cannot fail: coding into memory. KV is the exception: a
// value that is no JSON is the test's own fault and shows at once.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
