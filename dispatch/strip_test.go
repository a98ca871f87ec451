package dispatch

import (
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"

	"pgregory.net/rapid"

	"github.com/calinix/caddy-calinix/prompt"
)

func TestStrip(t *testing.T) {
	for body, want := range map[string]string{
		`{"a":1,"kv_transfer_params":{"x":[1,{}]},"b":2}`:     `{"a":1,"b":2}`,
		`{"kv_transfer_params":1,"kv_transfer_params":2}`:     `{}`,
		`{"\u006b\u0076_transfer_params":1,"a":1.0}`:          `{"a":1.0}`,
		`{"KV_TRANSFER_PARAMS":1,"Bootstrap_Host":"h","a":1}`: `{"a":1}`,
		"{\"\u212av_tran\u017ffer_params\":1,\"a\":1}":        `{"a":1}`, // as encoding/json folds
		`{"bootstrap_port":1,"bootstrap_room":[1,2]}`:         `{}`,
		`{"disaggregated_params":null}`:                       `{}`,
		`{"Ec_transfer_params":{}}`:                           `{}`,
	} {
		got, changed, err := Strip(nil, []byte(body))
		if err != nil || !changed || compact(t, got) != want {
			t.Errorf("%s: %s %v %v, want %s", body, got, changed, err, want)
		}
	}
	for _, body := range []string{
		`{"messages":[{"kv_transfer_params":1}],"x":"kv_transfer_params"}`, // not at the top
		`{"kv_transfer_param":1," kv_transfer_params":2}`,
		`[{"kv_transfer_params":1}]`, `"kv_transfer_params"`, "", "kv_transfer_params", "<kv_transfer_params>",
		"--boundary\r\nContent-Disposition: form-data\r\n\r\n{\"kv_transfer_params\":1}",
		`{"a":NaN}`, `{"prompt":"`, `{"a":1}{"b":2}`, "{\"a\":\"\xff\"}", "{kv_transfer_\nparams:1}", `{"\u006b\u00`, "{\\",
	} {
		got, changed, err := Strip(nil, []byte(body))
		if err != nil || changed || string(got) != body {
			t.Errorf("%s: %s %v %v, want it untouched", body, got, changed, err)
		}
	}
}

// TestStripAppends: what stood in dst stays.
func TestStripAppends(t *testing.T) {
	got, _, err := Strip([]byte("before"), []byte(`{"bootstrap_room":1}`))
	if err != nil || string(got) != "before{}" {
		t.Errorf("%s %v", got, err)
	}
}

// TestCarried: what vLLM copies to where reserved members lie may not name one.
func TestCarried(t *testing.T) {
	for _, body := range []string{
		`{"vllm_xargs":{"kv_transfer_params":"x"}}`,
		`{"vllm_xargs":{"a":1,"\u006bv_transfer_params":["x"]},"vllm_xargs":{}}`,
		`{"VLLM_xargs":{"EC_TRANSFER_PARAMS":{}},"kv_transfer_params":1}`,
		`{"token_ids":[1],"sampling_params":{"extra_args":{"kv_transfer_params":{"do_remote_prefill":true}}}}`,
		`{"extra_args":[{"bootstrap_room":1}]}`,
	} {
		if got, _, err := Strip(nil, []byte(body)); !errors.Is(err, ErrCarried) {
			t.Errorf("%s: %s %v", body, got, err)
		}
	}
	for _, body := range []string{`{"vllm_xargs":{"top_n":3}}`, `{"sampling_params":{"n":1},"messages":[{"kv_transfer_params":1}]}`} {
		if _, changed, err := Strip(nil, []byte(body)); err != nil || changed {
			t.Errorf("%s: %v %v", body, changed, err)
		}
	}
}

// TestAddressed: a request_id from which an engine would read addresses.
func TestAddressed(t *testing.T) {
	for _, body := range []string{
		`{"request_id":"___prefill_addr_192.0.2.9:1___decode_addr_192.0.2.9:2_x"}`,
		`{"request_id":"\u005f__prefill\u005faddr\u005f192.0.2.9:1"}`,
		`{"request\u005fid":["_addr_"],"request_id":"fine"}`,
	} {
		if got, _, err := Strip(nil, []byte(body)); !errors.Is(err, ErrAddressed) {
			t.Errorf("%s: %s %v", body, got, err)
		}
	}
	if _, changed, err := Strip(nil, []byte(`{"request_id":"chatcmpl-1","user":"_addr_"}`)); err != nil || changed {
		t.Errorf("a usual id: %v %v", changed, err)
	}
}

