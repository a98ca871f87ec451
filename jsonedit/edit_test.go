package jsonedit

import (
	"errors"
	"strings"
	"testing"

	"github.com/calinix/caddy-calinix/internal/jsonscan"
)

func set(name, value string) Edit { return Edit{Name: name, Value: []byte(value)} }
func remove(name string) Edit     { return Edit{Name: name} }
func fold(name string) Edit       { return Edit{Name: name, Fold: true} }

func TestApply(t *testing.T) {
	for _, tt := range []struct {
		name, body string
		edits      []Edit
		want       string
	}{
		{"no edit", ` {"a" : 1.0} `, nil, ` {"a" : 1.0} `},
		{"nothing to do", `{"a":1}`, []Edit{remove("b")}, `{"a":1}`},
		{"replace", `{"a":1,"b":2}`, []Edit{set("a", `[3]`)}, `{"a":[3],"b":2}`},
		{"replace keeps spaces", "{ \"a\" :\t1 , \"b\": 2 }\n", []Edit{set("a", `3`)}, "{ \"a\" :\t3 , \"b\": 2 }\n"},
		{"replace by null", `{"a":1}`, []Edit{set("a", `null`)}, `{"a":null}`},
		{"add", `{"a":1}`, []Edit{set("b", `{"x":9007199254740993}`)}, `{"a":1,"b":{"x":9007199254740993}}`},
		{"add after the last value", "{\n  \"a\": 1\n}\n", []Edit{set("b", `2`)}, "{\n  \"a\": 1,\"b\":2\n}\n"},
		{"add two", `{"a":1}`, []Edit{set("b", `2`), set("c", `3`)}, `{"a":1,"b":2,"c":3}`},
		{"add to the empty object", `{}`, []Edit{set("b", `2`)}, `{"b":2}`},
		{"add to the empty object with a space", ` { } `, []Edit{set("b", `2`), set("c", `3`)}, ` {"b":2,"c":3 } `},
		{"add a name that needs escapes", `{}`, []Edit{set("a\"\\\n\x01é", `2`)}, `{"a\"\\\u000a\u0001é":2}`},
		{"remove the first", `{"a":1, "b":2,"c":3}`, []Edit{remove("a")}, `{"b":2,"c":3}`},
		{"remove one in the middle", `{"a":1, "b":2 ,"c":3}`, []Edit{remove("b")}, `{"a":1 ,"c":3}`},
		{"remove the last", `{"a":1 , "b":2 }`, []Edit{remove("b")}, `{"a":1  }`},
		{"remove the only one", `{ "a" : {"a":1} }`, []Edit{remove("a")}, `{  }`},
		{"remove the first two", `{ "a":1 , "b":2 , "c":3 }`, []Edit{remove("a"), remove("b")}, `{ "c":3 }`},
		{"remove the last two", `{"a":1,"b":2,"c":3}`, []Edit{remove("c"), remove("b")}, `{"a":1}`},
		{"remove the outer ones", `{"a":1,"b":2,"c":3}`, []Edit{remove("a"), remove("c")}, `{"b":2}`},
		{"remove all", `{"a":1,"b":2,"c":3}`, []Edit{remove("a"), remove("b"), remove("c")}, `{}`},
		{"remove all and add", `{"a":1,"b":2}`, []Edit{remove("a"), set("d", `4`), remove("b")}, `{"d":4}`},
		{"remove, replace and add in one pass", `{"a":1,"b":2,"c":3}`, []Edit{remove("b"), set("c", `[]`), set("d", `4`)}, `{"a":1,"c":[],"d":4}`},
		{"duplicates removed", `{"a":1,"b":2,"a":3}`, []Edit{remove("a")}, `{"b":2}`},
		{"duplicates: the last is replaced, the others go", `{"a":1,"b":2,"a":3,"c":4,"a":5}`, []Edit{set("a", `0`)}, `{"b":2,"c":4,"a":0}`},
		{"duplicates in other spellings", `{"a":1,"\u0061":2,"b":3}`, []Edit{set("a", `0`)}, `{"\u0061":0,"b":3}`},
		{"escaped name", `{"\u006bv_transfer_params":{"x":1},"b":3}`, []Edit{remove("kv_transfer_params")}, `{"b":3}`},
		{"escaped name of another member", `{"\u006b\u006b":1}`, []Edit{remove("k")}, `{"\u006b\u006b":1}`},
		{"case matters", `{"A":1,"a":2}`, []Edit{remove("a")}, `{"A":1}`},
		{"case folded", `{"A":1,"\u0041":0,"b":3,"a":2}`, []Edit{fold("a")}, `{"b":3}`},
		{"case folded as Unicode does", "{\"\u212av\":1,\"\\u212aV\":1,\"x\":2}", []Edit{fold("kv")}, `{"x":2}`},
		{"case folded, the exact name set", `{"KV":1,"kv":2,"Kv":3}`, []Edit{{Name: "kv", Value: []byte(`0`), Fold: true}}, `{"kv":0}`},
		{"case folded, the exact name added", `{"KV":1}`, []Edit{{Name: "kv", Value: []byte(`0`), Fold: true}}, `{"kv":0}`},
		{"the last edit of a name counts", `{"a":1}`, []Edit{set("a", `2`), remove("a")}, `{}`},
		{"the last edit of a name counts: set", `{"a":1}`, []Edit{remove("a"), set("a", `2`), set("a", `3`)}, `{"a":3}`},
		{"the last edit of a name counts: added once", `{}`, []Edit{set("a", `2`), set("a", `3`)}, `{"a":3}`},
		{"an exact edit wins over a folding one", `{"A":1}`, []Edit{fold("a"), set("A", `2`)}, `{"A":2}`},
		{"only the top level", `{"x":{"a":1},"y":[{"a":2}]}`, []Edit{remove("a")}, `{"x":{"a":1},"y":[{"a":2}]}`},
		{"names in values", `{"x":"\"a\":1,","a":2}`, []Edit{remove("a")}, `{"x":"\"a\":1,"}`},
		{
			"numbers", `{"seed":9007199254740993,"t":1.0,"p":0.10,"b":{"12345678901234567890":1e-7},"n":1}`,
			[]Edit{set("n", `2`)},
			`{"seed":9007199254740993,"t":1.0,"p":0.10,"b":{"12345678901234567890":1e-7},"n":2}`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Apply([]byte("kept "), []byte(tt.body), tt.edits...)
			if err != nil || string(got) != "kept "+tt.want {
				t.Errorf("Apply(%s) = %s, %v\nwant %s", tt.body, got, err, tt.want)
			}
			checkApply(t, []byte(tt.body), tt.edits)
		})
	}
}

