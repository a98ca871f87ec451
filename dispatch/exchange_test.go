package dispatch

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/calinix/caddy-calinix/prompt"
)

var apis = map[string]prompt.API{
	"chat": prompt.Chat, "completions": prompt.Completions,
	"responses": prompt.Responses, "messages": prompt.Messages,
}

// TestExchanges plays the exchanges of testdata/exchange, which are typed from
// what the engines' documentation and proxies say, not from this package.
// Bodies are compared but for whitespace and for how names are spelled;
// members keep their order.
func TestExchanges(t *testing.T) {
	files, err := filepath.Glob("testdata/exchange/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no exchanges", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			settings, parts := readExchange(t, file)
			c, err := New(settings["connector"])
			if err != nil {
				t.Fatal(err)
			}
			client := parts["client"]
			before := bytes.Clone(client)
			try := settings.try(t, client)

			if got := map[bool]string{true: "concurrent", false: "sequential"}[c.Traits().Concurrent]; got != settings["order"] {
				t.Errorf("legs are %s, want %s", got, settings["order"])
			}
			if got, want := c.RequestID(try), settings["x-request-id"]; got != want {
				t.Errorf("X-Request-Id %q, want %q", got, want)
			}
			prefill, err := c.Prefill(nil, try)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := plainly(t, prefill), plainly(t, parts["prefill leg"]); got != want {
				t.Errorf("prefill leg\n got %s\nwant %s", got, want)
			}
			var h Handover
			if !c.Traits().Concurrent {
				if h, err = c.ReadPrefill(parts["prefill reply"]); err != nil {
					t.Fatal(err)
				}
			}
			if got, want := string(h.Params), string(parts["handover"]); got != want {
				t.Errorf("handover\n got %s\nwant %s", got, want)
			}
			decode, err := c.Decode(nil, try, h)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := plainly(t, decode), plainly(t, parts["decode leg"]); got != want {
				t.Errorf("decode leg\n got %s\nwant %s", got, want)
			}
			if !bytes.Contains(decode, h.Params) {
				t.Error("the decode leg does not hold the handover byte for byte")
			}
			if !bytes.Equal(client, before) {
				t.Error("the client's body was changed")
			}
		})
	}
}

// settings are the head of an exchange file.
type settings map[string]string

// try is the try that the settings describe.
func (s settings) try(t *testing.T, body []byte) *Try {
	t.Helper()
	number := func(name string, otherwise int) int {
		if s[name] == "" {
			return otherwise
		}
		n, err := strconv.Atoi(s[name])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	peer := func(leg string) *Peer {
		return &Peer{
			BootstrapHost: s[leg+".bootstrap_host"], BootstrapPort: number(leg+".bootstrap_port", 0),
			KVHost: s[leg+".kv_host"], KVPort: number(leg+".kv_port", 0), EngineID: s[leg+".engine_id"],
			TPSize: number(leg+".tp_size", 1), PPSize: number(leg+".pp_size", 1),
			Rank: number(leg+".dp_rank", 0), HasRank: s[leg+".dp_rank"] != "",
		}
	}
	try := &Try{API: apis[s["api"]], Body: body, Sequences: number("sequences", 1), Prefill: peer("prefill"), Decode: peer("decode"), RequestID: s["client's x-request-id"]}
	if n, err := hex.Decode(try.ID[:], []byte(s["id"])); err != nil || s["id"] != "" && n != len(try.ID) {
		t.Fatalf("id %q: %v", s["id"], err)
	}
	return try
}

// readExchange reads a file of settings ("name: value") and parts that begin
// with "-- name --".
func readExchange(t *testing.T, file string) (head settings, parts map[string][]byte) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, parts = settings{}, map[string][]byte{}
	part := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		switch name, found := strings.CutPrefix(line, "-- "); {
		case found:
			part = strings.TrimSuffix(name, " --")
		case part != "":
			if len(parts[part]) > 0 {
				parts[part] = append(parts[part], '\n')
			}
			parts[part] = append(parts[part], line...)
		case !strings.HasPrefix(line, "#"):
			key, value, _ := strings.Cut(line, ": ")
			head[key] = value
		}
	}
	return head, parts
}

