package prompt

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/calinix/caddy-calinix/chain"
)

func TestAPIOf(t *testing.T) {
	for _, tt := range []struct {
		method, path string
		want         API
	}{
		{"POST", "/v1/chat/completions", Chat},
		{"POST", "/v1/completions", Completions},
		{"POST", "/v1/embeddings", Embeddings},
		{"POST", "/v1/responses", Responses},
		{"POST", "/v1/messages", Messages},
		{"POST", "/openai/v1/chat/completions", Chat},
		{"POST", "/v1/v1/messages", Messages},
		{"POST", "/v1/chat/completions/", Other},
		{"POST", "/v1/messages/count_tokens", Other},
		{"POST", "/v1/responses/resp_1/cancel", Other},
		{"POST", "/chat/completions", Other},
		{"POST", "/xv1/messages", Other},
		{"POST", "/v1/audio/transcriptions", Other},
		{"POST", "", Other},
		{"GET", "/v1/chat/completions", Other},
		{"GET", "/v1/responses", Other},
		{"post", "/v1/messages", Other},
	} {
		if got := APIOf(tt.method, tt.path); got != tt.want {
			t.Errorf("APIOf(%s, %s) = %d, want %d", tt.method, tt.path, got, tt.want)
		}
	}
}

// shown makes the markers of a text visible.
func shown(text []byte) string {
	return strings.NewReplacer("\x01", "^", "\n", "|").Replace(string(text))
}

