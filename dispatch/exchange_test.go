package dispatch

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
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

			prefill, err := c.Prefill(nil, apis[settings["api"]], client)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := plainly(t, prefill), plainly(t, parts["prefill leg"]); got != want {
				t.Errorf("prefill leg\n got %s\nwant %s", got, want)
			}
			h, err := c.ReadPrefill(parts["prefill reply"])
			if err != nil {
				t.Fatal(err)
			}
			if got, want := string(h), string(parts["handover"]); got != want {
				t.Errorf("handover\n got %s\nwant %s", got, want)
			}
			decode, err := c.Decode(nil, client, h)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := plainly(t, decode), plainly(t, parts["decode leg"]); got != want {
				t.Errorf("decode leg\n got %s\nwant %s", got, want)
			}
			if h != nil && !bytes.Contains(decode, h) {
				t.Error("the decode leg does not hold the handover byte for byte")
			}
			if !bytes.Equal(client, before) {
				t.Error("the client's body was changed")
			}
		})
	}
}

// readExchange reads a file of settings ("name value") and parts that begin
// with "-- name --".
func readExchange(t *testing.T, file string) (settings map[string]string, parts map[string][]byte) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	settings, parts = map[string]string{}, map[string][]byte{}
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
			key, value, _ := strings.Cut(line, " ")
			settings[key] = value
		}
	}
	return settings, parts
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
		got, err := plain{}.Prefill(nil, apis[c.api], []byte(c.client))
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
	for _, name := range []string{"nixl", "plain"} {
		c, err := New(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, api := range []prompt.API{prompt.Other, prompt.Embeddings} {
			if _, err := c.Prefill(nil, api, []byte(`{}`)); err == nil {
				t.Errorf("%s: API %d got a prefill leg", name, api)
			}
		}
		for _, body := range []string{"", "null", "[]", `"x"`, `{`, `{"a":}`, `{"a":1}x`, `{"a":1,}`, "{\"a\":\"\xff\"}"} {
			if _, err := c.Prefill(nil, prompt.Chat, []byte(body)); err == nil {
				t.Errorf("%s: %q got a prefill leg", name, body)
			}
			if _, err := c.Decode(nil, []byte(body), nil); err == nil {
				t.Errorf("%s: %q got a decode leg", name, body)
			}
		}
	}
	for _, reply := range []string{
		"", "null", "[]", "<html>", `{"kv_transfer_params":{"a":1}`, `{"kv_transfer_params":{"a":1}}}`,
		`{"kv_transfer_params":"x"}`, `{"kv_transfer_params":[1]}`, `{"kv_transfer_params":1}`, `{"kv_transfer_params":true}`,
	} {
		if h, err := (nixl{}).ReadPrefill([]byte(reply)); err == nil {
			t.Errorf("reply %q was taken: %q", reply, h)
		}
	}
	for _, reply := range []string{" {\n} ", `{"kv_transfer_params": null }`, `{"choices":[{"kv_transfer_params":{"a":1}}]}`, `{"kv_transfer_params":{"a":1},"kv_transfer_params":null}`} {
		if h, err := (nixl{}).ReadPrefill([]byte(reply)); err != nil || h != nil {
			t.Errorf("reply %q: %q %v", reply, h, err)
		}
	}
	if _, err := New("mooncake"); err == nil || err.Error() != `connector "mooncake": want nixl or plain` {
		t.Errorf("unknown connector: %v", err)
	}
}

// TestDecodeIsTheClientsBody: without handover and reserved members nothing is
// even copied.
func TestDecodeIsTheClientsBody(t *testing.T) {
	body := []byte(" {\"model\" : \"m\" ,\n\"seed\":1e400 } ")
	for _, c := range []Connector{nixl{}, plain{}} {
		if got, err := c.Decode(nil, body, nil); err != nil || &got[0] != &body[0] || len(got) != len(body) {
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
		if !bytes.Equal(h, want) {
			t.Fatalf("%q: %q, want %q", reply, h, want)
		}
	})
}
