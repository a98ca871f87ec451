package prompt

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// differs says where we read a body otherwise than the program whose
// behaviour golden_extract.json records, and why. Everything else there holds
// for us too: whether there is a prompt, its text (without our markers), model,
// session key and stream.
var differs = map[string]string{
	"escape_newline_in_content":        "escapes are decoded",
	"escape_unicode_in_content":        "escapes are decoded",
	"escape_quote_in_content":          "escapes are decoded",
	"one_escaped_one_plain":            "escapes are decoded",
	"surrogate_pair_escape":            "escapes are decoded",
	"escaped_model_name":               "escapes are decoded",
	"escaped_user":                     "escapes are decoded",
	"completions_array_one_escaped":    "escapes are decoded",
	"completions_string_escaped":       "escapes are decoded",
	"content_with_escaped_slash_only":  "escapes are decoded",
	"lone_surrogate_escape":            "half a surrogate pair is U+FFFD",
	"content_array_text_parts":         "parts are read",
	"message_content_array_of_strings": "parts are read",
	"content_null":                     "calls are part of the prompt",
	"legacy_function_call":             "calls are part of the prompt",
	"reasoning_and_refusal_fields":     "reasoning is part of the prompt",
	"tools_with_content_keys":          "tools are part of the prompt",
	"duplicate_model":                  "the last duplicate counts",
	"duplicate_messages":               "the last duplicate counts",
	"duplicate_content":                "the last duplicate counts",
	"stream_string":                    "a secondary member of the wrong type is absent",
	"stream_null":                      "a secondary member of the wrong type is absent",
	"stream_number":                    "a secondary member of the wrong type is absent",
	"model_number":                     "a secondary member of the wrong type is absent",
	"user_number":                      "a secondary member of the wrong type is absent",
	"path_trailing_slash":              "the model is read on every path",
	"invalid_utf8_in_ignored_field":    "UTF-8 is checked everywhere",
	"completions_token_ids":            "token ids are read",
	"completions_token_id_arrays":      "token ids are read",
	"embeddings_token_ids":             "token ids are read",
	"positional_array_request":         "an array is not an object",
	"positional_message":               "an array is not an object",
}

func TestGoldenExtract(t *testing.T) {
	data, err := os.ReadFile("../testdata/golden/golden_extract.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct {
		Name       string
		Body       string
		BodyHex    string `json:"body_hex"`
		Path       string
		Headers    map[string]string
		OK         bool
		Model      string
		PromptText string `json:"prompt_text"`
		SessionKey string `json:"session_key"`
		Stream     bool
	}
	if err := json.Unmarshal(data, &vectors); err != nil {
		t.Fatal(err)
	}
	for _, v := range vectors {
		body := []byte(v.Body)
		if v.BodyHex != "" {
			if body, err = hex.DecodeString(v.BodyHex); err != nil {
				t.Fatal(err)
			}
		}
		path, _, _ := strings.Cut(v.Path, "?")
		var r Request
		r.Parse(APIOf("POST", path), body)
		var texts []string
		for line := range strings.Lines(string(r.Text)) {
			if !strings.HasPrefix(line, "\x01") {
				texts = append(texts, line)
			}
		}
		session := string(r.Session)
		if key := v.Headers["x-calinix-session-key"]; key != "" {
			session = key // the header's affair
		}
		text := strings.TrimSpace(strings.Join(texts, ""))
		same := !r.OK
		if v.OK {
			same = (r.OK || v.PromptText == "") && text == strings.TrimSpace(v.PromptText) &&
				string(r.Model) == v.Model && session == v.SessionKey && r.Stream == v.Stream
		}
		checkParse(t, &r, r.API, body)
		if reason := differs[v.Name]; same != (reason == "") {
			t.Errorf("%s: %.300q\n got OK %v model %q text %q session %q stream %v\nwant %v %q %q %q %v, differs on purpose: %q",
				v.Name, body, r.OK, r.Model, text, session, r.Stream, v.OK, v.Model, v.PromptText, v.SessionKey, v.Stream, reason)
		}
	}
}
