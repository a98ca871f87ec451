package fakepod_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/fakepod"
)

// Every way to break off, at every place, seen by a plain client over plain TCP
// and over TLS.
func TestCut(t *testing.T) {
	const big = 300_000
	blob := bytes.Repeat([]byte("0123456789"), big/10)
	gap := fakepod.NoGap
	for _, tc := range []struct {
		name   string
		reply  fakepod.Reply
		stream bool
		status int // 0: no answer at all
		body   int // bytes, or -1: chunks of a stream
		chunks int
	}{
		{name: "before headers", reply: fakepod.Reply{At: fakepod.BeforeHeaders}},
		{name: "after headers", reply: fakepod.Reply{At: fakepod.AfterHeaders}, status: 200},
		{name: "after headers of a stream", reply: fakepod.Reply{At: fakepod.AfterHeaders}, stream: true, status: 200},
		{name: "after 3 chunks", reply: fakepod.Reply{At: fakepod.AfterChunks(3), Gap: gap}, stream: true, status: 200, body: -1, chunks: 3},
		{name: "after all 5 chunks", reply: fakepod.Reply{At: fakepod.AfterChunks(5), Gap: gap}, stream: true, status: 200, body: -1, chunks: 5},
		{name: "half a body", reply: fakepod.Reply{At: fakepod.HalfBody, Body: blob}, status: 200, body: big / 2},
		{name: "after 10 bytes", reply: fakepod.Reply{At: fakepod.AfterBytes(10), Body: blob}, status: 200, body: 10},
		{name: "half of an error", reply: fakepod.Reply{At: fakepod.HalfBody, Status: 500, Body: blob}, status: 500, body: big / 2},
		{name: "chunked body without its end", reply: fakepod.Reply{At: fakepod.AfterChunks(1), Body: blob, Framing: fakepod.Chunked}, status: 200, body: big},
	} {
		for _, how := range []fakepod.Cut{fakepod.Reset, fakepod.Close} {
			for _, secure := range []bool{false, true} {
				name := tc.name + map[fakepod.Cut]string{fakepod.Reset: "/reset", fakepod.Close: "/close"}[how]
				o, c := fakepod.Options{Name: "a"}, client(t)
				if secure {
					name += "/TLS"
					o.Cert = fakepod.NewCert(t)
					c = trusting(t, o.Cert)
				}
				t.Run(name, func(t *testing.T) {
					reply := tc.reply
					reply.Cut = how
					o.Script = reply
					p := fakepod.New(t, o)
					body := `{}`
					if tc.stream {
						body = `{"stream":true}`
					}
					a := send(t, c, p.URL+chat, body)
					if a.status != tc.status {
						t.Errorf("status %d (%v), want %d", a.status, a.err, tc.status)
					}
					wantErr := io.ErrUnexpectedEOF
					if tc.status == 0 {
						wantErr = io.EOF
					}
					if how == fakepod.Reset {
						if !errors.Is(a.err, syscall.ECONNRESET) {
							t.Errorf("error %v, want a reset", a.err)
						}
					} else if !errors.Is(a.err, wantErr) {
						t.Errorf("error %v, want %v", a.err, wantErr)
					}
					if tc.body >= 0 && len(a.body) != tc.body {
						t.Errorf("%d bytes of body, want %d", len(a.body), tc.body)
					}
					if tc.body < 0 {
						es := events(a.body)
						if len(es) != tc.chunks || strings.Join(es, "") != a.body || strings.Contains(a.body, "stop") || strings.Contains(a.body, "[DONE]") {
							t.Errorf("the client has %q, want exactly %d chunks", a.body, tc.chunks)
						}
					}
					q := p.WaitEnded(t, 1)
					if q.End != fakepod.CutByPod || q.ClosedEarly || q.Status != tc.status {
						t.Errorf("record %v", q)
					}
					p.WaitOpen(t, 0)
					if cn := p.Conns()[0]; cn.ByPeer || cn.Reset != (how == fakepod.Reset) || cn.Err != nil {
						t.Errorf("connection %+v", cn)
					}
				})
			}
		}
	}
}

