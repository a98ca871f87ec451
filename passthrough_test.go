package calinix_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// upgrader is a pod that switches protocols and then sends back every line in
// upper case.
func upgrader(t *testing.T) *httptest.Server {
	t.Helper()
	pod := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			return // a probe
		}
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", r.Header.Get("Upgrade"))
		w.Header().Set("X-Told", r.Header.Get("X-Calinix-Target-Pod-Id")+r.Header.Get("X-Calinix-Decode-Pod-Id"))
		w.WriteHeader(http.StatusSwitchingProtocols)
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		for {
			line, err := rw.ReadString('\n')
			if err != nil || line == "bye\n" {
				return
			}
			if _, err := io.WriteString(conn, strings.ToUpper(line)); err != nil {
				return
			}
		}
	}))
	t.Cleanup(pod.Close)
	return pod
}

// TestPassUpgrade: a protocol upgrade passes in both modes, counts as one leg
// for as long as it lasts, and ends clean whoever ends it.
func TestPassUpgrade(t *testing.T) {
	pod := upgrader(t)
	for mode, keys := range map[string]string{
		"single":   "single {\npod a " + pod.URL + "\n}",
		"dispatch": "dispatch {\nprefill {\npod p http://127.0.0.1:1\n}\ndecode {\npod a " + pod.URL + "\n}\n}",
	} {
		s := serve(t, keys, testcaddy.Plain())
		for _, ender := range []string{"client", "pod"} {
			conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(testcaddy.Patience))
			fmt.Fprint(conn, "GET /v1/realtime HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			r := bufio.NewReader(conn)
			resp, err := http.ReadResponse(r, nil)
			if err != nil || resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("X-Told") != "a" {
				t.Fatalf("%s: %v %v", mode, resp, err)
			}
			for _, line := range []string{"one\n", "two\n"} {
				io.WriteString(conn, line)
				if got, err := r.ReadString('\n'); got != strings.ToUpper(line) {
					t.Fatalf("%s: sent %q, got %q (%v)", mode, line, got, err)
				}
			}
			s.waitCount(t, 1, "calinix_pod_inflight", "pod", "a")
			if ender == "client" {
				conn.Close()
			} else {
				io.WriteString(conn, "bye\n")
				if _, err := r.ReadByte(); err != io.EOF {
					t.Errorf("%s: the client sees %v at the end", mode, err)
				}
			}
			s.waitIdle(t)
		}
		s.waitCount(t, 2, "calinix_requests_total", "pod", "a", "code", "101")
		if found := s.Log.Find(func(e testcaddy.Entry) bool { return strings.Contains(e.Msg, "panic") }); len(found) > 0 {
			t.Errorf("%s: %v", mode, found)
		}
		s.Stop()
	}
}

// TestPassUpgradeHTTP3: a WebSocket over HTTP/3 is an extended CONNECT, whose
// body has no end; it reaches the pod as an HTTP/1.1 upgrade.
func TestPassUpgradeHTTP3(t *testing.T) {
	s := serve(t, "single {\npod a "+upgrader(t).URL+"\n}")
	addr := strings.TrimPrefix(s.URL, "https://")
	ctx, cancel := context.WithTimeout(t.Context(), testcaddy.Patience)
	defer cancel()
	qconn, err := quic.DialAddr(ctx, addr, &tls.Config{RootCAs: testcaddy.RootCAs(t), ServerName: "localhost", NextProtos: []string{http3.NextProtoH3}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer qconn.CloseWithError(0, "")
	tr := &http3.Transport{}
	defer tr.Close()
	stream, err := tr.NewClientConn(qconn).OpenRequestStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodConnect, s.URL+"/v1/realtime", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Proto = "websocket"
	req.Header.Set("Sec-WebSocket-Version", "13")
	if err := stream.SendRequestHeader(req); err != nil {
		t.Fatal(err)
	}
	resp, err := stream.ReadResponse()
	if err != nil || resp.StatusCode != http.StatusOK || resp.Header.Get("X-Told") != "a" {
		t.Fatalf("%v %v", resp, err)
	}
	io.WriteString(stream, "one\n")
	if got, err := bufio.NewReader(stream).ReadString('\n'); got != "ONE\n" {
		t.Fatalf("got %q (%v)", got, err)
	}
	s.waitCount(t, 1, "calinix_pod_inflight", "pod", "a")
	stream.Close()
	stream.CancelRead(0)
	s.waitIdle(t)
}

// TestPassBodiless: answers without a body, to HEAD and OPTIONS and of statuses
// that have none, come through with their headers.
func TestPassBodiless(t *testing.T) {
	s, one, _, decode := bothModes(t)
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		for mode, p := range map[string]*fakepod.Pod{"single": one, "dispatch": decode} {
			p.Set(fakepod.Reply{Body: []byte("123456789"), Header: http.Header{"Etag": {`"e"`}, "Content-Type": {"text/plain"}}})
			a := cl.Send(cl.Request(t.Context(), t, http.MethodHead, "/v1/models", "", "x-calinix-mode", mode))
			if a.Status != 200 || a.Err != nil || a.Header.Get("Content-Length") != "9" || a.Header.Get("Etag") != `"e"` || len(a.Body) > 0 {
				t.Errorf("HEAD, %s: %v", mode, a)
			}
			p.Set(fakepod.Reply{Status: 204, Body: []byte{}, Header: http.Header{"Allow": {"GET, POST"}, "Access-Control-Allow-Origin": {"*"}}})
			a = cl.Send(cl.Request(t.Context(), t, http.MethodOptions, chatPath, "", "x-calinix-mode", mode, "Origin", "https://x", "Access-Control-Request-Method", "POST"))
			if a.Status != 204 || a.Err != nil || a.Header.Get("Access-Control-Allow-Origin") != "*" || a.Header.Get("Allow") != "GET, POST" {
				t.Errorf("OPTIONS, %s: %v", mode, a)
			}
			p.Set(fakepod.Reply{Status: 304, Body: []byte{}, Header: http.Header{"Etag": {`"e"`}}})
			if a = cl.Get(t, "/v1/models", "x-calinix-mode", mode, "If-None-Match", `"e"`); a.Status != 304 || a.Err != nil || a.Header.Get("Etag") != `"e"` {
				t.Errorf("304, %s: %v", mode, a)
			}
		}
	})
	s.waitIdle(t)
}

