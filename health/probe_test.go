package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestProbeOverSockets asks real ports and names what each failing says.
func TestProbeOverSockets(t *testing.T) {
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	h := &HTTP{Transport: tr, Endpoint: "/health?full=1", Header: http.Header{
		"x-probe": {"yes"}, "Host": {"pod.example"}, "Authorization": {"Bearer probe"},
	}}
	var seen *http.Request
	serve := func(handler http.HandlerFunc) string {
		s := httptest.NewServer(handler)
		t.Cleanup(s.Close)
		return s.URL
	}
	status := func(code int) string {
		return serve(func(w http.ResponseWriter, r *http.Request) {
			seen = r
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(code)
			_, _ = w.Write([]byte(strings.Repeat("x", 200)))
		})
	}
	refused := func() string {
		l := listen(t)
		defer l.Close()
		return "http://" + l.Addr().String()
	}
	// raw answers each connection by f and closes it.
	raw := func(f func(net.Conn)) string {
		l := listen(t)
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = c.Read(make([]byte, 4096))
				f(c)
				c.Close()
			}
		}()
		return "http://" + l.Addr().String()
	}
	private := httptest.NewTLSServer(http.NotFoundHandler())
	private.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(private.Close)

	for _, c := range []struct {
		name, url string
		kind      Kind
		detail    string
	}{
		{"200", status(200), OK, "200 OK"},
		{"204 below a path", status(204) + "/base/", OK, "204 No Content"},
		{"302 is not followed", status(302), BadStatus, "302 Found"},
		{"503", status(503), BadStatus, "503 Service Unavailable"},
		{"silent", serve(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }), Late, "no answer in time"},
		{"endless body", serve(func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				_, _ = w.Write(make([]byte, 4096))
			}
		}), OK, "200 OK"},
		{"refused", refused(), Dropped, "connection refused"},
		{"reset", raw(func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0) }), Dropped, "connection reset by peer"},
		{"closed without an answer", raw(func(net.Conn) {}), Dropped, "EOF"},
		{"closed within the header", raw(func(c net.Conn) { _, _ = c.Write([]byte("HTTP/1.1 200 OK\r\nServer: x\r\n")) }), Dropped, "unexpected EOF"},
		{"no HTTP", raw(func(c net.Conn) { _, _ = c.Write([]byte("SSH-2.0-x\r\n\r\n")) }), Failed, "malformed HTTP"},
		{"private certificate", private.URL, Failed, "x509: certificate signed by unknown authority"},
		{"no TLS where TLS was asked for", strings.Replace(status(200), "http:", "https:", 1), Failed, "first record does not look like a TLS handshake"},
		{"bad URL", "http://[::1", Failed, "missing ']' in host"},
	} {
		t.Run(c.name, func(t *testing.T) {
			limit := 20 * time.Second
			if c.kind == Late {
				limit = 300 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			r := h.Probe(ctx, Pod{ID: "p", URL: c.url})
			if r.Kind != c.kind || !strings.Contains(r.Detail, c.detail) {
				t.Errorf("%s %q, want %s %q", r.Kind, r.Detail, c.kind, c.detail)
			}
		})
	}
	for got, want := range map[string]string{
		seen.Method: "GET", seen.Host: "pod.example", seen.RequestURI: "/health?full=1",
		seen.Header.Get("X-Probe"): "yes", seen.Header.Get("Authorization"): "Bearer probe",
		seen.UserAgent(): "calinix-health",
	} {
		if got != want {
			t.Errorf("the pod saw %q, want %q", got, want)
		}
	}
}

// TestClassify holds the errors that a test cannot bring about by a socket.
func TestClassify(t *testing.T) {
	dial := func(err error) error {
		return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", err)}
	}
	for _, c := range []struct {
		err  error
		want Kind
	}{
		{dial(syscall.EHOSTUNREACH), Dropped},
		{dial(syscall.ETIMEDOUT), Late},
		{dial(syscall.ENETUNREACH), Failed},   // our network, not the pod
		{dial(syscall.EMFILE), Failed},        // our shortage
		{dial(syscall.EADDRNOTAVAIL), Failed}, // our shortage
		{&net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "pod", IsNotFound: true}}, Failed},
		{&net.OpError{Op: "dial", Err: &net.DNSError{Err: "i/o timeout", Name: "pod", IsTimeout: true}}, Failed},
		{fmt.Errorf("round trip: %w", context.DeadlineExceeded), Late},
		{os.ErrDeadlineExceeded, Late},
		{fmt.Errorf("write: %w", syscall.EPIPE), Dropped},
		{errors.New("tls: handshake failure"), Failed},
	} {
		if got := Classify(c.err); got.Kind != c.want || !strings.Contains(got.Detail, c.err.Error()) {
			t.Errorf("%v: %s %q, want %s", c.err, got.Kind, got.Detail, c.want)
		}
	}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}