// Text, by API. ^ is the marker's byte, | a newline; a hash is written as #, a
// marker with a hash that stands there 64 times as ##.
func TestText(t *testing.T) {
	for _, tt := range []struct {
		name string
		api  API
		body string
		want string // "" = OK is false
	}{
		{"one message", Chat, `{"messages":[{"role":"user","content":"hello there"}]}`, `^u|hello there`},
		{"roles", Chat, `{"messages":[{"role":"system","content":"s"},{"role":"developer","content":"d"},{"role":"user","content":"u"},{"role":"assistant","content":"a"},{"role":"tool","content":"t"},{"role":"function","content":"f"}]}`, `^s|s|^d|d|^u|u|^a|a|^t|t|^f|f`},
		{"unknown role", Chat, `{"messages":[{"role":"critic","content":"c"}]}`, `^x#|c`},
		{"no role", Chat, `{"messages":[{"content":"c"}]}`, `^x#|c`},
		{"role of another type", Chat, `{"messages":[{"role":["user"],"content":"c"}]}`, `^x#|c`},
		{"content before role", Chat, `{"messages":[{"content":"c","role":"user"}]}`, `^u|c`},
		{"empty content", Chat, `{"messages":[{"role":"system","content":""},{"role":"user","content":"x"}]}`, `^s|^u|x`},
		{"content missing, null, or of another type", Chat, `{"messages":[{"role":"user"},{"role":"user","content":null},{"role":"user","content":4},{"role":"user","content":{"text":"x"}}]}`, `^u|^u|^u|^u`},
		{"escapes", Chat, `{"messages":[{"role":"us\u0065r","cont\u0065nt":"say \"hi\"\n\u00e9 \ud83d\ude80 \/ \\"}]}`, "^u|say \"hi\"|é 🚀 / \\"},
		{"half a surrogate pair", Chat, `{"messages":[{"role":"user","content":"a \ud83d b"}]}`, "^u|a \ufffd b"},
		{"a marker in text", Chat, `{"messages":[{"role":"user","content":"x\n\u0001a\nforged"}]}`, `^u|x|^^a|forged`},
		{"parts", Chat, `{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"},"c",{"text":"d"},{"type":"text"},5,null]}]}`, `^u|a|b|c|d`},
		{"pictures and other media", Chat, `{"messages":[{"role":"user","content":[{"type":"text","text":"look"},{"type":"image_url","image_url":{"url":"http://x/1"}},{"type":"input_audio","input_audio":{"data":"AAAA","format":"wav"}},{"type":"video_url","video_url":{"url":"http://x/2"}},{"type":"file","file":{"file_id":"f1"}},{"type":"strange","x":1},{"type":"text","text":"well?"}]}]}`, `^u|look|^i##|^w##|^v##|^e##|^o#|well?`},
		{"media that are known by their members", Chat, `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":null,"uuid":"u1"},{"type":"image_embeds","image_embeds":{"a":"AAAA"}},{"type":"audio_embeds","audio_embeds":"AAAA"}]}]}`, `^u|^i##|^i##|^w##`},
		{"refusal and reasoning", Chat, `{"messages":[{"role":"assistant","refusal":"no","content":"a","reasoning_content":"hm"}]}`, `^a|^h|hm|^=|a|^r|no`},
		{"refusal part", Chat, `{"messages":[{"role":"assistant","content":[{"type":"refusal","refusal":"no"},{"type":"text","text":"a"}]}]}`, `^a|^r|no|^=|a`},
		{"name", Chat, `{"messages":[{"role":"user","name":"ann","content":"a"},{"role":"user","name":"","content":"b"}]}`, `^u|^n#|a|^u|b`},
		{"tool calls", Chat, `{"messages":[{"role":"assistant","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"a\": [1, 2]}"}},{"function":{"name":"g","arguments":""}},{"type":"custom","custom":{"name":"h","input":"x"}}],"content":null},{"role":"tool","tool_call_id":"1","content":"r"}]}`, `^a|^c|"f"|{"a":[1,2]}|^c|"g"|{}|^o#|^t|r`},
		{"arguments that are not JSON", Chat, `{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{\"a"}},{"function":{"name":"f","arguments":{"b" : "\u00e9"}}},{"function":{"name":"f"}}]}]}`, `^a|^c|"f"|"{\"a"|^c|"f"|{"b":"é"}|^c|"f"|{}`},
		{"function_call", Chat, `{"messages":[{"role":"assistant","content":"a","function_call":{"name":"f","arguments":"{}"}}]}`, `^a|a|^c|"f"|{}`},
		{"spoken answer", Chat, `{"messages":[{"role":"assistant","audio":{"id":"audio_1"}}]}`, `^a|^w##`},
		{"tools", Chat, `{"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"description":"d\u00e9\n","name":"f","strict":true,"parameters":{"type" : "object", "n": 1.0}}},{"type":"web_search","depth":3},7]}`, `^F|{"name":"f","description":"dé\n","parameters":{"type":"object","n":1.0}}|^F|{"type":"web_search","depth":3}|^u|x`},
		{"functions and documents", Chat, `{"documents":[{"text": "d"}],"functions":[{"name":"f"}],"messages":[{"role":"user","content":"x"}]}`, `^F|{"name":"f"}|^D|[{"text":"d"}]|^u|x`},
		{"members that do not matter", Chat, `{"messages":[{"role":"user","content":"x","extra":[1]}],"temperature":0,"metadata":{"messages":[{"content":"decoy"}]},"prompt":5,"tool_choice":"auto"}`, `^u|x`},
		{"duplicates", Chat, `{"messages":[{"role":"user","content":"first"}],"messages":[{"role":"tool","role":"user","content":[{"type":"text","text":"second"}],"content":"third"}]}`, `^u|third`},
		{"duplicates in parts", Chat, `{"messages":[{"role":"user","content":[{"type":"refusal","text":"a","text":"b","type":"text"}]}]}`, `^u|b`},
		{"messages missing", Chat, `{"model":"m"}`, ``},
		{"messages null", Chat, `{"messages":null}`, ``},
		{"messages empty", Chat, `{"messages":[]}`, ``},
		{"messages a string", Chat, `{"messages":"x"}`, ``},
		{"messages with another element", Chat, `{"messages":[{"role":"user","content":"x"},"y"]}`, ``},
		{"messages of another type last", Chat, `{"messages":[{"role":"user","content":"x"}],"messages":1}`, ``},
		{"a completion's body", Chat, `{"prompt":"x"}`, ``},

		{"text", Completions, `{"prompt":"once upon\n a time"}`, `once upon| a time`},
		{"texts", Completions, `{"prompt":["a b","c"]}`, `a b|^p|c`},
		{"one text in an array", Completions, `{"prompt":["a b"]}`, `a b`},
		{"ids", Completions, `{"prompt":[1,22 ,	333]}`, `1 22 333`},
		{"arrays of ids", Completions, `{"prompt":[[1,2],[3]]}`, `1 2|^p|3`},
		{"one array of ids", Completions, `{"prompt":[[ 1,2 ]]}`, `1 2`},
		{"no ids", Completions, `{"prompt":[]}`, ``},
		{"negative id", Completions, `{"prompt":[1,-2]}`, ``},
		{"fraction as id", Completions, `{"prompt":[1,2.0]}`, ``},
		{"exponent in id", Completions, `{"prompt":[1e2]}`, ``},
		{"id too long", Completions, `{"prompt":[1234567890123456789]}`, ``},
		{"mixed", Completions, `{"prompt":["a",1]}`, ``},
		{"mixed the other way", Completions, `{"prompt":[1,"a"]}`, ``},
		{"empty array of ids", Completions, `{"prompt":[[1],[]]}`, ``},
		{"empty text", Completions, `{"prompt":""}`, ``},
		{"null", Completions, `{"prompt":null}`, ``},
		{"number", Completions, `{"prompt":5}`, ``},
		{"a chat's body", Completions, `{"messages":[{"role":"user","content":"x"}]}`, ``},
		{"duplicates", Completions, `{"prompt":[1,2],"prompt":"x"}`, `x`},

		{"text", Embeddings, `{"input":"a b"}`, `a b`},
		{"ids", Embeddings, `{"input":[[1],[2]]}`, `1|^p|2`},

		{"string", Responses, `{"input":"hi"}`, `^u|hi`},
		{"instructions and tools", Responses, `{"input":[{"role":"user","content":"hi"}],"instructions":"be good","tools":[{"type":"function","name":"f","parameters":{}}]}`, `^F|{"name":"f","parameters":{}}|^s|be good|^u|hi`},
		{"empty instructions", Responses, `{"input":"hi","instructions":""}`, `^u|hi`},
		{"items", Responses, `{"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_image","image_url":"http://x/1"},{"type":"input_file","file_id":"f"}]},{"type":"reasoning","summary":[{"type":"summary_text","text":"hm"}]},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"b","annotations":[]}]},{"type":"function_call","call_id":"1","name":"f","arguments":"{}"},{"type":"function_call","name":"g","arguments":"{\"a\":1}"},{"type":"function_call_output","call_id":"1","output":"r"},{"type":"function_call_output","output":[{"type":"input_text","text":"r2"}]}]}`, `^u|a|^i##|^e##|^a|^h|hm|^=|b|^c|"f"|{}|^c|"g"|{"a":1}|^t|r|^t|r2`},
		{"calls without a message", Responses, `{"input":[{"role":"user","content":"a"},{"type":"function_call","name":"f"},{"type":"message","role":"assistant","content":"b"},{"type":"message","role":"assistant","content":"c"}]}`, `^u|a|^a|^c|"f"|{}|^=|b|^a|c`},
		{"other items", Responses, `{"input":[{"type":"item_reference","id":"i"},{"id":"j"},{"type":"web_search_call","id":"w","status":"done"},{"type":"custom_tool_call","name":"f","input":"x"},{"type":"custom_tool_call_output","output":"y"},{"type":"reasoning","encrypted_content":"zz"}]}`, `^p#|^p#|^o#|^a|^c|"f"|"x"|^t|y|^a|^h#`},
		{"stored conversation", Responses, `{"input":"hi","instructions":"s","previous_response_id":"r","conversation":{"id":"c"},"prompt":{"id":"p"}}`, `^s|s|^p#|^p#|^p#|^u|hi`},
		{"no input", Responses, `{"instructions":"s"}`, ``},
		{"input of another type", Responses, `{"input":{"role":"user"}}`, ``},
		{"empty input", Responses, `{"input":[]}`, ``},

		{"system", Messages, `{"messages":[{"role":"user","content":"hi"}],"system":"be good","max_tokens":1}`, `^s|be good|^u|hi`},
		{"system in blocks", Messages, `{"system":[{"type":"text","text":"x-anthropic-billing-header: cch=1;"},{"type":"text","text":"be","cache_control":{"type":"ephemeral"}},{"type":"text","text":"good"}],"messages":[{"role":"user","content":"hi"}]}`, `^s|be|good|^u|hi`},
		{"only a billing block", Messages, `{"system":[{"type":"text","text":"x-anthropic-billing-header: cch=1;"}],"messages":[{"role":"user","content":"hi"}]}`, `^u|hi`},
		{"a billing block elsewhere is text", Messages, `{"messages":[{"role":"user","content":[{"type":"text","text":"x-anthropic-billing-header"}]}]}`, `^u|x-anthropic-billing-header`},
		{"tools", Messages, `{"tools":[{"name":"f","description":"d","input_schema":{"a": 1},"cache_control":{}},{"type":"custom","name":"g"},{"type":"bash_20250124","name":"bash"}],"messages":[{"role":"user","content":"hi"}]}`, `^F|{"name":"f","description":"d","parameters":{"a":1}}|^F|{"name":"g"}|^F|{"name":"bash","type":"bash_20250124"}|^u|hi`},
		{"blocks", Messages, `{"messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"http://x/1"}},{"type":"text","text":"a"}]},{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"zz"},{"type":"redacted_thinking","data":"qq"},{"type":"text","text":"b"},{"type":"tool_use","id":"1","name":"f","input":{"a" : 1}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"r"},{"type":"tool_result","content":[{"type":"text","text":"r2"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}]},{"type":"text","text":"c"}]}]}`, `^u|^i##|a|^a|^h|hm|^=|b|^c|"f"|{"a":1}|^t|r|^t|r2|^i##|^u|c`},
		{"only a result", Messages, `{"messages":[{"role":"user","content":[{"type":"tool_result"}]}]}`, `^t`},
		{"Claude Code's roles", Messages, `{"messages":[{"role":"ctx","content":"a"},{"role":"msg","content":"b"},{"role":"system","content":"c"}]}`, `^u|a|^u|b|^s|c`},
		{"messages missing", Messages, `{"system":"s"}`, ``},

		{"any path", Other, `{"messages":[{"role":"user","content":"x"}],"prompt":"x","input":"x"}`, ``},
	} {
		t.Run(fmt.Sprint(tt.api, " ", tt.name), func(t *testing.T) {
			var r Request
			checkParse(t, &r, tt.api, []byte(tt.body))
			got := shown(r.Text)
			for _, letter := range "xniwveoph" {
				for at := 0; ; {
					i := strings.Index(got[at:], "^"+string(letter))
					if i < 0 {
						break
					}
					at += i + 2
					if hash := at + 11; hash <= len(got) && !strings.ContainsAny(got[at:hash], "|^") {
						got = got[:at] + "#" + got[hash:]
					}
				}
			}
			for _, letter := range "ivwe" {
				one := "^" + string(letter) + "#"
				got = strings.ReplaceAll(got, strings.Repeat(one+"|", 63)+one, one+"#")
			}
			if got != tt.want || r.OK != (tt.want != "") || !r.JSON {
				t.Errorf("%s\n got %s (OK %v, JSON %v)\nwant %s", tt.body, got, r.OK, r.JSON, tt.want)
			}
		})
	}
}

