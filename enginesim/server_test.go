package enginesim

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// quick answers at once, by the real clock.
func quick() Settings {
	return Settings{PrefillTokensPerSecond: 1e8, DecodeTokensPerSecond: 1e5}
}

type live struct {
	*Engine
	url string
}

func newLive(t *testing.T, set Settings) *live {
	t.Helper()
	e, err := New(set, SystemClock(), NewPeers())
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(e)
	t.Cleanup(func() { http.DefaultClient.CloseIdleConnections(); s.Close(); e.Close() })
	return &live{e, s.URL}
}

func (l *live) do(t *testing.T, method, path, body string) (*http.Response, string) {
	t.Helper()
	req, _ := http.NewRequest(method, l.url+path, strings.NewReader(body))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(b)
}

// post returns the status and the decoded answer.
func (l *live) post(t *testing.T, path, body string) (int, map[string]any) {
	t.Helper()
	resp, text := l.do(t, http.MethodPost, path, body)
	var v map[string]any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return resp.StatusCode, v
}

const ask5 = `"messages":[{"role":"user","content":"tell me something"}],"max_tokens":5`

func TestRequestsRefused(t *testing.T) {
	set := quick()
	set.Models, set.MaxModelLen = []string{"m"}, 100
	l := newLive(t, set)
	long := strings.Repeat("word ", 100)
	for _, c := range []struct {
		path, body string
		status     int
		text       string
	}{
		{"/v1/chat/completions", `{`, 400, "JSON decode error"},
		{"/v1/chat/completions", `[]`, 400, "valid dictionary"},
		{"/v1/chat/completions", `{}`, 400, "messages: Field required"},
		{"/v1/chat/completions", `{"messages":[]}`, 400, "at least 1 item"},
		{"/v1/chat/completions", `{"messages":"hi"}`, 400, "valid list"},
		{"/v1/chat/completions", `{"messages":[{"content":"hi"}]}`, 400, "needs a role"},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":[{"type":"smell"}]}]}`, 400, "unknown content part"},
		{"/v1/chat/completions", `{"model":"x",` + ask5 + `}`, 404, "The model `x` does not exist."},
		{"/v1/chat/completions", `{` + ask5 + `0}`, 200, ""},
		{"/v1/chat/completions", `{` + ask5 + `00}`, 400, "'max_tokens' is too large: 500. This model's maximum context length is 100 tokens"},
		{"/v1/chat/completions", `{"max_completion_tokens":98,` + ask5 + `}`, 400, "'max_completion_tokens' is too large"},
		{"/v1/chat/completions", `{` + ask5 + `,"min_tokens":6}`, 400, "min_tokens must be less than or equal to max_tokens=5"},
		{"/v1/chat/completions", `{` + ask5 + `,"n":0}`, 400, "n must be at least 1"},
		{"/v1/chat/completions", `{` + ask5 + `,"stream":"yes"}`, 400, "stream: Input should be a valid boolean"},
		{"/v1/chat/completions", `{` + ask5 + `,"stream_options":{"include_usage":true}}`, 400, "Stream options can only be defined when"},
		{"/v1/chat/completions", `{` + ask5 + `,"tool_choice":"required"}`, 400, "no such function"},
		{"/v1/chat/completions", `{` + ask5 + `,"cache_salt":""}`, 400, "non-empty string"},
		{"/v1/chat/completions", `{` + ask5 + `,"stop":[""]}`, 400, "empty string"},
		{"/v1/completions", `{}`, 400, "prompt: Field required"},
		{"/v1/completions", `{"prompt":""}`, 400, "cannot be empty"},
		{"/v1/completions", `{"prompt":[1,-2]}`, 400, "Token id -2 is out of vocabulary"},
		{"/v1/completions", `{"prompt":5}`, 400, "prompt: Input should be a string"},
		{"/v1/completions", `{"prompt":"` + long + `"}`, 400, "maximum context length is 100 tokens. However, your request has 100 input tokens"},
		{"/v1/completions", `{"prompt":"a","max_tokens":0}`, 400, "max_tokens must be at least 1"},
		{"/v1/completions", `{"prompt":"a","echo":true}`, 400, "cannot repeat"},
		{"/v1/embeddings", `{}`, 400, "input: Field required"},
		{"/v1/embeddings", `{"input":"a","encoding_format":"hex"}`, 400, "encoding_format"},
		{"/v1/responses", `{"input":"a","previous_response_id":"resp_1"}`, 404, "not found"},
		{"/v1/responses", `{}`, 400, "input: Field required"},
		{"/tokenize", `{}`, 400, "prompt"},
	} {
		status, v := l.post(t, c.path, c.body)
		if c.status == 200 {
			if status != 200 {
				t.Errorf("%s %s: %d %v", c.path, c.body, status, v)
			}
			continue
		}
		wantError(t, status, v, c.status, c.text)
	}
	status, v := l.post(t, "/v1/messages", `{"messages":[{"role":"user","content":"hi"}]}`)
	if e, _ := v["error"].(map[string]any); status != 400 || v["type"] != "error" || e["type"] != "invalid_request_error" {
		t.Errorf("messages without max_tokens: %d %v", status, v)
	}
}