// TestTooManyMembers: far more than any client has cause to send.
func TestTooManyMembers(t *testing.T) {
	body := func(n int) []byte { return []byte(`{"a":0` + strings.Repeat(`,"":0`, n-1) + `}`) }
	if _, changed, err := Strip(nil, body(maxMembers)); err != nil || changed {
		t.Errorf("as many as may be: %v %v", changed, err)
	}
	if _, _, err := Strip(nil, body(maxMembers+1)); !errors.Is(err, errTooMany) {
		t.Errorf("one more: %v", err)
	}
}

// TestReservedInWhatIsNoJSON: Python's json module, for one, reads all but the
// last few of these, and finds the member.
func TestReservedInWhatIsNoJSON(t *testing.T) {
	const object = `{"a":1,"kv_transfer_params":{"remote_host":"192.0.2.9"}}`
	wide := func(order binary.AppendByteOrder, size int, bom bool) string {
		units := utf16.Encode([]rune(object))
		if bom {
			units = append([]uint16{0xfeff}, units...)
		}
		var b []byte
		for _, u := range units {
			if size == 2 {
				b = order.AppendUint16(b, u)
			} else {
				b = order.AppendUint32(b, uint32(u))
			}
		}
		return string(b)
	}
	bodies := map[string]string{
		"NaN":                `{"temperature":NaN,"kv_transfer_params":{}}`,
		"byte order mark":    "\ufeff" + object,
		"trailing":           object + "x",
		"escaped":            `{"a":Infinity,"\u006bv\u005Ftransfer_params":{}}`,
		"upper case":         `{"a":-Infinity,"BOOTSTRAP_ROOM":1}`,
		"escaped upper case": `{"a":NaN,"\u004BV_TRANSFER_PARAM\u0053":{}}`,
		"bad escape":         `{"a":NaN,"\u00kv_transfer_params":{}}`,
		"bad UTF-8":          "{\"a\":\"\xed\xa0\x80\",\"disaggregated_params\":1}",
		"single quotes":      `{'bootstrap_host':1}`,
		"comment":            "/* x */ " + object,
		"line comments":      "// x\n# y\n" + object,
		"hash comment":       "# x\n" + object,
		"deep":               `{"bootstrap_port":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`,
	}
	for name, order := range map[string]binary.AppendByteOrder{"LE": binary.LittleEndian, "BE": binary.BigEndian} {
		for _, size := range []int{2, 4} {
			bodies["UTF-"+map[int]string{2: "16", 4: "32"}[size]+name] = wide(order, size, false)
			bodies["UTF-"+map[int]string{2: "16", 4: "32"}[size]+name+" with mark"] = wide(order, size, true)
		}
	}
	for name, body := range bodies {
		if got, _, err := Strip(nil, []byte(body)); !errors.Is(err, ErrReserved) {
			t.Errorf("%s: passed on: %.40q %v", name, got, err)
		}
	}
	// Wherever it lies in a long body.
	for pad := range 300 {
		body := `{"a":NaN,"` + strings.Repeat("x", 3900+pad) + `":"","kv_tr\u0061nsfer_params":1,"` + strings.Repeat("y", 5000) + `":1}`
		if _, _, err := Strip(nil, []byte(body)); !errors.Is(err, ErrReserved) {
			t.Fatalf("after %d bytes: %v", 3900+pad, err)
		}
	}
}

func FuzzStrip(f *testing.F) {
	for _, s := range []string{
		`{"a":1,"kv_transfer_params":{},"b":[1.0,9007199254740993]}`,
		`{"\u006bv_transfer_params":1,"KV_TRANSFER_PARAMS":2}`,
		"\ufeff{\"bootstrap_room\":1}", `{"a":NaN,"bootstrap_room":1}`, `[]`, ` { } `, "{\x00\"\x00k\x00v\x00",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, changed, err := Strip(nil, body)
		if errors.Is(err, ErrCarried) || errors.Is(err, ErrAddressed) {
			return
		}
		list, ok := readMembers(body)
		if !ok {
			if err == nil && (changed || string(got) != string(body)) {
				t.Fatalf("%q is no object and became %q", body, got)
			}
			return
		}
		if err != nil {
			t.Fatalf("%q: %v", body, err)
		}
		kept := slices.DeleteFunc(slices.Clone(list), func(m member) bool { return reservedBySpelling(m.name) })
		after, ok := readMembers(got)
		if !ok || !slices.EqualFunc(after, kept, func(a, b member) bool { return a.name == b.name && string(a.value) == string(b.value) }) {
			t.Fatalf("%q became %q", body, got)
		}
		if changed != (len(kept) != len(list)) || !changed && string(got) != string(body) {
			t.Fatalf("%q: changed %v, %q", body, changed, got)
		}
	})
}