func TestMembers(t *testing.T) {
	type facts struct {
		model, salt, session, source string
		stream, usage, generates     bool
		n, prompts, ids              int
	}
	const chat = `"messages":[{"role":"user","content":"x"}]`
	for _, tt := range []struct {
		api  API
		body string
		want facts
	}{
		{Chat, `{"model":"acme\/chat-1","cache_salt":"s\u00e9",` + chat + `}`, facts{model: "acme/chat-1", salt: "sé", generates: true, n: 1, prompts: 1}},
		{Chat, `{"model":"a","model":"b",` + chat + `}`, facts{model: "b", generates: true, n: 1, prompts: 1}},
		{Chat, `{"model":"a","model":7,"cache_salt":1,"user":2,"stream":"yes","n":"2","stream_options":[],` + chat + `}`, facts{generates: true, n: 1, prompts: 1}},
		{Chat, `{"model":null,"cache_salt":null,"user":null,"stream":null,"n":null,"stream_options":null,` + chat + `}`, facts{generates: true, n: 1, prompts: 1}},
		{Chat, `{"stream":true,"stream_options":{"include_usage":true},"n":2,` + chat + `}`, facts{stream: true, usage: true, n: 2, prompts: 1}},
		{Chat, `{"stream":false,"stream_options":{"include_usage":true},"stream_options":{},"n":0,` + chat + `}`, facts{prompts: 1}},
		{Chat, `{"n":1.0,` + chat + `}`, facts{generates: true, n: 1, prompts: 1}},
		{Chat, `{"user":"u","safety_identifier":"i","prompt_cache_key":"k","session_id":"s",` + chat + `}`, facts{session: "s", source: "session_id", generates: true, n: 1, prompts: 1}},
		{Chat, `{"user":"u","safety_identifier":"i","prompt_cache_key":"k","session_id":"",` + chat + `}`, facts{session: "k", source: "prompt_cache_key", generates: true, n: 1, prompts: 1}},
		{Chat, `{"user":"u\n","safety_identifier":"i","prompt_cache_key":5,` + chat + `}`, facts{session: "i", source: "safety_identifier", generates: true, n: 1, prompts: 1}},
		{Chat, `{"user":"jos\u00e9",` + chat + `}`, facts{session: "josé", source: "user", generates: true, n: 1, prompts: 1}},
		{Chat, `{"model":"m","user":"u","stream":true,"messages":5}`, facts{model: "m", session: "u", source: "user", stream: true, n: 1}},
		{Other, `{"model":"m","user":"u","stream":true}`, facts{model: "m", session: "u", source: "user", stream: true, n: 1}},
		{Completions, `{"prompt":"x"}`, facts{generates: true, n: 1, prompts: 1}},
		{Completions, `{"prompt":"x","best_of":3}`, facts{n: 3, prompts: 1}},
		{Completions, `{"prompt":["x","y"]}`, facts{n: 1, prompts: 2}},
		{Completions, `{"prompt":[[5,6],[7]]}`, facts{n: 1, prompts: 2, ids: 3}},
		{Completions, `{"prompt":[5,6]}`, facts{generates: true, n: 1, prompts: 1, ids: 2}},
		{Embeddings, `{"input":"x"}`, facts{n: 1, prompts: 1}},
		{Responses, `{"input":"x"}`, facts{generates: true, n: 1, prompts: 1}},
		{Messages, `{"messages":[{"role":"user","content":"x"}],"metadata":{"user_id":"u"}}`, facts{generates: true, n: 1, prompts: 1}},
	} {
		var r Request
		checkParse(t, &r, tt.api, []byte(tt.body))
		got := facts{string(r.Model), string(r.CacheSalt), string(r.Session), r.SessionSource, r.Stream, r.IncludeUsage, r.Generates, r.N, r.Prompts, r.TokenIDs}
		if got != tt.want {
			t.Errorf("%s\n got %+v\nwant %+v", tt.body, got, tt.want)
		}
	}
}

