package calinix_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// nasty are values that would split a header or a log line.
var nasty = []string{
	"x\r\nX-Evil: 1", "x\nX-Evil: 1", "x\r\n\r\n<html>", "\x00\x01\x1b[31m\x7f", "caf\xc3\xa9 \u2028 \u202e", "\"}\n{\"level\":\"info\",\"msg\":\"forged\"}",
	"x\tX-Evil", strings.Repeat("l", 100_000), "{http.request.header.Authorization}", "{env.HOME}", "%0d%0aX-Evil: 1",
}

// secureInjection: models, session keys, request ids and modes of clients split
// neither headers nor log lines, and nothing in them is expanded.
func secureInjection(t *testing.T) {
	s, one, prefill, decode := bothModes(t)
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		inspect := func(a *testcaddy.Answer) {
			t.Helper()
			seen := []http.Header{a.Header}
			for _, p := range []*fakepod.Pod{one, prefill, decode} {
				for _, q := range p.Requests() {
					seen = append(seen, q.Header)
				}
				p.Forget()
			}
			for _, h := range seen {
				for name, values := range h {
					if !strings.HasPrefix(name, "X-Calinix-") && name != "X-Evil" {
						continue
					}
					for _, v := range values {
						if name == "X-Evil" || len(v) > 300 || !visible.MatchString(v) {
							t.Errorf("%s: %.200q", name, v)
						}
					}
				}
			}
		}
		for _, v := range nasty {
			for _, mode := range []string{"single", "dispatch"} {
				body := fmt.Sprintf(`{"model":%s,"user":%s,"prompt_cache_key":%s,"messages":[{"role":%s,"content":"hi"}]}`, ascii(v), ascii(v), ascii(v), ascii(v))
				a := cl.Post(t, chatPath, body, "x-calinix-mode", mode)
				if a.Status != 200 {
					t.Fatalf("%.40q: %v", v, a)
				}
				inspect(a)
				// in headers only what HTTP lets through, and no more than the server takes
				value := strings.Map(func(r rune) rune {
					if r < ' ' || r == 0x7f {
						return -1
					}
					return r
				}, v)
				value = value[:min(len(value), 9_000)]
				for _, name := range []string{"x-calinix-session-key", "x-calinix-request-id", "X-Session-ID"} {
					if a := cl.Post(t, chatPath, question, "x-calinix-mode", mode, name, value); a.Status != 200 {
						t.Errorf("%s: %v", name, a)
					} else {
						inspect(a)
					}
				}
				a = cl.Post(t, chatPath, question, "x-calinix-mode", value)
				wantError(t, a, 400)
				inspect(a)
			}
		}
	})
	s.Stop()
	// Each line of the log is one JSON object, none of them a client's.
	for line := range strings.Lines(s.Log.Text()) {
		if e := strings.TrimSpace(line); !strings.HasPrefix(e, "{") || !strings.HasSuffix(e, "}") || strings.Contains(e, `"msg":"forged"`) && !strings.Contains(e, `\"msg\":\"forged\"`) {
			t.Errorf("a line of the log: %.300q", e)
		}
	}

	s = serve(t, single(fakepod.Pods{one}), testcaddy.Plain())
	for _, v := range []string{"x\r\nX-Evil: 1", "x\x00y", "x\x7fy"} {
		for _, name := range []string{"x-calinix-session-key", "x-calinix-request-id"} {
			one.Forget()
			got := raw(t, s, rawRequest(question, name+": "+v))
			for _, q := range one.Requests() {
				if strings.Contains(q.Head, v) || strings.Contains(routing(t, q.Header)["X-Calinix-Request-Id"], "Evil") {
					t.Errorf("%s %q: the pod gets %s", name, v, q.Head)
				}
			}
			if strings.Contains(got, "X-Evil") {
				t.Errorf("%s %q: %s", name, v, got)
			}
		}
	}
}

var visible = regexp.MustCompile("^[!-~]*$")