func TestApplyErrors(t *testing.T) {
	for _, tt := range []struct {
		name, body string
		edit       Edit
		want       string
	}{
		{"empty", ``, remove("a"), `jsonedit: malformed JSON: the text ends at byte 0: want a value`},
		{"cut off", `{"a":1`, remove("a"), `jsonedit: malformed JSON: the text ends at byte 6: want a comma or the closing bracket`},
		{"trailing", `{"a":1}}`, remove("a"), `jsonedit: malformed JSON at byte 7: data after the end of the value`},
		{"fault after the edit", `{"a":1,"b":tru}`, remove("a"), `jsonedit: malformed JSON at byte 11: want true, false or null`},
		{"fault in a nested value", `{"b":[{"c":}],"a":1}`, remove("a"), `jsonedit: malformed JSON at byte 11: want a value`},
		{"array", `[{"a":1}]`, remove("a"), `jsonedit: the value is no object: it begins with '['`},
		{"malformed array", `[`, remove("a"), `jsonedit: malformed JSON: the text ends at byte 1: want a value`},
		{"not UTF-8", "{\"a\xff\":1}", remove("a"), `jsonedit: malformed JSON at byte 3: not UTF-8`},
		{"value", `{"a":1}`, set("b", `{`), `jsonedit: value for "b": malformed JSON: the text ends at byte 1: want a member name in quotes`},
		{"empty value", `{"a":1}`, set("b", ``), `jsonedit: value for "b": malformed JSON: the text ends at byte 0: want a value`},
		{"name", `{"a":1}`, set("\xff", `1`), `jsonedit: name "\xff" is not UTF-8`},
		{"deep", strings.Repeat(`{"a":`, jsonscan.MaxDepth+1), remove("a"), `jsonedit: malformed JSON at byte 50000: nested too deep`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Apply([]byte("kept"), []byte(tt.body), tt.edit)
			if err == nil || err.Error() != tt.want || string(got) != "kept" {
				t.Errorf("%q, %v\nwant %s", got, err, tt.want)
			}
			if tt.edit.Value == nil && !strings.Contains(tt.want, "no object") {
				if syntax := new(jsonscan.SyntaxError); !errors.As(err, &syntax) {
					t.Errorf("%T is no SyntaxError", err)
				}
				if _, _, err := Member([]byte(tt.body), "a"); err == nil || err.Error() != tt.want {
					t.Errorf("Member: %v", err)
				}
			}
		})
	}
}

