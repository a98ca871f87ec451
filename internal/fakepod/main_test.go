package fakepod_test

import (
	"bytes"
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

	"go.uber.org/goleak"

	"github.com/calinix/caddy-calinix/internal/fakepod"
)

// Every goroutine of every pod has ended with its pod.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const chat = "/v1/chat/completions"

// client is a plain HTTP client of a test's own.
func client(t *testing.T) *http.Client {
	t.Helper()
	tr := &http.Transport{DisableCompression: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 20 * time.Second}
}

// http2Client speaks HTTP/2 only: by prior knowledge, or over TLS trusting cert.
func http2Client(t *testing.T, cert *fakepod.Cert) *http.Client {
	t.Helper()
	p := new(http.Protocols)
	p.SetHTTP2(cert != nil)
	p.SetUnencryptedHTTP2(cert == nil)
	tr := &http.Transport{Protocols: p, DisableCompression: true}
	if cert != nil {
		tr.TLSClientConfig = &tls.Config{RootCAs: cert.Pool(), MinVersion: tls.VersionTLS12}
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 20 * time.Second}
}

// answer is all that a client can see of an answer.
type answer struct {
	status int
	header http.Header
	te     []string
	proto  string
	body   string
	err    error // of the request, or of reading the body
}

// send posts a body and reads the whole answer.
func send(t *testing.T, c *http.Client, url, body string) answer {
	t.Helper()
	return sendCtx(t, t.Context(), c, url, body)
}

func sendCtx(t *testing.T, ctx context.Context, c *http.Client, url, body string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	return do(c, req)
}

func do(c *http.Client, req *http.Request) answer {
	resp, err := c.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	_, err = io.Copy(&b, resp.Body)
	return answer{resp.StatusCode, resp.Header, resp.TransferEncoding, resp.Proto, b.String(), err}
}

// get sends a GET and returns the status, 0 for an error.
func get(t *testing.T, c *http.Client, url string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return do(c, req).status
}

// dial opens a raw connection to the pod.
func dial(t *testing.T, p *fakepod.Pod) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return c
}

// isReset reports the errors by which a client notices a reset while it is
// still sending: of reading, of writing, or of writing after reading has failed.
func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, net.ErrClosed)
}