// ascii is text as a JSON string without a character beyond ASCII.
func ascii(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range text {
		if r < ' ' || r > '~' || r == '"' || r == '\\' {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String() + `"`
}

// secureFraming: requests of whose end two servers could think differently are
// refused, and what is passed on has one length.
func secureFraming(t *testing.T) {
	ps := pods(t, "a")
	s := serve(t, single(ps), testcaddy.Plain())
	head := "POST " + chatPath + " HTTP/1.1\r\nHost: localhost\r\n"
	inner := "GET /smuggled HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
	for what, text := range map[string]string{
		"two lengths":              head + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello" + inner,
		"a list of lengths":        head + "Content-Length: 5, 6\r\n\r\nhello" + inner,
		"a signed length":          head + "Content-Length: +5\r\n\r\nhello" + inner,
		"a negative length":        head + "Content-Length: -5\r\n\r\nhello" + inner,
		"a length in hex":          head + "Content-Length: 0x5\r\n\r\nhello" + inner,
		"a length beyond 64 bits":  head + "Content-Length: 99999999999999999999\r\n\r\nhello" + inner,
		"gzip, chunked":            head + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n" + inner,
		"chunked twice":            head + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + inner,
		"chunked, identity":        head + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + inner,
		"xchunked":                 head + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + inner,
		"chunked after a tab":      head + "Transfer-Encoding:\tchunked, x\r\n\r\n0\r\n\r\n" + inner,
		"a space before the colon": head + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + inner,
		"a chunk that lies":        head + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello!\r\n0\r\n\r\n" + inner,
		"a huge chunk":             head + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nhello\r\n0\r\n\r\n" + inner,
		"two hosts":                "POST " + chatPath + " HTTP/1.1\r\nHost: localhost\r\nHost: other\r\nContent-Length: 0\r\n\r\n" + inner,
	} {
		ps.Forget()
		got := raw(t, s, text)
		if !strings.HasPrefix(got, "HTTP/1.1 4") && !strings.HasPrefix(got, "HTTP/1.1 501") {
			t.Errorf("%s: %q", what, got)
		}
		for _, q := range ps.Received() {
			t.Errorf("%s: the pod gets %s", what, q.Head)
		}
	}
	// Both kinds of framing: the chunks count, and the pod gets one length.
	ps.Forget()
	got := raw(t, s, head+"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"+inner)
	for _, q := range ps.Received() {
		if q.Method == http.MethodPost && (string(q.Body) != "hello" || q.ContentLength != 5 || len(q.TransferEncoding) > 0) {
			t.Errorf("the pod gets %s%q", q.Head, q.Body)
		}
	}
	if !strings.HasPrefix(got, "HTTP/1.1 4") && ps.Total() > 2 {
		t.Errorf("%d requests: %q", ps.Total(), got)
	}
	// What follows a request on its connection is a request of its own.
	ps.Forget()
	r := bufio.NewReader(strings.NewReader(raw(t, s, head+"Content-Length: 5\r\n\r\nhello"+inner)))
	for range 2 {
		resp, err := http.ReadResponse(r, nil)
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("%v %v", resp, err)
		}
		io.Copy(io.Discard, resp.Body)
	}
	if n := ps.Total(); n != 2 {
		t.Errorf("%d requests", n)
	}
}

// secureTargets: nothing that a client says makes Calinix connect to anything but
// a configured pod.
func secureTargets(t *testing.T) {
	decoy := fakepod.New(t, fakepod.Options{Name: "decoy"})
	ps := pods(t, "a")
	s := serve(t, single(ps), testcaddy.Plain())
	at := decoy.Addr
	for _, text := range []string{
		rawRequest(question, "X-Prefiller-Host-Port: "+at, "X-Calinix-Target-Pod-Id: "+at, "X-Gateway-Destination-Endpoint: "+at, "X-Forwarded-Host: "+at, "Forwarded: host="+at),
		strings.Replace(rawRequest(question), "Host: localhost", "Host: "+at, 1),
		strings.Replace(rawRequest(question), "POST /", "POST http://"+at+"/", 1),
		strings.Replace(rawRequest(question), "POST /v1", "POST //"+at+"/v1", 1),
		strings.Replace(rawRequest(question), "POST /v1", "POST /@"+at+"/v1", 1),
		strings.Replace(rawRequest(`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://`+at+`/x.png"}}]}]}`), "POST", "POST", 1),
		"CONNECT " + at + " HTTP/1.1\r\nHost: " + at + "\r\nConnection: close\r\n\r\n",
	} {
		raw(t, s, text)
	}
	if n := len(decoy.Conns()); n != 0 {
		t.Errorf("%d connections to the decoy", n)
	}
	if ps.Total() < 5 {
		t.Errorf("the pod has got %d requests", ps.Total())
	}
}