// What is not one JSON object leaves nothing, and breaks nothing.
func TestNotJSON(t *testing.T) {
	const good = `{"model":"m","user":"u","n":2,"stream":true,"messages":[{"role":"user","content":"hello \n there"}],"tools":[{"name":"f"}]}`
	bad := []string{
		``, ` `, `null`, `[]`, `"x"`, `not json`, `{`, good + `x`, good + good, "\ufeff" + good, `[` + good + `]`,
		strings.Replace(good, "hello", "hel\x00lo", 1), strings.Replace(good, "hello", "hel\xfflo", 1),
		strings.Replace(good, `"m"`, "\"m\xff\"", 1), strings.Replace(good, `\n`, `\x`, 1), strings.Replace(good, `2`, `02`, 1),
		strings.Replace(good, `}]`, `},]`, 1), "--boundary\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n\x00\x01",
	}
	for i := 1; i < len(good); i++ {
		bad = append(bad, good[:i])
	}
	var r Request
	for _, body := range bad {
		for api := Other; api <= Messages; api++ {
			r.Parse(api, []byte(good))
			checkParse(t, &r, api, []byte(body))
			if r.JSON || r.OK || len(r.Text) > 0 || r.Model != nil || r.N != 1 || r.API != api {
				t.Fatalf("%q: %+v", body, r)
			}
		}
	}
}