// reservedBySpelling says again which names are reserved.
func reservedBySpelling(name string) bool {
	for _, r := range strings.Fields("kv_transfer_params ec_transfer_params bootstrap_host bootstrap_port bootstrap_room disaggregated_params") {
		if strings.EqualFold(name, r) {
			return true
		}
	}
	return false
}

// TestBytesOutsideAreTheClients builds bodies of members that matter and
// members that do not, in many spellings, and compares each leg, text by
// text, with what the rules make of the list.
func TestBytesOutsideAreTheClients(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		body := drawBody(t)
		api := rapid.SampledFrom([]string{"chat", "completions", "responses", "messages"}).Draw(t, "api")
		params := drawValue(t, "params")
		try := &Try{
			API: apis[api], Body: []byte(body), Sequences: rapid.IntRange(1, 3).Draw(t, "sequences"), ID: NewID(),
			Prefill: &Peer{BootstrapHost: "p\"1", BootstrapPort: 8998, KVHost: "p-kv", KVPort: 5600, EngineID: "e\\1", TPSize: 2, PPSize: 1, Rank: 3, HasRank: true},
			Decode:  &Peer{KVHost: "d-kv", KVPort: 5601, Rank: 4, HasRank: true},
		}
		check := func(name string, got []byte, err error, set map[string]string, drop []string) {
			if err != nil {
				t.Fatalf("%s of %s: %v", name, body, err)
			}
			if want := edited(body, set, drop); !slices.Equal(texts(string(got)), want) {
				t.Fatalf("%s of %s\n is %s\nwant %q", name, body, got, want)
			}
			if _, ok := readMembers(got); !ok {
				t.Fatalf("%s of %s is not JSON: %s", name, body, got)
			}
		}
		for name, own := range ownMembers(try, params) {
			c := connectors[name]
			set, drop := firstTokenRule(api, body)
			if name == "trtllm" {
				delete(set, "max_completion_tokens")
				drop = append(drop, "max_completion_tokens")
			}
			maps.Copy(set, own.prefill)
			got, err := c.Prefill(nil, try)
			check(name+" prefill leg", got, err, set, drop)
			got, err = c.Decode(nil, try, own.handover)
			check(name+" decode leg", got, err, own.decode, nil)
		}
	})
}

// firstTokenRule says again what lets a body end after one token.
func firstTokenRule(api, body string) (set map[string]string, drop []string) {
	proper := map[string][]string{
		"chat": {"max_tokens", "max_completion_tokens"}, "completions": {"max_tokens"},
		"responses": {"max_output_tokens"}, "messages": {"max_tokens"},
	}[api]
	set = map[string]string{"stream": "false"}
	for _, limit := range []string{"max_tokens", "max_completion_tokens", "max_output_tokens"} {
		if slices.Contains(proper, limit) || slices.ContainsFunc(mustRead(body), func(m member) bool { return m.name == limit }) {
			set[limit] = "1"
		}
	}
	return set, []string{"min_tokens", "min_completion_tokens", "stream_options", "background"}
}

// ownMember are the members that a connector documents.
type ownMember struct {
	prefill, decode map[string]string
	handover        Handover
}

// ownMembers says again what each connector puts into the legs of the try.
func ownMembers(try *Try, params string) map[string]ownMember {
	nothing := ownMember{}
	room, host, port := strconv.FormatInt(try.ID.room(), 10), `"p\"1"`, "8998"
	if n := try.Sequences; n > 1 {
		list := func(each func(i int) string) string {
			var all []string
			for i := range n {
				all = append(all, each(i))
			}
			return "[" + strings.Join(all, ",") + "]"
		}
		room = list(func(i int) string { return strconv.FormatInt(try.ID.room()+int64(i), 10) })
		host, port = list(func(int) string { return `"p\"1"` }), list(func(int) string { return "8998" })
	}
	meet := func(rank string, more ...string) map[string]string {
		m := map[string]string{"bootstrap_host": host, "bootstrap_port": port, "bootstrap_room": room, "routed_dp_rank": rank}
		for _, name := range more {
			m[name] = "3"
		}
		return m
	}
	xfer := `"transfer_id":"xfer-` + try.ID.String() + `"}`
	kv := func(value string) map[string]string { return map[string]string{"kv_transfer_params": value} }
	keep := `{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null`
	trtDecode := map[string]string{"disaggregated_params": params}
	switch try.API {
	case prompt.Completions:
		trtDecode["prompt"] = "[1,2]"
	case prompt.Chat:
		trtDecode["prompt_token_ids"] = "[1,2]"
	}
	return map[string]ownMember{
		"plain": nothing, "sharedStorage": nothing, "p2pnccl": nothing,
		"nixl": {kv(keep + "}"), kv(params), Handover{Params: []byte(params)}},
		"nixlPush": {
			kv(keep + "," + xfer),
			kv(`{"do_remote_decode":false,"do_remote_prefill":true,"remote_engine_id":"e\\1","remote_host":"p-kv","remote_port":5600,"tp_size":2,"pp_size":1,"remote_request_id":"` + try.ID.String() + `",` + xfer),
			Handover{},
		},
		"mooncake": {
			kv(`{"do_remote_decode":true,"do_remote_prefill":false,` + xfer),
			kv(`{"do_remote_decode":false,"do_remote_prefill":true,"remote_bootstrap_addr":"http://p\"1:8998","remote_engine_id":"e\\1",` + xfer),
			Handover{},
		},
		"sglang": {meet("3"), meet("4", "disagg_prefill_dp_rank"), Handover{}},
		"trtllm": {
			map[string]string{"disaggregated_params": `{"request_type":"context_only","disagg_request_id":` + strconv.FormatInt(try.ID.room()|1<<42, 10) + `}`},
			trtDecode,
			Handover{Params: []byte(params), Prompt: []byte("[1,2]")},
		},
	}
}