// plainly is the body without whitespace, its names in their usual spelling.
func plainly(t *testing.T, body []byte) string {
	t.Helper()
	list, ok := readMembers(body)
	if !ok {
		t.Fatalf("no JSON object: %s", body)
	}
	var b strings.Builder
	for _, m := range list {
		b.WriteString("\n  " + m.name + ": " + compact(t, m.value))
	}
	return b.String()
}

func compact(t *testing.T, body []byte) string {
	t.Helper()
	var b bytes.Buffer
	if err := json.Compact(&b, body); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return b.String()
}

// tryOf is a try of some ID at two pods.
func tryOf(api prompt.API, body string) *Try {
	return &Try{API: api, Body: []byte(body), Sequences: 1, Prefill: new(Peer), Decode: new(Peer), ID: NewID()}
}

// TestLimits: on the prefill leg every output limit that is present equals 1,
// and at least the one proper to the path is present.
func TestLimits(t *testing.T) {
	for _, c := range []struct{ api, client, want string }{
		{"chat", `{"max_completion_tokens":500}`, `{"max_completion_tokens":1,"max_tokens":1}`},
		{"chat", `{"max_tokens":500}`, `{"max_completion_tokens":1,"max_tokens":1}`},
		{"chat", `{"max_tokens":500,"max_completion_tokens":400}`, `{"max_completion_tokens":1,"max_tokens":1}`},
		{"chat", `{"max_tokens":null,"max_output_tokens":9}`, `{"max_completion_tokens":1,"max_output_tokens":1,"max_tokens":1}`},
		{"chat", `{}`, `{"max_completion_tokens":1,"max_tokens":1}`},
		{"completions", `{"max_tokens":500,"min_tokens":20,"min_completion_tokens":3}`, `{"max_tokens":1}`},
		{"completions", `{"max_completion_tokens":500}`, `{"max_completion_tokens":1,"max_tokens":1}`},
		{"completions", `{}`, `{"max_tokens":1}`},
		{"responses", `{"max_output_tokens":500}`, `{"max_output_tokens":1}`},
		{"responses", `{"max_tokens":7}`, `{"max_output_tokens":1,"max_tokens":1}`},
		{"messages", `{"max_tokens":500,"max_tokens":600}`, `{"max_tokens":1}`},
		{"messages", `{"max\u005ftokens":500}`, `{"max_tokens":1}`},
	} {
		got, err := plain{}.Prefill(nil, &Try{API: apis[c.api], Body: []byte(c.client)})
		if err != nil {
			t.Fatal(err)
		}
		var read map[string]json.RawMessage
		if err := json.Unmarshal(got, &read); err != nil {
			t.Fatal(err)
		}
		if string(read["stream"]) != "false" {
			t.Errorf("%s %s: stream is %s", c.api, c.client, read["stream"])
		}
		delete(read, "stream")
		sorted, _ := json.Marshal(read)
		if string(sorted) != c.want {
			t.Errorf("%s %s: prefill leg has %s, want %s", c.api, c.client, sorted, c.want)
		}
	}
}