func TestEndpoints(t *testing.T) {
	set := quick()
	set.Name, set.HealthStatus = "one", 0
	l := newLive(t, set)
	for _, c := range []struct {
		method, path string
		status       int
		body         string
	}{
		{"GET", "/health", 200, ""},
		{"PUT", "/inference_sim/health?status=503", 200, ""},
		{"GET", "/health", 503, ""},
		{"GET", "/ping", 503, ""},
		{"PUT", "/inference_sim/health?status=0", 200, ""},
		{"PUT", "/inference_sim/health?status=1", 400, `{"error":{"message":"status: want 0, or 200 to 599","type":"BadRequestError","param":"status","code":400}}`},
		{"GET", "/health", 200, ""},
		{"POST", "/health", 405, `{"detail":"Method Not Allowed"}`},
		{"GET", "/v1/chat/completions", 405, `{"detail":"Method Not Allowed"}`},
		{"GET", "/nowhere", 404, `{"detail":"Not Found"}`},
		{"GET", "/version", 200, `{"version":"0.32.0+sim"}`},
		{"GET", "/load", 200, `{"server_load":0}`},
		{"POST", "/reset_prefix_cache", 200, ""},
	} {
		resp, body := l.do(t, c.method, c.path, "")
		if resp.StatusCode != c.status || body != c.body || resp.Header.Get("X-Sim-Engine") != "one" {
			t.Errorf("%s %s: %d %q from %q, want %d %q", c.method, c.path, resp.StatusCode, body, resp.Header.Get("X-Sim-Engine"), c.status, c.body)
		}
	}
	_, body := l.do(t, "GET", "/v1/models", "")
	if !strings.Contains(body, `"id":"sim"`) || !strings.Contains(body, `"max_model_len":131072`) {
		t.Errorf("models: %s", body)
	}
}

func TestTokenize(t *testing.T) {
	l := newLive(t, quick())
	_, v := l.post(t, "/tokenize", `{"prompt":"one  two\u00a0abcdefghijklmnopqrstuvwxyzabcdefghijklmnop \u4f60\u597d","return_token_strs":true}`)
	want := []any{"one", "two", "abcdefghijklmnop", "qrstuvwxyzabcdef", "ghijklmnop", "你好"}
	if v["count"] != 6.0 || v["max_model_len"] != 131072.0 || !reflect.DeepEqual(v["token_strs"], want) || len(v["tokens"].([]any)) != 6 {
		t.Errorf("%v, want %v", v, want)
	}
	_, v = l.post(t, "/tokenize", `{"messages":[{"role":"developer","content":"be brief"},{"role":"user","content":[{"type":"text","text":"what is"},{"type":"image_url","image_url":{"url":"http://x/y"}}]}],
		"tools":[{"type":"function","function":{"name":"f","parameters":{ "type" : "object" }}}],"return_token_strs":true}`)
	want = []any{"<|tools|>", `{"type":"functio`, `n","function":{"`, `name":"f","param`, `eters":{"type":"`, `object"}}}`, "<|system|>", "be", "brief", "<|user|>", "what", "is"}
	image := v["token_strs"].([]any)[len(want)]
	want = append(append(want, slices.Repeat([]any{image}, 64)...), "<|assistant|>")
	if !reflect.DeepEqual(v["token_strs"], want) {
		t.Errorf("%q, want %q", v["token_strs"], want)
	}
}