func TestMember(t *testing.T) {
	for _, tt := range []struct {
		body, name, want string
		ok               bool
	}{
		{`{"a":1}`, "a", `1`, true},
		{`{"a":1}`, "b", ``, false},
		{`{}`, "a", ``, false},
		{` { "a" : {"b": [1, 2]} , "c":3}`, "a", `{"b": [1, 2]}`, true},
		{`{"a":1,"a":null}`, "a", `null`, true},
		{`{"a":1,"\u0061":2}`, "a", `2`, true},
		{`{"":1}`, "", `1`, true},
		{`{"x":{"a":1}}`, "a", ``, false},
		{`{"A":1}`, "a", ``, false},
		{`{"kv":[1,9007199254740993]}`, "kv", `[1,9007199254740993]`, true},
	} {
		got, ok, err := Member([]byte(tt.body), tt.name)
		if string(got) != tt.want || ok != tt.ok || err != nil {
			t.Errorf("Member(%s, %s) = %s, %v, %v", tt.body, tt.name, got, ok, err)
		}
	}
}

func TestAllocations(t *testing.T) {
	body := []byte(`{"model":"m","messages":[{"role":"user","content":"hello\nthere"}],"stream":true,"stream_options":{"include_usage":true},"\u006bv_transfer_params":{},"max_tokens":5}`)
	edits := []Edit{set("max_tokens", "1"), set("stream", "false"), remove("stream_options"), {Name: "kv_transfer_params", Fold: true, Value: []byte(`{"do_remote_decode":true}`)}, set("max_completion_tokens", "1")}
	buf := make([]byte, 0, 1024)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := Apply(buf, body, edits...); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("into a buffer that is large enough: %v allocations", n)
	}
	if n := testing.AllocsPerRun(100, func() {
		if _, err := Apply(nil, body, edits...); err != nil {
			t.Fatal(err)
		}
	}); n != growAllocations {
		t.Errorf("without a buffer: %v allocations", n)
	}
	if n := testing.AllocsPerRun(100, func() {
		if _, _, err := Member(body, "kv_transfer_params"); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("Member: %v allocations", n)
	}
}

// A hundred thousand duplicates, or members, take no more than linear time: a
// quadratic Apply would need minutes.
func TestMany(t *testing.T) {
	const n = 100000
	body := []byte(`{"b":0` + strings.Repeat(`,"a":1,"\u0061":2`, n) + `}`)
	got, err := Apply(nil, body, set("a", "3"), fold("B"))
	if want := `{"\u0061":3}`; err != nil || string(got) != want {
		t.Errorf("%.80s, %v", got, err)
	}
}
