package calinix_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// routingNames are headers that no client may send to a pod.
var routingNames = append([]string{"X-Prefiller-Host-Port", "X-Encoder-Hosts-Ports", "X-Data-Parallel-Host-Port"}, ours...)

// raw writes text to Serve's site, a plain one, and returns all that comes back
// until the server closes or a second has passed without anything.
func raw(t testing.TB, s *site, text string) string {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(testcaddy.Patience))
	io.WriteString(conn, text)
	got, _ := io.ReadAll(conn)
	return string(got)
}

// rawRequest is a POST of the body with these header lines, after which the
// connection is to be closed.
func rawRequest(body string, lines ...string) string {
	return "POST " + chatPath + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " + strconv.Itoa(len(body)) +
		"\r\n" + strings.Join(append(lines, ""), "\r\n") + "Connection: close\r\n\r\n" + body
}

// secureRoutingHeaders: in every case, with _ and . for -, twice, over all
// protocols, to all pods.
func secureRoutingHeaders(t *testing.T) {
	s, one, prefill, decode := bothModes(t)
	check := func(t *testing.T, what string) {
		t.Helper()
		for _, p := range []*fakepod.Pod{one, prefill, decode} {
			if p.Count() == 0 {
				t.Errorf("%s: pod %s has got nothing", what, p.Name)
				continue
			}
			if q := p.Last(t); strings.Contains(strings.ToLower(q.Head), "forged") {
				t.Errorf("%s: pod %s gets %s", what, q.Pod, q.Head)
			}
			p.Forget()
		}
	}
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		for _, mode := range []string{"single", "dispatch"} {
			req := cl.Request(t.Context(), t, http.MethodPost, chatPath, question, "x-calinix-mode", mode)
			for _, name := range routingNames {
				if name != "X-Calinix-Mode" && name != "X-Calinix-Request-Id" {
					req.Header[name] = []string{"forged", "forged"}
				}
			}
			if a := cl.Send(req); a.Status != 200 {
				t.Fatal(a)
			}
		}
		check(t, "twice each")
	})
	s.Stop()

	s = serve(t, single(fakepod.Pods{one})+dispatch(fakepod.Pods{prefill}, fakepod.Pods{decode}), testcaddy.Plain())
	for _, spell := range []func(string) string{
		strings.ToLower, strings.ToUpper,
		func(n string) string { return strings.ReplaceAll(n, "-", "_") },
		func(n string) string { return strings.ReplaceAll(n, "-", ".") },
		func(n string) string { return strings.ToUpper(strings.Replace(n, "-", "_", 1)) },
	} {
		for _, mode := range []string{"single", "dispatch"} {
			lines := []string{"X-CALINIX-MODE: " + mode}
			for _, name := range routingNames {
				if name != "X-Calinix-Mode" && name != "X-Calinix-Request-Id" {
					lines = append(lines, spell(name)+": forged", spell(name)+":\tforged \t")
				}
			}
			if got := raw(t, s, rawRequest(question, lines...)); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
				t.Fatalf("%q: %s", lines, got)
			}
		}
		check(t, spell("As-This"))
	}
	// Not by a folded line either, which is malformed or part of a value.
	got := raw(t, s, rawRequest(question, "X-Other: a\r\n X-Calinix-Target-Pod-Id: forged"))
	if q := one.Requests(); len(q) > 0 && strings.Contains(q[0].Head, "\nX-Calinix-Target-Pod-Id: forged") || strings.Contains(got, "X-Calinix-Target-Pod-Id: forged") {
		t.Errorf("a folded line: %s", got)
	}
}

// secureRoutingTrailers: neither as trailers, of which pods may make headers.
func secureRoutingTrailers(t *testing.T) {
	for _, protocol := range []fakepod.Protocol{fakepod.HTTP1, fakepod.HTTP2} {
		all := fakepod.NewPods(t, fakepod.Options{Protocol: protocol}, "s1", "p1", "d1")
		keys := ""
		if protocol == fakepod.HTTP2 {
			keys = "transport http {\nversions h2c\n}\n"
		}
		s := serve(t, keys+single(all[:1])+dispatch(all[1:2], all[2:]))
		s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
			for _, mode := range []string{"single", "dispatch"} {
				all.Forget()
				req := cl.Request(t.Context(), t, http.MethodPost, chatPath, "x", "x-calinix-mode", mode)
				req.Body, req.ContentLength, req.GetBody = io.NopCloser(strings.NewReader(question)), -1, nil
				req.Trailer = http.Header{}
				for _, name := range routingNames {
					req.Trailer[name] = []string{"forged"}
				}
				if a := cl.Send(req); a.Status != 200 {
					t.Fatal(a)
				}
				if all.Total() == 0 {
					t.Error("no pod was asked")
				}
				for _, q := range all.Received() {
					if text := q.Head + fmt.Sprint(q.Header, q.Trailer); strings.Contains(text, "forged") || len(q.Trailer) > 0 && protocol == fakepod.HTTP1 {
						t.Errorf("%s: pod %s gets %s", mode, q.Pod, text)
					}
				}
			}
		})
		s.Stop()
	}
}

