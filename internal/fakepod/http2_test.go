package fakepod_test

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/calinix/caddy-calinix/internal/fakepod"
)

func TestTLS(t *testing.T) {
	cert := fakepod.NewCert(t, "localhost", "127.0.0.1")
	p := fakepod.New(t, fakepod.Options{Name: "a", Cert: cert})
	url := strings.Replace(p.URL, "127.0.0.1", "localhost", 1)
	if a := send(t, trusting(t, cert), url, "x"); a.status != 200 || a.proto != "HTTP/1.1" {
		t.Fatalf("%+v", a)
	}
	q := p.Last(t)
	if q.TLS == nil || q.TLS.ServerName != "localhost" || q.Host != strings.TrimPrefix(url, "https://") {
		t.Errorf("SNI %+v, Host %s", q.TLS, q.Host)
	}
	// a client that does not trust it fails, and the pod knows why
	a := send(t, client(t), url, "x")
	if a.err == nil || !strings.Contains(a.err.Error(), "certificate") {
		t.Errorf("%+v", a)
	}
	p.WaitOpen(t, 1)
	if cn := p.Conns()[1]; cn.Err == nil || !strings.Contains(cn.Err.Error(), "TLS handshake") || cn.Requests != 0 {
		t.Errorf("%+v", cn)
	}
	if f, err := os.ReadFile(cert.File(t)); err != nil || string(f) != string(cert.PEM) {
		t.Errorf("CA file %q, %v", f, err)
	}
}

func TestHTTP2(t *testing.T) {
	cert := fakepod.NewCert(t)
	for _, secure := range []bool{false, true} {
		o := fakepod.Options{Name: "a", Protocol: fakepod.HTTP2}
		c, old := http2Client(t, nil), client(t)
		if secure {
			o.Cert = cert
			c, old = http2Client(t, cert), trusting(t, cert)
		}
		p := fakepod.New(t, o)
		a := send(t, c, p.URL+chat, `{"stream":true}`)
		if a.err != nil || a.proto != "HTTP/2.0" || len(events(a.body)) != 7 {
			t.Fatalf("%+v", a)
		}
		if q := p.WaitEnded(t, 1); q.Proto != "HTTP/2.0" || (q.TLS != nil) != secure || q.Head != "" || string(q.Body) != `{"stream":true}` || q.End != fakepod.Whole {
			t.Errorf("%+v", q)
		}
		if a := send(t, old, p.URL+chat, `{}`); a.proto != "HTTP/1.1" || a.err != nil {
			t.Errorf("HTTP/1.1: %+v", a)
		}
		p.Set(fakepod.Reply{Status: 429, Header: http.Header{"Retry-After": {"3"}}})
		if a := send(t, c, p.URL+chat, `{}`); a.status != 429 || a.header.Get("Retry-After") != "3" || a.header.Get("Content-Length") == "" {
			t.Errorf("%+v", a)
		}

		// an aborted stream leaves the other streams of its connection alone
		hold := make(chan struct{})
		p.Set(fakepod.Reply{Hold: hold})
		got := make(chan answer, 1)
		go func() { got <- send(t, c, p.URL+chat, `{}`) }()
		p.WaitRequests(t, 4)
		p.Next(fakepod.Reply{Cut: fakepod.Abort, At: fakepod.AfterChunks(3), Gap: fakepod.NoGap})
		a = send(t, c, p.URL+chat, `{"stream":true}`)
		if a.status != 200 || a.err == nil || !strings.Contains(a.err.Error(), "stream error") || len(events(a.body)) != 3 {
			t.Errorf("abort: %+v", a)
		}
		close(hold)
		if a := <-got; a.status != 200 || a.err != nil {
			t.Errorf("beside the aborted stream: %+v", a)
		}
		if q := p.WaitEnded(t, 5); q.Conn != 1 || q.End != fakepod.CutByPod {
			t.Errorf("%v", q)
		}

		// a reset takes all streams with it
		for _, how := range []fakepod.Cut{fakepod.Reset, fakepod.Close} {
			p.Forget()
			p.Set(fakepod.Reply{Silent: true})
			go func() { got <- send(t, c, p.URL+chat, `{}`) }()
			conn := p.WaitRequests(t, 1)[0].Conn
			p.Next(fakepod.Reply{Cut: how, At: fakepod.AfterChunks(3), Gap: fakepod.NoGap})
			a = send(t, c, p.URL+chat, `{"stream":true}`)
			if a.status != 200 || a.err == nil || len(events(a.body)) != 3 {
				t.Errorf("cut %d: %+v", how, a)
			}
			if a := <-got; a.err == nil {
				t.Errorf("cut %d: the other stream lives: %+v", how, a)
			}
			p.Wait(t, "the connection to end", func(s fakepod.State) bool { return !s.Conns[conn-1].Closed.IsZero() })
			if cn := p.Conns()[conn-1]; cn.Reset != (how == fakepod.Reset) || cn.ByPeer {
				t.Errorf("cut %d: %+v", how, cn)
			}
		}
		p.Set(fakepod.Reply{Raw: []byte("x")})
		if a := send(t, c, p.URL+chat, `{}`); a.err == nil && a.status == 200 && a.body != "" {
			t.Errorf("a raw answer on HTTP/2: %+v", a)
		}
	}
}
