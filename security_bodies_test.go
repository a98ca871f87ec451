package calinix_test

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/klauspost/compress/zstd"

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

func gzipped(plain string) []byte {
	return packed(plain, func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) })
}

func packed(plain string, with func(io.Writer) io.WriteCloser) []byte {
	var b bytes.Buffer
	w := with(&b)
	_, err := io.WriteString(w, plain)
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		panic(err)
	}
	return b.Bytes()
}

// codings packs a text in every content coding that is known.
var codings = map[string]func(string) []byte{
	"gzip":   gzipped,
	"X-GZip": gzipped,
	"zstd": func(s string) []byte {
		return packed(s, func(w io.Writer) io.WriteCloser { z, _ := zstd.NewWriter(w); return z })
	},
	"deflate": func(s string) []byte {
		return packed(s, func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) })
	},
	" deflate": func(s string) []byte { // without the header of zlib
		return packed(s, func(w io.Writer) io.WriteCloser { z, _ := flate.NewWriter(w, 9); return z })
	},
	"gzip, gzip":     func(s string) []byte { return gzipped(string(gzipped(s))) },
	"identity, gzip": gzipped,
	"identity":       func(s string) []byte { return []byte(s) },
}

// secureEncodedBodies: a compressed body is searched decompressed, and so it goes
// on.
func secureEncodedBodies(t *testing.T) {
	s, _, prefill, decode := bothModes(t, "mode dispatch")
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		for coding, pack := range codings {
			if coding == "identity" {
				continue
			}
			for _, member := range []string{`"kv_transfer_params":` + evil, `"\u0062ootstrap_host":"evil"`} {
				if a := cl.Post(t, chatPath, string(pack(smuggled(member))), "Content-Encoding", coding); a.Status != 200 {
					t.Fatalf("%s: %v", coding, a)
				}
				wantClean(t, coding, prefill, decode)
				if a := cl.Post(t, "/v1/embeddings", string(pack(`{"input":"x",`+member+`}`)), "Content-Encoding", coding); a.Status != 200 {
					t.Fatalf("%s: %v", coding, a)
				}
				wantClean(t, coding+", one leg", decode)
			}
			// also without anything to remove, for a pod may not look at the header
			cl.Post(t, chatPath, string(pack(question)), "Content-Encoding", coding)
			if got := decode.Last(t); string(got.Body) != question || got.Header.Get("Content-Encoding") != "" {
				t.Errorf("%s: the pod gets %q", coding, got.Body)
			}
			wantError(t, cl.Post(t, chatPath, string(pack("\ufeff"+smuggled(`"kv_transfer_params":`+evil))), "Content-Encoding", coding), 400)
		}
	})
}

// secureUnknownEncodings: what cannot be decompressed cannot be searched.
func secureUnknownEncodings(t *testing.T) {
	s, one, prefill, decode := bothModes(t)
	plain := smuggled(`"kv_transfer_params":` + evil)
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		for _, c := range []struct {
			coding, body string
			status       int
		}{
			{"br", plain, 415}, // as many engines take it: without a look at the header
			{"br", "\x0b\x02\x80{}\x03", 415},
			{"compress", plain, 415},
			{"gzip;q=1", string(gzipped(plain)), 415},
			{"aws-chunked", plain, 415},
			{"gzip, br", plain, 415},
			{"gzip", plain, 400},
			{"zstd", plain, 400},
			{"deflate", plain, 400},
			{"gzip", string(gzipped(plain)[:40]), 400},
			{"gzip", string(gzipped(plain)) + "x", 400}, // some decoders stop before the x
			{"gzip", "", 0},
			{"gzip,gzip,gzip,gzip", plain, 400},
		} {
			for _, path := range []string{chatPath, "/v1/embeddings"} {
				for _, hide := range []bool{false, true} {
					headers := []string{"Content-Encoding", c.coding, "x-calinix-mode", "dispatch"}
					if hide {
						if cl.Protocol != testcaddy.H1 {
							continue // only HTTP/1.1 has that header
						}
						headers = append(headers, "Connection", "Content-Encoding")
					}
					a := cl.Post(t, path, c.body, headers...)
					if c.status == 0 {
						if a.Status != 200 {
							t.Errorf("no body at all: %v", a)
						}
						continue
					}
					code := wantError(t, a, c.status)
					if want := map[int]string{400: "bad_body", 415: "unsupported_content_encoding"}[c.status]; code != want {
						t.Errorf("%s: code %s", c.coding, code)
					}
				}
			}
		}
	})
	for _, p := range []*fakepod.Pod{one, prefill, decode} {
		for _, q := range p.Requests() {
			if len(q.Body) > 0 {
				t.Errorf("pod %s gets %q", p.Name, q.Body)
			}
		}
	}
}