// In the middle of a chunk the client has half an event.
func TestCutInsideAChunk(t *testing.T) {
	p := fakepod.New(t, fakepod.Options{Script: fakepod.Reply{Cut: fakepod.Reset, At: fakepod.HalfBody, Chunks: 4, Gap: fakepod.NoGap}})
	a := send(t, client(t), p.URL+chat, `{"stream":true}`)
	if !errors.Is(a.err, syscall.ECONNRESET) || strings.Count(a.body, "\n\n") != 2 || strings.HasSuffix(a.body, "\n\n") {
		t.Errorf("%q, %v", a.body, a.err)
	}
	if q := p.WaitEnded(t, 1); len(q.Sent) != 2 {
		t.Errorf("%d whole pieces", len(q.Sent))
	}
}

// A reset while the peer still sends its body.
func TestUnread(t *testing.T) {
	body := strings.Repeat("x", 8<<20)
	for _, read := range []int64{0, 100_000} {
		t.Run("reset after "+strconv.Itoa(int(read)), func(t *testing.T) {
			p := fakepod.New(t, fakepod.Options{Script: fakepod.Unread{Bytes: read, Reply: fakepod.Reply{Cut: fakepod.Reset}}})
			a := send(t, client(t), p.URL+chat, body)
			if a.status != 0 || !isReset(a.err) {
				t.Errorf("%d, %v", a.status, a.err)
			}
			q := p.WaitEnded(t, 1)
			if q.BodyRead || int64(len(q.Body)) != read || q.End != fakepod.CutByPod {
				t.Errorf("%v, body read %v", q, q.BodyRead)
			}
		})
	}
	t.Run("early refusal", func(t *testing.T) {
		p := fakepod.New(t, fakepod.Options{Script: fakepod.Unread{Bytes: 10, Reply: fakepod.Reply{Status: 413, Close: true}}})
		a := send(t, client(t), p.URL+chat, body)
		if a.status != 413 {
			t.Errorf("%d, %v", a.status, a.err)
		}
	})
	t.Run("body shorter than the limit", func(t *testing.T) {
		p := fakepod.New(t, fakepod.Options{Script: fakepod.Unread{Bytes: 10, Reply: fakepod.Reply{}}})
		if a := send(t, client(t), p.URL+chat, "abc"); a.status != 200 || string(p.Last(t).Body) != "abc" || !p.Last(t).BodyRead {
			t.Errorf("%+v, %+v", a, p.Last(t))
		}
	})
	t.Run("behind a predicate the body is read", func(t *testing.T) {
		p := fakepod.New(t, fakepod.Options{})
		p.When(func(r fakepod.Request) bool { return string(r.Body) == "abc" }, fakepod.Unread{Reply: fakepod.Reply{Status: 418}})
		if a := send(t, client(t), p.URL+chat, "abc"); a.status != 418 || string(p.Last(t).Body) != "abc" {
			t.Errorf("%+v", a)
		}
	})
}

func TestFraming(t *testing.T) {
	p := fakepod.New(t, fakepod.Options{Name: "a"})
	c := client(t)
	p.Set(fakepod.Reply{Framing: fakepod.Chunked, Body: []byte("hello")})
	if a := send(t, c, p.URL, "x"); a.body != "hello" || len(a.te) != 1 || a.te[0] != "chunked" {
		t.Errorf("chunked: %+v", a)
	}
	p.Set(fakepod.Reply{Framing: fakepod.Length, Gap: fakepod.NoGap})
	if a := send(t, c, p.URL+chat, `{"stream":true}`); a.header.Get("Content-Length") != strconv.Itoa(len(a.body)) || len(events(a.body)) != 7 {
		t.Errorf("a stream with a length: %+v", a)
	}
	p.Set(fakepod.Reply{Framing: fakepod.UntilClose, Body: []byte("hello")})
	if a := send(t, c, p.URL, "x"); a.body != "hello" || a.err != nil || a.header.Get("Content-Length") != "" || a.te != nil {
		t.Errorf("until close: %+v", a)
	}
	p.WaitOpen(t, 0)
	p.Set(fakepod.Reply{Close: true, Body: []byte("hello")})
	if a := send(t, c, p.URL, "x"); a.body != "hello" || a.err != nil {
		t.Errorf("close after the answer: %+v", a)
	}
	p.WaitOpen(t, 0)
	p.Set(fakepod.Reply{Header: http.Header{"Content-Length": {"9"}}, Body: []byte("hello"), Close: true})
	if a := send(t, c, p.URL, "x"); a.body != "hello" || !errors.Is(a.err, io.ErrUnexpectedEOF) {
		t.Errorf("a length that is not true: %+v", a)
	}
	p.Set(fakepod.Reply{Raw: []byte("HTTP/9.9 what\r\n\r\n")})
	if a := send(t, c, p.URL, "x"); a.err == nil || !strings.Contains(a.err.Error(), "malformed HTTP") {
		t.Errorf("raw: %+v", a)
	}
	p.Set(fakepod.Reply{Raw: []byte("HTTP/1.1 200 OK\r\nX: y"), Cut: fakepod.Reset})
	if a := send(t, c, p.URL, "x"); a.status != 0 || a.err == nil {
		t.Errorf("raw and reset: %v", a.err)
	}
	p.Set(fakepod.Reply{Body: []byte("hello")})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodHead, p.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if a := do(c, req); a.status != 200 || a.body != "" || a.err != nil || a.header.Get("Content-Length") != "5" {
			t.Errorf("HEAD: %+v", a)
		}
	}
}