// The same conversation has the same text and seed in each API that can say
// it.
func TestSameInEachAPI(t *testing.T) {
	same := []struct {
		api  API
		body string
	}{
		{Chat, `{"model":"m","messages":[
			{"role":"system","content":"You are\nhelpful."},
			{"role":"user","content":[{"type":"text","text":"What is this?"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]},
			{"role":"assistant","content":"Let me see.","reasoning_content":"Hm.","tool_calls":[{"id":"c1","type":"function","function":{"name":"zoom","arguments":"{\"x\": 2}"}}]},
			{"role":"tool","tool_call_id":"c1","content":"A cat \u2013 black."},
			{"role":"user","content":"Thanks."}],
			"tools":[{"type":"function","function":{"name":"zoom","description":"Zooms in.","parameters":{"type":"object","properties":{"x":{"type":"integer"}}}}}]}`},
		{Responses, `{"model":"m","instructions":"You are\nhelpful.","input":[
			{"role":"user","content":[{"type":"input_text","text":"What is this?"},{"type":"input_image","image_url":"data:image/png;base64,AAAA","detail":"auto"}]},
			{"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"Hm."}]},
			{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[{"type":"output_text","text":"Let me see.","annotations":[]}]},
			{"type":"function_call","id":"fc_1","call_id":"c1","name":"zoom","arguments":"{\"x\":2}"},
			{"type":"function_call_output","call_id":"c1","output":"A cat – black."},
			{"type":"message","role":"user","content":"Thanks."}],
			"tools":[{"type":"function","strict":true,"name":"zoom","description":"Zooms in.","parameters":{"type":"object","properties":{"x":{"type":"integer"}}}}]}`},
		{Messages, `{"model":"m","max_tokens":100,"system":[{"type":"text","text":"You are\nhelpful.","cache_control":{"type":"ephemeral"}}],"messages":[
			{"role":"user","content":[{"type":"text","text":"What is this?"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}]},
			{"role":"assistant","content":[{"type":"thinking","thinking":"Hm.","signature":"s"},{"type":"text","text":"Let me see."},{"type":"tool_use","id":"toolu_1","name":"zoom","input":{"x":2}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":[{"type":"text","text":"A cat – black."}]},{"type":"text","text":"Thanks."}]}],
			"tools":[{"name":"zoom","description":"Zooms in.","input_schema":{"type":"object","properties":{"x":{"type":"integer"}}}}]}`},
	}
	var first Request
	first.Parse(Chat, []byte(same[0].body))
	for _, tt := range same {
		var r Request
		checkParse(t, &r, tt.api, []byte(tt.body))
		if !r.OK || !bytes.Equal(r.Text, first.Text) || r.Seed != first.Seed || r.Key() != first.Key() || !bytes.Equal(r.System, first.System) {
			t.Errorf("API %d:\n got %s\nwant %s", tt.api, shown(r.Text), shown(first.Text))
		}
	}
	if got, want := string(first.System), "\x01s\nYou are\nhelpful."; got != want {
		t.Errorf("System %q, want %q", got, want)
	}
}