// TestPassInformational: a pod's 103 reaches the client with the pod's headers;
// routing headers are only on the answer, and are ours.
func TestPassInformational(t *testing.T) {
	ps := pods(t, "a")
	ps[0].Set(fakepod.Reply{Raw: []byte("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\nX-Calinix-Mode: forged\r\n\r\n" +
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Calinix-Mode: forged\r\n\r\nok")})
	s := serve(t, single(ps))
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		var mu sync.Mutex
		var hints []http.Header
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(_ int, h textproto.MIMEHeader) error {
			mu.Lock()
			defer mu.Unlock()
			hints = append(hints, http.Header(h))
			return nil
		}})
		a := cl.Send(cl.Request(ctx, t, http.MethodPost, chatPath, question))
		if a.Status != 200 || string(a.Body) != "ok" || routing(t, a.Header)["X-Calinix-Mode"] != "single" {
			t.Fatal(a)
		}
		mu.Lock()
		defer mu.Unlock()
		if len(hints) != 1 || hints[0].Get("Link") != "</x>" || len(routing(t, hints[0])) != 0 {
			t.Errorf("the client got these hints: %v", hints)
		}
	})
}

// TestPassExpectContinue: a client that waits for 100 gets it once, and the pod
// is not asked for another.
func TestPassExpectContinue(t *testing.T) {
	s, one, prefill, decode := bothModes(t)
	for _, mode := range []string{"single", "dispatch"} {
		n := 0
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got100Continue: func() { n++ }})
		cl := s.Client(t, testcaddy.H1)
		cl.HTTP.Transport.(*http.Transport).ExpectContinueTimeout = testcaddy.Patience
		a := cl.Send(cl.Request(ctx, t, http.MethodPost, chatPath, question, "Expect", "100-continue", "x-calinix-mode", mode))
		if a.Status != 200 || n != 1 {
			t.Errorf("%s: %d times 100: %v", mode, n, a)
		}
	}
	for _, p := range []*fakepod.Pod{one, prefill, decode} {
		if v := p.Last(t).Header.Values("Expect"); len(v) > 0 {
			t.Errorf("pod %s gets Expect: %q", p.Name, v)
		}
	}
}

// TestPassHandleResponse: reverse_proxy's handle_response keeps its meaning; an
// error that its routes raise goes to handle_errors.
func TestPassHandleResponse(t *testing.T) {
	ps := pods(t, "a")
	s := serve(t, single(ps)+`
		@teapot status 418
		handle_response @teapot {
			error "no tea" 410
		}
		@gone status 404
		handle_response @gone {
			respond "replaced by {rp.status_code}" 200
		}
		@quota status 429
		replace_status @quota 503`)
	cl := s.Client(t, testcaddy.H2)
	ps[0].Set(fakepod.Reply{Status: 404})
	if a := cl.Post(t, chatPath, question); a.Status != 200 || string(a.Body) != "replaced by 404" {
		t.Errorf("replaced: %v", a)
	}
	ps[0].Set(fakepod.Reply{Status: 429, Body: []byte("slow down")})
	if a := cl.Post(t, chatPath, question); a.Status != 503 || string(a.Body) != "slow down" {
		t.Errorf("other status: %v", a)
	}
	ps[0].Set(fakepod.Reply{Status: 418})
	if a := cl.Post(t, chatPath, question); a.Status != 410 {
		t.Errorf("error: %v", a)
	}
	s.waitIdle(t, ps)
	for _, code := range []string{"404", "429", "418"} {
		s.waitCount(t, 1, "calinix_requests_total", "pod", "a", "code", code)
	}
}
