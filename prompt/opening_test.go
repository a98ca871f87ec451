package prompt

import (
	"bytes"
	"strings"
	"testing"
)

// opening parses a body and returns a copy of its opening.
func opening(t *testing.T, api API, body string) []byte {
	t.Helper()
	var r Request
	r.Parse(api, []byte(body))
	if !r.OK {
		t.Fatalf("not OK: %s", body)
	}
	return bytes.Clone(r.Opening)
}

// TestOpeningStays: each list is one conversation as it grows, with all that a
// client may change about it meanwhile.
func TestOpeningStays(t *testing.T) {
	for _, tt := range []struct {
		name   string
		api    API
		bodies []string
	}{
		{"chat", Chat, []string{
			`{"messages":[{"role":"system","content":"s"},{"role":"user","content":"a"}]}`,
			`{"messages":[{"role":"system","content":"s"},{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}]}`,
			`{"messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"a"}]},{"role":"assistant","tool_calls":[{"id":"1","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"1","content":"x"}],"stream":true}`,
			`{"temperature":1,"messages":[{"content":"s","role":"system"},{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"system","content":"another"},{"role":"user","content":"c"}]}`,
		}},
		{"tools in any order, and more of them", Chat, []string{
			`{"messages":[{"role":"user","content":"a"}]}`,
			`{"tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g"}}],"messages":[{"role":"user","content":"a"}]}`,
			`{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}],"tools":[{"type":"function","function":{"name":"g"}},{"type":"function","function":{"name":"f"}}]}`,
			`{"documents":[{"text":"d"}],"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}`,
		}},
		{"effort, model and salt", Chat, []string{
			`{"model":"m","messages":[{"role":"user","content":"a"}]}`,
			`{"model":"n","cache_salt":"x","reasoning_effort":"high","messages":[{"role":"user","content":"a"}]}`,
		}},
		{"an empty first message", Chat, []string{
			`{"messages":[{"role":"user","content":""}]}`,
			`{"messages":[{"role":"user","content":""},{"role":"assistant","content":"Hello!"},{"role":"user","content":"a"}]}`,
			`{"messages":[{"role":"user","content":[]},{"role":"assistant","content":"Hello!"},{"role":"user","content":"a"}]}`,
		}},
		{"the assistant begins", Chat, []string{
			`{"messages":[{"role":"assistant","content":"Hello!"},{"role":"user","content":"a"}]}`,
			`{"messages":[{"role":"assistant","content":"Hello!"},{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}`,
		}},
		{"a picture", Chat, []string{
			`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}},{"type":"text","text":"a"}]}]}`,
			`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA","detail":"low"}},{"type":"text","text":"a"}]},{"role":"assistant","content":"b"}]}`,
		}},
		{"messages", Messages, []string{
			`{"system":"s","messages":[{"role":"user","content":"a"}]}`,
			`{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":[{"type":"tool_result","content":"x"}]}],"system":[{"type":"text","text":"s"}]}`,
			`{"tools":[{"name":"f"}],"system":[{"type":"text","text":"x-anthropic-billing-header: 1"},{"type":"text","text":"s"}],"messages":[{"role":"user","content":"a"}]}`,
		}},
		{"responses", Responses, []string{
			`{"instructions":"s","input":"a"}`,
			`{"instructions":"s","input":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}]}`,
		}},
		{"a conversation at the engine", Responses, []string{
			`{"conversation":"conv_1","input":"a"}`,
			`{"conversation":{"id":"conv_1"},"input":"b"}`,
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want := opening(t, tt.api, tt.bodies[0])
			if len(want) == 0 {
				t.Fatal("no opening")
			}
			for _, body := range tt.bodies[1:] {
				if got := opening(t, tt.api, body); !bytes.Equal(got, want) {
					t.Errorf("%s\nopens with %q, want %q", body, got, want)
				}
			}
		})
	}
	// One conversation in three APIs.
	a := opening(t, Chat, `{"messages":[{"role":"system","content":"s"},{"role":"user","content":"a"}]}`)
	b := opening(t, Messages, `{"system":"s","messages":[{"role":"user","content":"a"}]}`)
	c := opening(t, Responses, `{"instructions":"s","input":"a"}`)
	if !bytes.Equal(a, b) || !bytes.Equal(b, c) {
		t.Errorf("%q, %q, %q", a, b, c)
	}
}

// TestOpeningDiffers: other conversations open otherwise, those with the same
// system prompt included.
func TestOpeningDiffers(t *testing.T) {
	seen := map[string]string{}
	for _, body := range []string{
		`{"messages":[{"role":"system","content":"s"},{"role":"user","content":"a"}]}`,
		`{"messages":[{"role":"system","content":"s"},{"role":"user","content":"b"}]}`,
		`{"messages":[{"role":"system","content":"t"},{"role":"user","content":"a"}]}`,
		`{"messages":[{"role":"user","content":"a"}]}`,
		`{"messages":[{"role":"user","content":"s\na"}]}`,
		`{"messages":[{"role":"user","content":""}]}`,
		`{"messages":[{"role":"developer","content":"s"},{"role":"user","content":"a"}]}`,
	} {
		o := string(opening(t, Chat, body))
		if other, ok := seen[o]; ok {
			t.Errorf("%s\n%s\nboth open with %q", other, body, o)
		}
		seen[o] = body
	}
}

// TestNoOpening: what is no conversation, or only a later turn of one, has none.
func TestNoOpening(t *testing.T) {
	for _, tt := range []struct {
		api  API
		body string
	}{
		{Completions, `{"prompt":"a"}`},
		{Embeddings, `{"input":"a"}`},
		{Chat, `{"messages":[{"role":"system","content":"s"}]}`},
		{Responses, `{"previous_response_id":"resp_1","input":"a"}`},
	} {
		if o := opening(t, tt.api, tt.body); o != nil {
			t.Errorf("%s opens with %q", tt.body, o)
		}
	}
	var r Request
	r.Parse(Chat, []byte(`{"conversation":"x"}`))
	if r.Opening != nil {
		t.Errorf("a body without a prompt opens with %q", r.Opening)
	}
}

// TestPrefixMember: the member prefix is read in every API, decoded.
func TestPrefixMember(t *testing.T) {
	var r Request
	for api := Other; api <= Messages; api++ {
		r.Parse(api, []byte(`{"prefix":"caf\u00e9","messages":[],"prompt":1}`))
		if string(r.Prefix) != "café" {
			t.Errorf("api %d: %q", api, r.Prefix)
		}
		r.Parse(api, []byte(`{"prefix":["x"]}`))
		if r.Prefix != nil {
			t.Errorf("api %d: %q of a list", api, r.Prefix)
		}
	}
}

// TestRename: a request for an alias is the request for the model.
func TestRename(t *testing.T) {
	for _, body := range []string{
		`{"model":%,"messages":[{"role":"user","content":"a"}],"cache_salt":"s","reasoning_effort":"low"}`,
		`{"model":%,"prompt":[1,2,3]}`,
		`{"model":%}`,
	} {
		var a, b Request
		for _, api := range []API{Chat, Completions} {
			a.Parse(api, []byte(strings.Replace(body, "%", `"alias"`, 1)))
			b.Parse(api, []byte(strings.Replace(body, "%", `"model"`, 1)))
			if a.OK && a.Seed == b.Seed {
				t.Errorf("%s: two models with one seed", body)
			}
			a.Rename([]byte("model"))
			if a.Seed != b.Seed || string(a.Model) != "model" {
				t.Errorf("%s: seed %x of model %q, want %x", body, a.Seed, a.Model, b.Seed)
			}
		}
	}
}