// The chain has one token a turn more than the contents have words.
func TestTokensOfTurns(t *testing.T) {
	var r Request
	r.Parse(Chat, []byte(`{"messages":[{"role":"system","content":"one two"},{"role":"user","content":"three four\nfive"},{"role":"assistant","content":""},{"role":"user","content":"six"}]}`))
	var c chain.Chain
	c.Reset(chain.Options{BlockSize: 1, MaxTokenBytes: 16}, r.Seed, r.Text)
	if got := c.Complete(); got != 6+4 {
		t.Errorf("%d tokens in %s", got, shown(r.Text))
	}
}

// What separates prompts, and what does not.
func TestIdentity(t *testing.T) {
	var a, b Request
	differ := func(first, second string) bool {
		a.Parse(Chat, []byte(first))
		b.Parse(Chat, []byte(second))
		if !a.OK || !b.OK {
			t.Fatalf("not OK: %s %s", first, second)
		}
		return a.Seed != b.Seed || !bytes.Equal(a.Text, b.Text)
	}
	with := func(members string) string { return `{"messages":[{"role":"user","content":"x"}]` + members + `}` }
	content := func(content string) string { return `{"messages":[{"role":"user","content":` + content + `}]}` }
	for _, pair := range [][2]string{
		{with(`,"model":"a"`), with(`,"model":"b"`)},
		{with(`,"cache_salt":"a"`), with(`,"cache_salt":"b"`)},
		{with(`,"cache_salt":["a"]`), with(`,"cache_salt":["b"]`)},
		{with(`,"model":"a"`), with(`,"cache_salt":"a"`)},
		{with(`,"lora_path":"a"`), with(``)},
		{with(`,"extra_key":"a"`), with(`,"lora_path":"a"`)},
		{with(`,"chat_template":"a"`), with(`,"chat_template":"b"`)},
		{with(`,"chat_template_kwargs":{"enable_thinking":false}`), with(``)},
		{with(`,"reasoning_effort":"low"`), with(`,"reasoning_effort":"high"`)},
		{with(`,"tools":[{"name":"f"}]`), with(`,"tools":[{"name":"g"}]`)},
		{content(`[{"type":"image_url","image_url":{"url":"http://x/1"}}]`), content(`[{"type":"image_url","image_url":{"url":"http://x/2"}}]`)},
		{content(`[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAB"}}]`), content(`[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAC"}}]`)},
		{content(`[{"type":"thinking","thinking":"a b"},{"type":"text","text":"c"}]`), content(`[{"type":"thinking","thinking":"a"},{"type":"text","text":"b c"}]`)},
		{content(`"\u0001a"`), `{"messages":[{"role":"user","content":""},{"role":"assistant","content":""}]}`},
		{`{"messages":[{"role":"user","content":"x"}]}`, `{"messages":[{"role":"assistant","content":"x"}]}`},
	} {
		if !differ(pair[0], pair[1]) {
			t.Errorf("the same: %s\n%s", pair[0], pair[1])
		}
	}
	for _, pair := range [][2]string{
		{with(``), with(`,"temperature":1,"stream":true,"user":"u","max_tokens":5,"tool_choice":"none","metadata":{"a":1}`)},
		{with(`,"chat_template_kwargs":{"a": 1}`), with(` ,  "chat_template_kwargs" : {"a":1}`)},
		{with(`,"chat_template_kwargs":null,"cache_salt":""`), with(``)},
		{content(`"x"`), content(`[{"type":"text","text":"x","cache_control":{"type":"ephemeral"}}]`)},
		{content(`"\u0078"`), content(`"x"`)},
		{content(`[{"type":"image_url","image_url":{"url":"http:\/\/x"}}]`), content(`[{"image_url":{"detail":"low","url":"http://x"},"type":"image_url"}]`)},
	} {
		if differ(pair[0], pair[1]) {
			t.Errorf("not the same: %s\n%s", pair[0], pair[1])
		}
	}
	a.Parse(Completions, []byte(`{"prompt":[12,13]}`))
	b.Parse(Completions, []byte(`{"prompt":"12 13"}`))
	if !bytes.Equal(a.Text, b.Text) || a.Seed == b.Seed || a.Tokens() != 2 || b.Tokens() != chain.EstimateTokens(5) {
		t.Errorf("ids and their spelling: %q %x %d, %q %x %d", a.Text, a.Seed, a.Tokens(), b.Text, b.Seed, b.Tokens())
	}
	b.Parse(Completions, []byte(`{"prompt":"plain text"}`))
	if b.Seed != 0 {
		t.Errorf("seed %x without a namespace, want 0", b.Seed)
	}
}