func TestPrefillReply(t *testing.T) {
	kv := `{"remote_engine_id":"e-1","remote_block_ids":[1,2,9007199254740993],"remote_host":"127.0.0.1","remote_port":5600}`
	p := fakepod.New(t, fakepod.Options{Name: "p1"})
	c := client(t) // DisableCompression: the test sees the encoding
	for _, tc := range []struct {
		name  string
		reply fakepod.Reply
		want  string
	}{
		{"plain", fakepod.Reply{KV: []byte(kv)}, kv},
		{"chunked", fakepod.Reply{KV: []byte(kv), Framing: fakepod.Chunked}, kv},
		{"gzip", fakepod.Reply{KV: []byte(kv), Gzip: true}, kv},
		{"gzip and chunked", fakepod.Reply{KV: []byte(kv), Gzip: true, Framing: fakepod.Chunked}, kv},
		{"null", fakepod.Reply{KV: fakepod.Null}, "null"},
		{"missing", fakepod.Reply{}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p.Set(tc.reply)
			a := send(t, c, p.URL+chat, `{"max_tokens":1}`)
			if a.err != nil || a.status != 200 {
				t.Fatalf("%+v", a)
			}
			if chunked := len(a.te) == 1; chunked != (tc.reply.Framing == fakepod.Chunked) {
				t.Errorf("transfer encoding %v", a.te)
			}
			if gz := a.header.Get("Content-Encoding") == "gzip"; gz != tc.reply.Gzip {
				t.Errorf("content encoding %q", a.header.Get("Content-Encoding"))
			}
			// the answer has the shape of a request's record: let that undo it
			q := fakepod.Request{Header: a.header, Body: []byte(a.body)}
			v, ok := q.Member("kv_transfer_params")
			if string(v) != tc.want || ok != (tc.want != "") {
				t.Errorf("kv_transfer_params %s, want %s", v, tc.want)
			}
			if pod, _ := q.Member("pod"); string(pod) != `"p1"` {
				t.Errorf("pod %s", pod)
			}
		})
	}
}

// Delay and Hold put off the headers, and the peer's leaving ends both.
func TestDelayHoldSilent(t *testing.T) {
	p := fakepod.New(t, fakepod.Options{Name: "a", Script: fakepod.Reply{Delay: 50 * time.Millisecond}})
	c := client(t)
	if a := send(t, c, p.URL+chat, `{}`); a.status != 200 {
		t.Fatalf("%+v", a)
	}
	if q := p.WaitEnded(t, 1); q.FirstByte.Sub(q.BodyDone) < 50*time.Millisecond {
		t.Errorf("answered after %v", q.FirstByte.Sub(q.BodyDone))
	}
	hold := make(chan struct{})
	p.Set(fakepod.Reply{Hold: hold})
	got := make(chan answer, 1)
	go func() { got <- send(t, c, p.URL+chat, `{}`) }()
	p.WaitRequests(t, 2)
	if p.InFlight() != 1 {
		t.Errorf("%d in flight", p.InFlight())
	}
	select {
	case a := <-got:
		t.Fatalf("answered while held: %+v", a)
	case <-time.After(20 * time.Millisecond): // not a wait: the answer must not come
	}
	close(hold)
	if a := <-got; a.status != 200 {
		t.Errorf("%+v", a)
	}
	p.WaitInFlight(t, 0)
}