// The same conversation is the same prompt in every API that can carry it.
func TestSamePromptInEveryAPI(t *testing.T) {
	l := newLive(t, quick())
	words := strings.Repeat("some words that make blocks ", 20)
	chat := `{"model":"m","messages":[{"role":"system","content":"` + words + `"},{"role":"user","content":"` + words + `"},
		{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},
		{"role":"tool","tool_call_id":"1","content":"` + words + `"}],"tools":[{"type":"function","function":{"name":"f","description":"does f","parameters":{"type":"object"}}}],"max_tokens":5}`
	status, v := l.post(t, "/v1/chat/completions", chat)
	if status != 200 {
		t.Fatalf("%d %v", status, v)
	}
	total := v["usage"].(map[string]any)["prompt_tokens"].(float64)
	want := float64((int(total) - 1) / 16 * 16)
	text := v["choices"].([]any)[0].(map[string]any)["message"].(map[string]any)["content"]

	_, v = l.post(t, "/v1/responses", `{"model":"m","instructions":"`+words+`","input":[{"role":"user","content":[{"type":"input_text","text":"`+words+`"}]},
		{"type":"function_call","call_id":"1","name":"f","arguments":"{\"a\":1}"},{"type":"function_call_output","call_id":"1","output":"`+words+`"}],
		"tools":[{"type":"function","name":"f","description":"does f","parameters":{"type":"object"}}],"max_output_tokens":5}`)
	u := v["usage"].(map[string]any)
	if u["input_tokens"] != total || u["input_tokens_details"].(map[string]any)["cached_tokens"] != want {
		t.Errorf("responses: usage %v, want %v tokens, %v cached", u, total, want)
	}
	if got := v["output"].([]any)[0].(map[string]any)["content"].([]any)[0].(map[string]any)["text"]; got != text {
		t.Errorf("responses said %q, chat %q", got, text)
	}
	_, v = l.post(t, "/v1/messages", `{"model":"m","system":[{"type":"text","text":"`+words+`"}],"messages":[{"role":"user","content":"`+words+`"},
		{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f","input":{"a": 1}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"`+words+`"}]}],
		"tools":[{"name":"f","description":"does f","input_schema":{"type":"object"}}],"max_tokens":5}`)
	u = v["usage"].(map[string]any)
	if u["cache_read_input_tokens"] != want || u["input_tokens"] != total-want {
		t.Errorf("messages: usage %v, want %v tokens, %v cached", u, total, want)
	}
	if got := v["content"].([]any)[0].(map[string]any)["text"]; got != text || v["stop_reason"] != "max_tokens" {
		t.Errorf("messages said %q, chat %q", got, text)
	}
	_, tok := l.post(t, "/tokenize", chat)
	_, v = l.post(t, "/v1/completions", `{"model":"m","max_tokens":5,"prompt":`+string(appendJSON(nil, tok["tokens"]))+`}`)
	if u := v["usage"].(map[string]any); u["prompt_tokens"] != total || u["prompt_tokens_details"].(map[string]any)["cached_tokens"] != want {
		t.Errorf("token ids: usage %v, want %v tokens, %v cached", u, total, want)
	}
	for _, other := range []string{strings.Replace(chat, `"m"`, `"n"`, 1), strings.Replace(chat, `"model"`, `"cache_salt":"s","model"`, 1)} {
		_, v = l.post(t, "/v1/chat/completions", other)
		if c := v["usage"].(map[string]any)["prompt_tokens_details"].(map[string]any)["cached_tokens"]; c != 0.0 {
			t.Errorf("another model or salt found %v cached tokens", c)
		}
	}
}

func TestRequestIDs(t *testing.T) {
	l := newLive(t, quick())
	req, _ := http.NewRequest(http.MethodPost, l.url+"/v1/chat/completions", strings.NewReader(`{`+ask5+`}`))
	req.Header.Set("X-Request-Id", "abc")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	if !bytes.Contains(b, []byte(`"id":"chatcmpl-abc"`)) || resp.Header.Get("X-Request-Id") != "abc" || resp.Header.Get("X-Sim-Leg") != "whole" {
		t.Errorf("%v %s", resp.Header, b)
	}
}

func TestPromptTokensDetails(t *testing.T) {
	for mode, want := range map[string][2]any{"always": {0.0, 16.0}, "nonzero": {nil, 16.0}, "never": {nil, nil}} {
		set := quick()
		set.PromptTokensDetails = mode
		l := newLive(t, set)
		for i := range 2 {
			_, v := l.post(t, "/v1/completions", `{`+kvPrompt+`}`)
			var got any
			if d, ok := v["usage"].(map[string]any)["prompt_tokens_details"].(map[string]any); ok {
				got = d["cached_tokens"]
			}
			if got != want[i] {
				t.Errorf("%s: request %d says %v cached, want %v", mode, i, got, want[i])
			}
		}
	}
}

// An image is 64 tokens of its own, whatever it is named by; the same image is the
// same prompt in every API, another one is not.
func TestMediaTokens(t *testing.T) {
	l := newLive(t, quick())
	chat := func(part string) string {
		return `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[` + part + `,{"type":"text","text":"what is this"}]}]}`
	}
	const whole = 1 + 64 + 3 + 1
	for _, part := range []string{
		`{"type":"image_url","image_url":{"url":"http://x/1"}}`,
		`{"type":"image_url","image_url":{"url":"data:image/png;base64,` + strings.Repeat("A", 4000) + `"}}`,
		`{"type":"input_audio","input_audio":{"data":"AAAA","format":"wav"}}`,
		`{"type":"file","file":{"file_id":"f1"}}`,
	} {
		for _, cached := range []float64{0, 64} {
			_, v := l.post(t, "/v1/chat/completions", chat(part))
			u := v["usage"].(map[string]any)
			if u["prompt_tokens"] != float64(whole) || u["prompt_tokens_details"].(map[string]any)["cached_tokens"] != cached {
				t.Errorf("%.80s: usage %v, want %d tokens, %v of them cached", part, u, whole, cached)
			}
		}
	}
	for path, body := range map[string]string{
		"/v1/responses": `{"model":"m","input":[{"role":"user","content":[{"type":"input_image","image_url":"http://x/1"},{"type":"input_text","text":"what is this"}]}],"max_output_tokens":1}`,
		"/v1/messages":  `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"http://x/1"}},{"type":"text","text":"what is this"}]}]}`,
	} {
		_, v := l.post(t, path, body)
		u := v["usage"].(map[string]any)
		cached := u["cache_read_input_tokens"]
		if d, ok := u["input_tokens_details"].(map[string]any); ok {
			cached = d["cached_tokens"]
		}
		if cached != 64.0 {
			t.Errorf("%s: usage %v, want 64 cached", path, u)
		}
	}
}
