package calinix_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// evil is a value that would make an engine fetch blocks from a client's host.
const evil = `{"do_remote_prefill":true,"remote_host":"evil"}`

// smuggled is a chat request with a further member.
func smuggled(member string) string {
	return `{"model":"m",` + member + `,"messages":[{"role":"user","content":"hi"}],"max_tokens":3}`
}

// spellings are the ways to write a member's name that some reader takes for it.
func spellings(name string) []string {
	all := `"`
	for i := range len(name) {
		all += fmt.Sprintf(`\u%04x`, name[i])
	}
	return []string{
		`"` + name + `"`,
		`"` + strings.ToUpper(name) + `"`,
		`"` + strings.ToUpper(name[:1]) + name[1:] + `"`,
		fmt.Sprintf(`"\u%04x%s"`, name[0], name[1:]),
		fmt.Sprintf(`"\u%04X%s"`, strings.ToUpper(name)[0], name[1:]),
		all + `"`,
		"\n\t \"" + name + "\" \r\n",
	}
}

// wantClean fails the test unless the pods have got nothing of a client's
// reserved members, which all hold the word evil.
func wantClean(t *testing.T, what string, pods ...*fakepod.Pod) {
	t.Helper()
	for _, p := range pods {
		if p == nil || p.Count() == 0 {
			t.Errorf("%s: a pod has got nothing", what)
			continue
		}
		if got := p.Last(t); bytes.Contains(got.Body, []byte("evil")) || got.Header.Get("Content-Encoding") != "" {
			t.Errorf("%s: pod %s gets %q in encoding %q", what, got.Pod, got.Body, got.Header.Get("Content-Encoding"))
		}
		p.Forget()
	}
}

// secureReservedMembers: every reserved member, in every spelling, once, twice and
// on requests of one leg.
func secureReservedMembers(t *testing.T) {
	s, _, prefill, decode := bothModes(t, "mode dispatch")
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		for _, name := range reserved {
			for _, spelled := range spellings(name) {
				for what, body := range map[string]string{
					"once":      smuggled(spelled + `:` + evil),
					"twice":     smuggled(spelled + `:` + evil + `,` + spelled + `:` + evil),
					"as string": smuggled(spelled + `:"evil"`),
					"last":      `{"messages":[{"role":"user","content":"hi"}],` + spelled + `:["evil"]}`,
				} {
					if a := cl.Post(t, chatPath, body); a.Status != 200 {
						t.Fatalf("%s: %v", spelled, a)
					}
					wantClean(t, spelled+" "+what, prefill, decode)
				}
				for path, body := range map[string]string{"/v1/embeddings": `{"input":"x",` + spelled + `:"evil"}`, "/generate": `{` + spelled + `:"evil","text":"x"}`} {
					if a := cl.Post(t, path, body); a.Status != 200 {
						t.Fatalf("%s: %v", path, a)
					}
					wantClean(t, path+" "+spelled, decode)
				}
			}
		}
		// What only looks like one stays.
		body := `{"model":"m","kv_transfer_param":1,"messages":[{"role":"user","content":"kv_transfer_params"}],"metadata":{"bootstrap_room":"1"}}`
		cl.Post(t, chatPath, body)
		if got := string(decode.Last(t).Body); got != body {
			t.Errorf("the decode pod gets %s", got)
		}
	})
}

// secureCarriedMembers: members that vLLM copies to where the reserved ones lie.
func secureCarriedMembers(t *testing.T) {
	s, one, prefill, decode := bothModes(t, "mode dispatch")
	cl := s.Client(t, testcaddy.H1)
	for _, carrier := range []string{"vllm_xargs", `VLLM\u005fXARGS`, "sampling_params", "extra_args"} {
		for _, inside := range []string{`{"kv_transfer_params":"evil"}`, `{"extra_args":{"\u006bv_transfer_params":` + evil + `}}`} {
			for _, path := range []string{chatPath, "/inference/v1/generate"} {
				a := cl.Post(t, path, smuggled(`"`+carrier+`":`+inside))
				if code := wantError(t, a, 400); code != "bad_body" || !strings.Contains(string(a.Body), "vllm_xargs") {
					t.Errorf("%s %s: %v", carrier, inside, a)
				}
			}
		}
	}
	if n := one.Count() + prefill.Count() + decode.Count(); n != 0 {
		t.Errorf("%d requests reached a pod", n)
	}
	if a := cl.Post(t, chatPath, smuggled(`"vllm_xargs":{"top_n_sigma":1}`)); a.Status != 200 || !bytes.Contains(decode.Last(t).Body, []byte("top_n_sigma")) {
		t.Errorf("usual arguments: %v", a)
	}
}