// secureSingleUntouched: in single mode a pod gets the client's bytes, whatever
// they are.
func secureSingleUntouched(t *testing.T) {
	s, one, _, _ := bothModes(t)
	plain := smuggled(`"kv_transfer_params":` + evil + `,"\u0062ootstrap_host":"evil"`)
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		send := func(body, coding string) {
			t.Helper()
			headers := []string{"Content-Encoding", coding}
			if coding == "" {
				headers = nil
			}
			a := cl.Post(t, chatPath, body, headers...)
			if got := one.Last(t); a.Status != 200 || string(got.Body) != body || got.Header.Get("Content-Encoding") != strings.TrimSpace(coding) {
				t.Errorf("%.40q in %q: %v, the pod gets %.40q in %q", body, coding, a, got.Body, got.Header.Get("Content-Encoding"))
			}
		}
		send(plain, "")
		send("\ufeff"+plain, "")
		send(smuggled(`"vllm_xargs":{"kv_transfer_params":"evil"}`), "")
		send(plain, "br")
		send(plain, "gzip")
		for coding, pack := range codings {
			send(string(pack(plain)), coding)
		}
	})
}

// secureOddBodies: bodies made to break a reader reach a pod as they are, or are
// refused; nothing else becomes of them, and Calinix goes on.
func secureOddBodies(t *testing.T) {
	s, one, prefill, decode := bothModes(t)
	const n = 50_000
	user := func(content string) string { return `{"messages":[{"role":"user","content":` + content + `}]}` }
	bodies := map[string]string{
		"open arrays":        strings.Repeat("[", n),
		"open objects":       strings.Repeat(`{"a":`, n),
		"deep":               `{"a":` + strings.Repeat("[", 9_000) + strings.Repeat("]", 9_000) + `,"prompt":"x"}`,
		"too deep":           `{"a":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}`,
		"deep content":       user(strings.Repeat(`[{"type":"tool_result","content":`, 3_000) + `"x"` + strings.Repeat(`}]`, 3_000)),
		"digits":             `{"n":` + strings.Repeat("9", n) + `,"max_tokens":` + strings.Repeat("9", n) + `,"messages":[{"role":"user","content":"x"}]}`,
		"exponents":          `{"n":1e999999999,"max_tokens":-1e-999999999,"messages":[{"role":"user","content":"x"}]}`,
		"negative n":         `{"n":-99999999999999999999,"messages":[{"role":"user","content":"x"}]}`,
		"a long name":        `{"` + strings.Repeat("k", n) + `":1,"messages":[{"role":"user","content":"x"}]}`,
		"a long escape":      `{"` + strings.Repeat(`\u006b`, n) + `":1,"messages":[{"role":"user","content":"x"}]}`,
		"a long model":       `{"model":"` + strings.Repeat("m", n) + `","messages":[{"role":"user","content":"x"}]}`,
		"a long session":     `{"user":"` + strings.Repeat("u", n) + `","messages":[{"role":"user","content":"x"}]}`,
		"NUL bytes":          strings.Repeat("\x00", n),
		"NUL in a string":    user("\"\x00\""),
		"escaped NUL":        user(`"` + strings.Repeat(`\u0000`, 1_000) + `"`),
		"half surrogates":    user(`"` + strings.Repeat(`\ud83d`, 1_000) + `"`),
		"marker bytes":       user(`"` + strings.Repeat(`\u0001`, 1_000) + `"`),
		"bad UTF-8":          user("\"\xff\xfe\xc0\x80\""),
		"not closed":         user(`"x`),
		"empty names":        `{"":1,"":2,"messages":[{"":3}]}`,
		"nothing but spaces": strings.Repeat(" ", n),
		"one long word":      user(`"` + strings.Repeat("x", n) + `"`),
		"only separators":    user(`"` + strings.Repeat(`\n\t `, n/5) + `"`),
		"deep arguments":     `{"messages":[{"role":"assistant","tool_calls":[{"function":{"arguments":"` + strings.Repeat("[", n) + `"}}]}]}`,
		"huge token ids":     `{"prompt":[` + strings.Repeat("99999999999999999999,", 1_000) + `1]}`,
	}
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		for what, body := range bodies {
			for _, mode := range []string{"single", "dispatch"} {
				paths := []string{chatPath, "/v1/completions", "/v1/responses", "/v1/messages"}
				if cl.Protocol != testcaddy.H1 {
					paths = paths[:1] // the reader of bodies is the same
				}
				for _, path := range paths {
					pods := []*fakepod.Pod{one, prefill, decode}
					for _, p := range pods {
						p.Forget()
					}
					a := cl.Post(t, path, body, "x-calinix-mode", mode)
					if a.Status != 200 || a.Err != nil {
						t.Errorf("%s, %s %s: %v", what, mode, path, a)
						continue
					}
					last := one
					if mode == "dispatch" {
						last = decode
					}
					if got := last.Last(t).Body; string(got) != body {
						t.Errorf("%s, %s %s: the pod gets %d bytes of %d", what, mode, path, len(got), len(body))
					}
				}
			}
		}
	})
	s.waitIdle(t)
	if found := s.Log.Find(func(e testcaddy.Entry) bool { return strings.Contains(strings.ToLower(e.Msg), "panic") }); len(found) > 0 {
		t.Errorf("%s", found[0].Line)
	}
}