// secureConnectionHeader: a client that names headers as those of its connection
// takes none of ours from the pods.
func secureConnectionHeader(t *testing.T) {
	s, one, prefill, decode := bothModes(t)
	cl := s.Client(t, testcaddy.H1)
	for _, mode := range []string{"single", "dispatch"} {
		for _, list := range []string{strings.Join(ours, ","), strings.ToUpper(strings.Join(ours, ", ")), "close, " + strings.ReplaceAll(strings.Join(ours, ","), "-", "_"), "X-Calinix-Mode"} {
			req := cl.Request(t.Context(), t, http.MethodPost, chatPath, question, "x-calinix-mode", mode)
			req.Header["Connection"] = []string{list, "x-hop", "X-Calinix-Request-ID"}
			req.Header["X-Hop"] = []string{"forged"}
			a := cl.Send(req)
			legs := []fakepod.Request{one.Last(t)}
			if mode == "dispatch" {
				legs = []fakepod.Request{prefill.Last(t), decode.Last(t)}
			}
			for _, q := range legs {
				got := routing(t, q.Header)
				if a.Status != 200 || got["X-Calinix-Mode"] == "" || got["X-Calinix-Request-Id"] != a.Header.Get("X-Calinix-Request-Id") || len(got) < 6 || q.Header.Get("X-Hop") != "" {
					t.Errorf("%s, %s: pod %s gets %v", mode, list, q.Pod, q.Header)
				}
			}
		}
	}
}

// securePodHeaders: what pods say under our names reaches no client, as header or
// trailer.
func securePodHeaders(t *testing.T) {
	s, one, _, decode := bothModes(t)
	forged := http.Header{}
	for _, name := range ours {
		forged[name] = []string{"forged", "forged"}
		forged[strings.ReplaceAll(name, "-", "_")] = []string{"forged"}
	}
	for _, p := range []*fakepod.Pod{one, decode} {
		p.Set(fakepod.Reply{Header: forged})
	}
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		for _, mode := range []string{"single", "dispatch"} {
			if a := cl.Post(t, chatPath, question, "x-calinix-mode", mode); a.Status != 200 || strings.Contains(fmt.Sprint(a.Header, a.Trailer), "forged") {
				t.Error(a)
			}
		}
	})
}

// securePinnedMode: the line of the page takes the choice of the mode from
// clients.
func securePinnedMode(t *testing.T) {
	line := pageLine(t, "request_header x-calinix-mode ")
	all := pods(t, "s1", "p1", "d1")
	s := serveBehind(t, line, single(all[:1])+dispatch(all[1:2], all[2:]))
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		req := cl.Request(t.Context(), t, http.MethodPost, chatPath, smuggled(`"kv_transfer_params":`+evil))
		req.Header["X-Calinix-Mode"] = []string{"single", "single"}
		if a := cl.Send(req); a.Status != 200 || a.Header.Get("X-Calinix-Mode") != "disaggregated" {
			t.Error(a)
		}
	})
	if all[0].Count() > 0 {
		t.Error("a client has chosen the mode")
	}
	wantClean(t, "pinned", all[1], all[2])
}

// secureH2CUpgrade: no pod is offered to go on in HTTP/2.
func secureH2CUpgrade(t *testing.T) {
	all := pods(t, "s1", "p1", "d1")
	s := serve(t, single(all[:1])+dispatch(all[1:2], all[2:]), testcaddy.Plain())
	for _, mode := range []string{"single", "dispatch"} {
		for _, upgrade := range []string{"h2c", "H2C", "websocket, h2c", "h2c\r\nUpgrade: websocket"} {
			for _, connection := range []string{"Upgrade, HTTP2-Settings", "Upgrade"} {
				all.Forget()
				got := raw(t, s, rawRequest(question, "x-calinix-mode: "+mode, "Upgrade: "+upgrade, "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA", "Connection: "+connection))
				if !strings.HasPrefix(got, "HTTP/1.1 200 ") || all.Total() == 0 {
					t.Fatalf("%s: %s", upgrade, got)
				}
				for _, q := range all.Received() {
					if text := strings.ToLower(q.Head); strings.Contains(text, "h2c") || strings.Contains(text, "http2-settings") || strings.Contains(text, "upgrade") {
						t.Errorf("%s: pod %s gets %s", upgrade, q.Pod, q.Head)
					}
				}
			}
		}
	}
}

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
				// in headers only what HTTP lets through
				if value := strings.Map(func(r rune) rune {
					if r < ' ' || r == 0x7f {
						return -1
					}
					return r
				}, v); len(value) < 10_000 {
					for _, name := range []string{"x-calinix-session-key", "x-calinix-request-id", "X-Session-ID"} {
						if a := cl.Post(t, chatPath, question, "x-calinix-mode", mode, name, value); a.Status != 200 {
							t.Errorf("%s: %v", name, a)
						} else {
							inspect(a)
						}
					}
					a := cl.Post(t, chatPath, question, "x-calinix-mode", value)
					wantError(t, a, 400)
					inspect(a)
				}
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
