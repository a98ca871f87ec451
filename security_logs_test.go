package calinix_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// logFilter is the filter that docs/logs.md shows.
func logFilter(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("docs/logs.md")
	if err != nil {
		t.Fatal(err)
	}
	_, filter, _ := strings.Cut(string(page), "```caddyfile\n{\n")
	filter, _, found := strings.Cut(filter, "\n}\n```")
	if !found {
		t.Fatal("docs/logs.md has no example of a filter")
	}
	return filter
}

// secureLogs: with every kind of end, over every protocol and at DEBUG, no line
// has a prompt, an answer, a credential or a session key; of headers that nobody
// knows for credentials, and of queries, Caddy's access log alone has the values.
func secureLogs(t *testing.T) {
	all := pods(t, "a", "b", "p", "d")
	ps, pre, dec := all[:2], all[2:3], all[3:]
	s := serve(t, "max_body_bytes 5000\n"+inOrder+"retry_status 599\n"+single(ps)+dispatch(pre, dec), testcaddy.Global(logFilter(t)))
	nowhere, accessOnly := []string{"SECRET-answer"}, []string(nil)
	n := 0
	send := func(cl *testcaddy.Client, how func(*http.Request)) {
		n++
		secret := func(what string) string {
			text := fmt.Sprintf("SECRET-%s-%d", what, n)
			nowhere = append(nowhere, text)
			return text
		}
		body := fmt.Sprintf(`{"model":"m","max_tokens":3,"messages":[{"role":"system","content":%q},{"role":"user","content":%q}],"user":%q,"session_id":%q,"prompt_cache_key":%q,"safety_identifier":%q}`,
			secret("system"), secret("prompt"), secret("user"), secret("session"), secret("cachekey"), secret("safety"))
		ctx, cancel := testContext(t)
		defer cancel()
		req := cl.Request(ctx, t, http.MethodPost, chatPath+"?key="+secret("query")+fmt.Sprintf("&team=SECRET-team-%d", n), body,
			"Authorization", "Bearer "+secret("token"), "Cookie", "c="+secret("cookie"), "Proxy-Authorization", "Basic "+secret("proxy"),
			"x-calinix-session-key", secret("key"), "X-Session-ID", secret("sid"), "X-Conversation-ID", secret("cid"), "X-Api-Key", secret("apikey"),
			"X-Team-Token", fmt.Sprintf("SECRET-team-%d", n), "X-Calinix-Mode", "single")
		accessOnly = append(accessOnly, fmt.Sprintf("SECRET-team-%d", n))
		how(req)
		done := make(chan *testcaddy.Answer)
		go func() { done <- cl.Send(req) }()
		select {
		case <-done:
		case <-time.After(300 * time.Millisecond): // a pod is silent
			cancel()
			<-done
		}
		s.waitIdle(t)
		for _, p := range all {
			p.Clear()
		}
	}
	mode := func(m string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("X-Calinix-Mode", m) }
	}
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("X-Calinix-Mode", "dispatch"); r.Header.Set(name, value) }
	}
	long := func(r *http.Request) {
		r.Body, r.ContentLength, r.GetBody = http.NoBody, 0, nil
		r.Header.Set("X-Long", strings.Repeat("x", 10_000))
	}
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		answer := fakepod.Reply{Content: "SECRET-answer"}
		for _, p := range all {
			p.Set(answer)
		}
		send(cl, mode("single"))
		send(cl, mode("dispatch"))
		send(cl, mode("auto"))                                     // 400
		send(cl, header("Content-Encoding", "br"))                 // 415
		send(cl, header("Content-Encoding", "gzip"))               // 400
		send(cl, func(r *http.Request) { r.Method = "SECRETIVE" }) // passed on
		send(cl, long)
		for _, reply := range []fakepod.Script{
			fakepod.Reply{Status: 400, Content: "SECRET-answer"},
			fakepod.Reply{Status: 503},
			fakepod.Reply{Status: 599},
			fakepod.Reply{Cut: fakepod.Reset, Delay: 120 * time.Millisecond},
			fakepod.Reply{Cut: fakepod.Reset, At: fakepod.HalfBody, Content: "SECRET-answer"},
			fakepod.Reply{Cut: fakepod.Close, At: fakepod.AfterChunks(1), Stream: fakepod.Always, Content: "SECRET-answer"},
			fakepod.Reply{Silent: true},
			fakepod.Reply{Body: []byte("SECRET-answer")},
			fakepod.Reply{Status: 302, Header: http.Header{"Location": {"/"}}},
		} {
			for _, m := range []string{"single", "dispatch"} {
				ps[0].Set(reply)
				pre[0].Set(reply)
				send(cl, mode(m))
			}
			dec[0].Set(reply)
			send(cl, mode("dispatch"))
		}
		all[0].Refuse()
		pre[0].Refuse()
		send(cl, mode("single"))
		send(cl, mode("dispatch"))
		for _, p := range []*fakepod.Pod{all[0], pre[0]} {
			if err := p.Listen(); err != nil {
				t.Fatal(err)
			}
		}
		drain(t, s.Caddy, "a", "drain")
		drain(t, s.Caddy, "b", "drain")
		send(cl, mode("single")) // 503
		drain(t, s.Caddy, "a", "undrain")
		drain(t, s.Caddy, "b", "undrain")
	})
	s.Stop()
	s.Log.AssertAbsent(t, nowhere...)
	seen := 0
	for _, e := range s.Log.Entries() {
		if strings.HasPrefix(e.Logger, "http.log.access") {
			continue
		}
		seen++
		for _, secret := range accessOnly {
			if strings.Contains(e.Line, secret) {
				t.Errorf("a line of %s: %s", e.Logger, e.Line)
			}
		}
	}
	if legs := s.Log.Find(func(e testcaddy.Entry) bool { return e.Msg == "upstream roundtrip" }); len(legs) < n || seen < 2*n {
		t.Errorf("%d lines about legs, %d in all: the log is not at DEBUG", len(legs), seen)
	}
}