// TestRefusals: what is no such request, and no such reply, is an error.
func TestRefusals(t *testing.T) {
	for name, c := range connectors {
		for _, api := range []prompt.API{prompt.Other, prompt.Embeddings} {
			if _, err := c.Prefill(nil, tryOf(api, `{}`)); err == nil {
				t.Errorf("%s: API %d got a prefill leg", name, api)
			}
		}
		for _, body := range []string{"", "null", "[]", `"x"`, `{`, `{"a":}`, `{"a":1}x`, `{"a":1,}`, "{\"a\":\"\xff\"}"} {
			if _, err := c.Prefill(nil, tryOf(prompt.Chat, body)); err == nil {
				t.Errorf("%s: %q got a prefill leg", name, body)
			}
			if _, err := c.Decode(nil, tryOf(prompt.Chat, body), Handover{}); err == nil {
				t.Errorf("%s: %q got a decode leg", name, body)
			}
		}
	}
	for _, reply := range []string{
		"", "null", "[]", "<html>", `{"kv_transfer_params":{"a":1}`, `{"kv_transfer_params":{"a":1}}}`,
		`{"kv_transfer_params":"x"}`, `{"kv_transfer_params":[1]}`, `{"kv_transfer_params":1}`, `{"kv_transfer_params":true}`,
	} {
		if h, err := (nixl{}).ReadPrefill([]byte(reply)); err == nil {
			t.Errorf("reply %q was taken: %q", reply, h.Params)
		}
	}
	for _, reply := range []string{" {\n} ", `{"kv_transfer_params": null }`, `{"choices":[{"kv_transfer_params":{"a":1}}]}`, `{"kv_transfer_params":{"a":1},"kv_transfer_params":null}`} {
		if h, err := (nixl{}).ReadPrefill([]byte(reply)); err != nil || h.Params != nil {
			t.Errorf("reply %q: %q %v", reply, h.Params, err)
		}
	}
	for _, reply := range []string{
		"", "[]", `{"disaggregated_params":"x"}`, `{"disaggregated_params":[1]}`, `{"choices":[{"disaggregated_params":1}]}`, `{"choices":[{"disaggregated_params":{}}]`,
	} {
		if h, err := (trtllm{}).ReadPrefill([]byte(reply)); err == nil {
			t.Errorf("reply %q was taken: %q", reply, h.Params)
		}
	}
	for _, reply := range []string{`{}`, `{"choices":[]}`, `{"choices":{}}`, `{"choices":[1]}`, `{"choices":[ {"disaggregated_params":null} ]}`, `{"disaggregated_params":null,"choices":null}`} {
		if h, err := (trtllm{}).ReadPrefill([]byte(reply)); err != nil || h.Params != nil {
			t.Errorf("reply %q: %q %v", reply, h.Params, err)
		}
	}
	if _, err := New("moriio"); err == nil || err.Error() != `connector "moriio": want one of mooncake, nixl, nixlPush, p2pnccl, plain, sglang, sharedStorage, trtllm` {
		t.Errorf("unknown connector: %v", err)
	}
}

// TestDecodeIsTheClientsBody: without handover and reserved members nothing is
// even copied.
func TestDecodeIsTheClientsBody(t *testing.T) {
	body := []byte(" {\"model\" : \"m\" ,\n\"seed\":1e400 } ")
	for _, c := range []Connector{nixl{}, plain{}, sharedStorage{}, p2pnccl{}, trtllm{}} {
		if got, err := c.Decode(nil, &Try{API: prompt.Chat, Body: body}, Handover{}); err != nil || &got[0] != &body[0] || len(got) != len(body) {
			t.Errorf("%T: %q %v", c, got, err)
		}
	}
}

func FuzzReadPrefill(f *testing.F) {
	for _, s := range []string{
		`{"kv_transfer_params":{"remote_block_ids":[1,2,9007199254740993]}}`,
		" {\"a\":[{\"kv_transfer_params\":1}],\n\t\"kv_transfer_params\" : {} } ",
		`{"\u006bv_transfer_params":{"a":1e400},"kv_transfer_params":null}`,
		`{"kv_transfer_params":{"a":"\ud800"}}`, `{"kv_transfer_params":"x"}`, `{}`, `[]`, `null`, "{\"\xff\":1}", `{"a":NaN}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, reply []byte) {
		h, err := nixl{}.ReadPrefill(reply)
		list, ok := readMembers(reply)
		var want json.RawMessage
		for _, m := range list {
			if m.name == kvTransferParams {
				want = m.value
			}
		}
		isNull := want == nil || string(want) == "null"
		if ok = ok && (isNull || want[0] == '{'); ok != (err == nil) {
			t.Fatalf("%q: error %v, want a good reply: %v", reply, err, ok)
		}
		if isNull || !ok {
			want = nil
		}
		if !bytes.Equal(h.Params, want) {
			t.Fatalf("%q: %q, want %q", reply, h.Params, want)
		}
	})
}
