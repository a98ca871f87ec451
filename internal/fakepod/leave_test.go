package fakepod_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/fakepod"
)

// trusting is an HTTP/1.1 client that trusts only this certificate.
func trusting(t *testing.T, cert *fakepod.Cert) *http.Client {
	t.Helper()
	tr := &http.Transport{
		DisableCompression: true, TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{},
		TLSClientConfig: &tls.Config{RootCAs: cert.Pool(), MinVersion: tls.VersionTLS12},
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 20 * time.Second}
}

// The pod notices a client that leaves, in every phase and over every protocol,
// and says when.
func TestClosedEarly(t *testing.T) {
	cert := fakepod.NewCert(t)
	for _, proto := range []struct {
		name   string
		o      fakepod.Options
		client func(t *testing.T) *http.Client
	}{
		{"h1", fakepod.Options{}, client},
		{"h1 TLS", fakepod.Options{Cert: cert}, func(t *testing.T) *http.Client { return trusting(t, cert) }},
		{"h2c", fakepod.Options{Protocol: fakepod.HTTP2}, func(t *testing.T) *http.Client { return http2Client(t, nil) }},
		{"h2", fakepod.Options{Protocol: fakepod.HTTP2, Cert: cert}, func(t *testing.T) *http.Client { return http2Client(t, cert) }},
	} {
		for _, phase := range []struct {
			name  string
			reply fakepod.Reply
			sent  int
			size  int
		}{
			{"silent", fakepod.Reply{Silent: true}, 0, 0},
			{"silent, big body", fakepod.Reply{Silent: true}, 0, 400_000},
			{"delay", fakepod.Reply{Delay: time.Minute}, 0, 0},
			{"hold", fakepod.Reply{Hold: make(chan struct{})}, 0, 0},
			{"after headers", fakepod.Reply{FirstChunk: time.Minute}, 0, 0},
			{"in mid-stream", fakepod.Reply{Pause: time.Minute, PauseAfter: 2, Gap: fakepod.NoGap}, 2, 0},
			{"before the end", fakepod.Reply{LateEnd: time.Minute, Gap: fakepod.NoGap}, 7, 0},
		} {
			t.Run(proto.name+"/"+phase.name, func(t *testing.T) {
				o := proto.o
				o.Script = phase.reply
				p := fakepod.New(t, o)
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				done := make(chan answer, 1)
				go func() {
					done <- sendCtx(t, ctx, proto.client(t), p.URL+chat, `{"stream":true}`+strings.Repeat(" ", phase.size))
				}()
				p.WaitRequests(t, 1)
				if phase.sent > 0 || phase.name == "after headers" {
					p.Wait(t, "the headers", func(s fakepod.State) bool { return s.Requests[0].Status == 200 })
					p.WaitSent(t, 1, phase.sent)
				}
				left := time.Now()
				leave()
				if a := <-done; !errors.Is(a.err, context.Canceled) {
					t.Errorf("the client saw %v", a.err)
				}
				q := p.WaitClosed(t, 1)
				if q.End != fakepod.PeerLeft || q.ClosedBy == nil || q.ClosedAt.Before(left) || len(q.Sent) != phase.sent {
					t.Errorf("record %v: %v at %v, left at %v, %d pieces", q, q.ClosedBy, q.ClosedAt, left, len(q.Sent))
				}
				p.WaitInFlight(t, 0)
				if p.MaxInFlight() != 1 {
					t.Errorf("at most %d in flight", p.MaxInFlight())
				}
			})
		}
	}
}

// A client that leaves while it sends its body, by FIN and by reset.
func TestClosedEarlyInTheBody(t *testing.T) {
	for _, reset := range []bool{false, true} {
		p := fakepod.New(t, fakepod.Options{})
		c := dial(t, p)
		io.WriteString(c, "POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\nhalf")
		p.WaitHead(t, 1)
		want := io.ErrUnexpectedEOF
		if reset {
			_ = c.(*net.TCPConn).SetLinger(0)
			want = syscall.ECONNRESET
		}
		c.Close()
		q := p.WaitClosed(t, 1)
		if q.BodyRead || !errors.Is(q.BodyErr, want) || !errors.Is(q.ClosedBy, want) {
			t.Errorf("reset %v: %v, body error %v", reset, q, q.BodyErr)
		}
		p.WaitOpen(t, 0)
		if cn := p.Conns()[0]; !cn.ByPeer || cn.Reset || !errors.Is(cn.Err, want) {
			t.Errorf("reset %v: connection %+v", reset, cn)
		}
	}
}

// An orderly leaving and a reset are told apart while the pod is silent.
func TestClosedByTellsResetFromClose(t *testing.T) {
	for _, reset := range []bool{false, true} {
		p := fakepod.New(t, fakepod.Options{Script: fakepod.Reply{Silent: true}})
		c := dial(t, p)
		io.WriteString(c, "GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
		p.WaitRequests(t, 1)
		want := io.EOF
		if reset {
			_ = c.(*net.TCPConn).SetLinger(0)
			want = syscall.ECONNRESET
		}
		c.Close()
		if q := p.WaitClosed(t, 1); !errors.Is(q.ClosedBy, want) {
			t.Errorf("reset %v: closed by %v", reset, q.ClosedBy)
		}
	}
}

// A peer that reads nothing does not keep the pod from ending.
func TestSlowReader(t *testing.T) {
	p := fakepod.New(t, fakepod.Options{Script: fakepod.Reply{Body: make([]byte, 64<<20)}})
	c := dial(t, p)
	io.WriteString(c, "GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
	p.Wait(t, "the head of the answer", func(s fakepod.State) bool { return len(s.Requests) == 1 && s.Requests[0].Status == 200 })
	p.Close()
	if q := p.Requests()[0]; q.End != fakepod.PodGone || q.ClosedEarly {
		t.Errorf("%v", q)
	}
}