// secureBrokenPods: an answer that breaks HTTP is quoted neither in the log nor to
// the client.
func secureBrokenPods(t *testing.T) {
	const word = "SECRET-answer"
	answers := make(chan string, 1)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close(); close(answers) })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				req, err := http.ReadRequest(bufio.NewReader(conn))
				if err != nil {
					return
				}
				answer := "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
				if req.URL.Path != "/health" {
					answer = <-answers
				}
				fmt.Fprint(conn, answer)
			}()
		}
	}()
	pod := "http://" + ln.Addr().String()
	s := serve(t, "retries 0\nsingle {\npod a "+pod+"\n}\ndispatch {\nconnector nixl\nprefill {\npod p "+pod+"\n}\ndecode {\npod d "+pod+"\n}\n}")
	const ok = "HTTP/1.1 200 OK\r\nConnection: close\r\n"
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		for what, answer := range map[string]string{
			"no status line":      word + " " + word + "\r\n\r\n",
			"a bad status":        "HTTP/1.1 2x0 " + word + "\r\n\r\n",
			"a bad version":       "HTTP/" + word + " 200 OK\r\n\r\n",
			"a line without name": ok + word + "\r\n\r\n",
			"a bad length":        ok + "Content-Length: " + word + "\r\n\r\n",
			"a bad coding":        ok + "Transfer-Encoding: " + word + "\r\n\r\n",
			"a bad chunk":         ok + "Transfer-Encoding: chunked\r\n\r\n" + word + "\r\n",
			"after a chunk":       ok + "Transfer-Encoding: chunked\r\n\r\n1\r\nx" + word + "\r\n",
			"a bad trailer":       ok + "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n" + word + "\r\n\r\n",
		} {
			for _, m := range []string{"single", "dispatch"} {
				answers <- answer
				a := cl.Post(t, chatPath, question, "x-calinix-mode", m)
				if a.Status == 0 && cl.Protocol != testcaddy.H3 {
					t.Errorf("%s: %v", what, a)
				}
				if a.Status >= 500 && strings.Contains(string(a.Body), word) {
					t.Errorf("%s: %v", what, a)
				}
				for len(answers) > 0 { // it was not asked for
					<-answers
				}
			}
		}
	})
	s.waitIdle(t)
	for _, e := range s.Log.Entries() {
		if strings.Contains(e.Line, word) && !strings.HasPrefix(e.Logger, "http.log.access") {
			t.Errorf("a line of %s: %s", e.Logger, e.Line)
		}
	}
	if failed := s.Log.Find(func(e testcaddy.Entry) bool { return strings.Contains(e.Line, "the pod's answer is not HTTP") }); len(failed) < 10 {
		t.Errorf("%d lines say that an answer was not HTTP", len(failed))
	}
}