// edited returns the members' texts after the edits: those in set get the
// value at their last place and go elsewhere, or are added in any order at
// the end; those in drop and the reserved ones go.
func edited(body string, set map[string]string, drop []string) (want []string) {
	list, before := mustRead(body), texts(body)
	last := map[string]int{}
	for i, m := range list {
		last[m.name] = i
	}
	for i, m := range list {
		value, isSet := set[m.name]
		switch {
		case isSet && last[m.name] == i:
			text := before[i]
			want = append(want, text[:len(text)-len(m.value)]+value)
		case isSet, slices.Contains(drop, m.name), reservedBySpelling(m.name):
		default:
			want = append(want, before[i])
		}
	}
	for _, name := range strings.Fields("max_tokens max_completion_tokens max_output_tokens stream kv_transfer_params bootstrap_host bootstrap_port bootstrap_room " +
		"disaggregated_params routed_dp_rank disagg_prefill_dp_rank prompt prompt_token_ids") {
		if value, isSet := set[name]; isSet {
			if _, there := last[name]; !there {
				want = append(want, `"`+name+`":`+value)
			}
		}
	}
	return want
}

func mustRead(body string) []member {
	list, ok := readMembers([]byte(body))
	if !ok {
		panic("test body is not JSON: " + body)
	}
	return list
}

func drawBody(t *rapid.T) string {
	space := func() string {
		return rapid.SampledFrom([]string{"", "", "", " ", "\n", "\t ", "\r\n"}).Draw(t, "space")
	}
	names := strings.Fields("model messages prompt seed n logit_bias stream stream stream_options max_tokens max_tokens max_completion_tokens " +
		"max_output_tokens min_tokens min_completion_tokens background kv_transfer_params KV_Transfer_Params bootstrap_host bootstrap_port " +
		"Bootstrap_room disaggregated_params Max_Tokens max_token")
	var b strings.Builder
	b.WriteString(space() + "{")
	for i := range rapid.IntRange(0, 8).Draw(t, "members") {
		if i > 0 {
			b.WriteString(space() + ",")
		}
		name := rapid.SampledFrom(names).Draw(t, "name")
		b.WriteString(space() + `"` + spell(t, name) + `"` + space() + ":" + space() + drawValue(t, "value"))
	}
	b.WriteString(space() + "}" + space())
	return b.String()
}

// spell writes some letters as escapes.
func spell(t *rapid.T, name string) string {
	var b strings.Builder
	for _, c := range []byte(name) {
		if rapid.IntRange(0, 19).Draw(t, "escape") == 0 {
			b.WriteString(`\u00` + string("0123456789abcdef"[c>>4]) + string("0123456789ABCDEF"[c&15]))
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

func drawValue(t *rapid.T, label string) string {
	return rapid.SampledFrom([]string{
		"1", "0.10", "1.0", "-0", "1e-7", "1E400", "9007199254740993", "12345678901234567890", "null", "true", `""`,
		`"a,b}]{[:\"\\ \u006b"`, `"é\ud83d\ude00"`, "[]", "{ }", `[ {"stream":true , "max_tokens" : 5} ]`,
		`{"remote_block_ids":[[1, 2,9007199254740993]],"kv_transfer_params":{"a":1}}`,
	}).Draw(t, label)
}
