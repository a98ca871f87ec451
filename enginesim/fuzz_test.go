package enginesim

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Whatever a client sends, the engine answers in JSON or with a stream, blames the
// client or serves it, and then holds nothing.
func FuzzRequests(f *testing.F) {
	for _, body := range []string{
		`{` + ask5 + `}`, `{` + ask5 + `,"stream":true,"n":2,"stream_options":{"include_usage":true}}`,
		`{"prompt":["a b",[1,2]],"stop":["the"],"max_tokens":3}`, `{"input":[{"role":"user","content":[{"type":"input_text","text":"x"}]}],"max_output_tokens":2}`,
		`{"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","data":"QQ=="}},{"type":"tool_result","content":"x"}]}],"max_tokens":2,
			"tools":[{"name":"f","input_schema":{"properties":{"a":{"type":"array","items":{"enum":[]}}}}}],"tool_choice":{"type":"any"}}`,
		`{` + kvPrompt + `,"max_tokens":1,"kv_transfer_params":{"do_remote_decode":true}}`,
		`{` + kvPrompt + `,"kv_transfer_params":{"do_remote_prefill":true,"remote_engine_id":"x","remote_request_id":"y","remote_block_ids":[1],"remote_host":"127.0.0.1","remote_port":1,"tp_size":1,"remote_num_tokens":1}}`,
		`{"input":"x","dimensions":2,"encoding_format":"base64"}`, `{"tools":[{"type":"x"},{"type":"function","function":null}],"messages":[null,1,{}]}`,
	} {
		f.Add(body)
	}
	paths := []string{"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/embeddings", "/tokenize", "/v1/messages/count_tokens", "/inference_sim/kv/claim"}
	set := quick()
	set.NumGPUBlocks, set.KVLeaseDuration = 64, 1
	peers := NewPeers()
	peers.client.Transport = unreachable{} // bodies name hosts that are not ours to call
	e, err := New(set, SystemClock(), peers)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body string) {
		for _, path := range paths {
			w := httptest.NewRecorder()
			e.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)))
			switch w.Code {
			case 200, 400, 404, 409:
			case 500:
				if !strings.Contains(body, "kv_transfer_params") && !strings.Contains(body, `\u`) {
					t.Fatalf("%s %s: %d %s", path, body, w.Code, w.Body)
				}
			default:
				t.Fatalf("%s %s: %d %s", path, body, w.Code, w.Body)
			}
			if w.Header().Get("Content-Type") == "application/json" && !json.Valid(w.Body.Bytes()) {
				t.Fatalf("%s %s: answer %s", path, body, w.Body)
			}
		}
		await(t, func() bool { s := e.Stats(); return s.Running+s.Waiting+s.BlocksPinned+s.Leases == 0 })
	})
}

// unreachable is a network in which nobody is.
type unreachable struct{}

func (unreachable) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("unreachable")
}
