package calinix_test

import (
	"strings"
	"testing"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

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