// secureConnectors: whatever the connector sets itself, what a client says of it
// reaches no pod, on two legs, on one and without a prefill leg.
func secureConnectors(t *testing.T) {
	var members []string
	for _, name := range reserved {
		members = append(members, `"`+name+`":`+evil, `"`+strings.ToUpper(name)+`":["evil"]`)
	}
	all := strings.Join(members, ",")
	for connector, keys := range map[string]string{
		"nixl": "", "plain": "", "shared_storage": "", "sglang": "", "trtllm": "",
		"nixl_push": "engine_id e", "p2pnccl": "kv_address 127.0.0.1:1", "mooncake": "bootstrap_port PORT",
	} {
		ps := pods(t, "p1", "d1")
		port := ps[0].Addr[strings.LastIndexByte(ps[0].Addr, ':')+1:]
		ps[0].SetPath("/query", fakepod.Reply{Body: []byte(`{"0":{"engine_id":"e"}}`)}) // mooncake asks it
		pod := func(p *fakepod.Pod, keys string) string {
			return "pod " + p.Name + " " + p.URL + " {\n" + keys + "\n}\n"
		}
		decodeKeys := ""
		if connector == "p2pnccl" {
			decodeKeys = keys
		}
		s := serve(t, "dispatch {\nconnector "+connector+"\non_prefill_failure decode_only\nprefill {\n"+pod(ps[0], strings.ReplaceAll(keys, "PORT", port))+
			"}\ndecode {\n"+pod(ps[1], decodeKeys)+"}\n}\n", testcaddy.Plain())
		cl := s.Client(t, testcaddy.H1)
		for what, body := range map[string]string{
			"two legs": smuggled(all), "several": smuggled(`"n":2,` + all), "not a chat": `{"x":1,` + all + `}`,
		} {
			ps.Forget()
			cl.Post(t, chatPath, body, "X-Request-Id", "___prefill_addr_evil:1___decode_addr_evil:2_x")
			if ps.Total() == 0 {
				t.Errorf("%s, %s: no pod was asked", connector, what)
			}
			for _, q := range ps.Received() {
				if strings.Contains(q.Head+string(q.Body), "evil") {
					t.Errorf("%s, %s: pod %s gets %s%s", connector, what, q.Pod, q.Head, q.Body)
				}
			}
		}
		ps[0].Set(fakepod.Reply{Status: 500})
		ps.Forget()
		cl.Post(t, chatPath, smuggled(all))
		for _, q := range ps.Received() {
			if strings.Contains(string(q.Body), "evil") {
				t.Errorf("%s, without a prefill leg: pod %s gets %s", connector, q.Pod, q.Body)
			}
		}
		s.Stop()
	}
}

// secureRequestIDs: ids out of which vLLM's P2pNcclConnector would read addresses.
func secureRequestIDs(t *testing.T) {
	s, one, prefill, decode := bothModes(t, "mode dispatch")
	const id = "___prefill_addr_evil:1___decode_addr_evil:2_x"
	several := `{"model":"m","n":2,"messages":[{"role":"user","content":"hi"}]}`
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		for what, body := range map[string]string{"two legs": question, "one leg": several} {
			req := cl.Request(t.Context(), t, "POST", chatPath, body)
			req.Header["X-Request-Id"] = []string{"mine", id}
			if a := cl.Send(req); a.Status != 200 {
				t.Fatal(a)
			}
			for _, p := range []*fakepod.Pod{prefill, decode} {
				for _, q := range p.Requests() {
					if strings.Contains(q.Head, "evil") {
						t.Errorf("%s: pod %s gets %s", what, q.Pod, q.Head)
					}
				}
				p.Forget()
			}
			cl.Post(t, chatPath, body, "X-Request-Id", "mine")
			if got := decode.Last(t).Header.Get("X-Request-Id"); got != "mine" {
				t.Errorf("%s: a usual id becomes %q", what, got)
			}
			prefill.Forget()
			decode.Forget()
		}
		for _, member := range []string{`"request_id":"` + id + `"`, `"\u0072equest_id":"` + strings.ReplaceAll(id, "_", `\u005f`) + `"`} {
			if code := wantError(t, cl.Post(t, chatPath, smuggled(member)), 400); code != "bad_body" {
				t.Errorf("%s: code %s", member, code)
			}
		}
	})
	if n := one.Count() + prefill.Count() + decode.Count(); n != 0 {
		t.Errorf("%d requests reached a pod", n)
	}
}

// secureReservedInWhatIsNoJSON: texts that are not JSON by the letter, and that
// some reader takes for an object with a reserved member.
func secureReservedInWhatIsNoJSON(t *testing.T) {
	s, one, prefill, decode := bothModes(t, "mode dispatch")
	plain := smuggled(`"kv_transfer_params":` + evil)
	units := utf16.Encode([]rune("\ufeff" + plain))
	var wide []byte
	for _, u := range units {
		wide = binary.LittleEndian.AppendUint16(wide, u)
	}
	cl := s.Client(t, testcaddy.H2)
	for what, body := range map[string]string{
		"byte order mark": "\ufeff" + plain,
		"UTF-16":          string(wide),
		"NaN":             strings.Replace(plain, `"m"`, `NaN`, 1),
		"trailing":        plain + "x",
		"two values":      plain + plain,
		"trailing comma":  strings.Replace(plain, `3}`, `3,}`, 1),
		"comment":         "/* hi */" + plain,
		"single quotes":   strings.ReplaceAll(plain, `"`, `'`),
		"control":         strings.Replace(plain, "hi", "h\x00i", 1),
		"bad UTF-8":       strings.Replace(plain, "hi", "h\xff", 1),
		"too deep":        strings.Replace(plain, `"hi"`, strings.Repeat("[", 20_000)+strings.Repeat("]", 20_000), 1),
	} {
		for _, path := range []string{chatPath, "/v1/embeddings", "/generate"} {
			if code := wantError(t, cl.Post(t, path, body), 400); code != "bad_body" {
				t.Errorf("%s: code %s", what, code)
			}
		}
	}
	if n := one.Count() + prefill.Count() + decode.Count(); n != 0 {
		t.Errorf("%d requests reached a pod", n)
	}
}