// A conversation's text begins with the text of its earlier turns, byte for
// byte, whichever way it grows.
func TestGrowth(t *testing.T) {
	turns := []string{
		`{"role":"system","content":"s"}`, `{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"u"}}]}`,
		`{"role":"assistant","content":null,"tool_calls":[{"function":{"name":"f","arguments":"{}"}}]}`, `{"role":"tool","content":"r"}`,
		`{"role":"assistant","content":"b","reasoning":"h"}`, `{"role":"user","content":""}`, `{"role":"assistant","content":"c"}`,
	}
	var before []byte
	for n := range turns {
		var r Request
		r.Parse(Chat, []byte(`{"messages":[`+strings.Join(turns[:n+1], ",")+`]}`))
		if !bytes.HasPrefix(r.Text, before) || len(r.Text) <= len(before) {
			t.Errorf("%d turns: %s, before %s", n+1, shown(r.Text), shown(before))
		}
		before = bytes.Clone(r.Text)
	}
}

func TestKey(t *testing.T) {
	key := func(model, content string) uint64 {
		var r Request
		r.Parse(Chat, fmt.Appendf(nil, `{"model":%q,"messages":[{"role":"user","content":%q}]}`, model, content))
		return r.Key()
	}
	long := strings.Repeat("word ", 1000)
	keys := map[uint64]string{}
	for _, c := range []struct{ model, content string }{
		{"m", "a"},
		{"m", "b"},
		{"n", "a"},
		{"m", long + "a"},
		{"m", long + "b"},
		{"m", "x" + long + "a"},
		{"m", "1" + long},
		{"m", "2" + long},
		{"m", strings.Repeat("3rd ", 200) + long},
		{"m", strings.Repeat("4th ", 200) + long},
		{"m", long + strings.Repeat("5th ", 200) + long},
		{"m", long + strings.Repeat("6th ", 200) + long},
	} {
		k := key(c.model, c.content)
		if k != key(c.model, c.content) {
			t.Errorf("%s %.10s: not fixed", c.model, c.content)
		}
		if other, ok := keys[k]; ok {
			t.Errorf("%s %.10s and %s: the same key", c.model, c.content, other)
		}
		keys[k] = c.model + " " + c.content[:1]
	}
}
