package testcaddy

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go/http3"
)

// Protocol is what a client speaks.
type Protocol uint8

// The protocols. H2 and H3 need TLS.
const (
	H1 Protocol = 1 + iota
	H2
	H3
)

// All are the three protocols.
var All = []Protocol{H1, H2, H3}

// String is h1, h2 or h3.
func (p Protocol) String() string { return fmt.Sprintf("h%d", p) }

// Client speaks one protocol to one server. Every answer that came over another
// protocol is an error.
type Client struct {
	Protocol Protocol
	Base     string       // scheme, host and port
	HTTP     *http.Client // for libraries that bring their own requests
}

// Client makes a client of Serve's site for the length of the test. Closing it
// closes its connections.
func (c *Caddy) Client(tb testing.TB, p Protocol) *Client {
	tb.Helper()
	if c.URL == "" {
		tb.Fatal("Load does not know the site: use NewClient")
	}
	return NewClient(tb, p, c.URL)
}

// Each runs f once for each of the protocols (default: all that the site
// speaks), as subtests h1, h2 and h3, each with a client of its own.
func (c *Caddy) Each(t *testing.T, f func(t *testing.T, cl *Client), protocols ...Protocol) {
	t.Helper()
	if len(protocols) == 0 {
		protocols = All
		if c.plain {
			protocols = All[:1]
		}
	}
	for _, p := range protocols {
		t.Run(p.String(), func(t *testing.T) { f(t, c.Client(t, p)) })
	}
}

// NewClient makes a client of the server at base for the length of the test. It
// follows no redirects, undoes no compression and uses no proxy; HTTPS is
// verified against RootCAs.
func NewClient(tb testing.TB, p Protocol, base string) *Client {
	tb.Helper()
	c := &Client{Protocol: p, Base: strings.TrimSuffix(base, "/")}
	var config *tls.Config
	if strings.HasPrefix(base, "https://") {
		config = &tls.Config{RootCAs: RootCAs(tb), MinVersion: tls.VersionTLS12}
	} else if p != H1 {
		tb.Fatalf("%v needs https, not %s", p, base)
	}
	var rt http.RoundTripper
	if p == H3 {
		tr := &http3.Transport{TLSClientConfig: config, DisableCompression: true}
		tb.Cleanup(func() { tr.Close() })
		rt = tr
	} else {
		protocols := new(http.Protocols)
		protocols.SetHTTP1(p == H1)
		protocols.SetHTTP2(p == H2)
		tr := &http.Transport{Protocols: protocols, TLSClientConfig: config, DisableCompression: true, MaxIdleConnsPerHost: 1 << 16}
		tb.Cleanup(tr.CloseIdleConnections)
		rt = tr
	}
	c.HTTP = &http.Client{Transport: rt, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return c
}

// Answer is everything that a client can see of an answer.
type Answer struct {
	Status           int // 0 if none came
	Proto            string
	Header           http.Header
	Trailer          http.Header
	TransferEncoding []string
	ContentLength    int64 // -1: not told
	Body             []byte
	// Err is why no answer came, or why its body ended early.
	Err error

	Began, HeadersAt, Ended time.Time
}

// Pod is the name of the fake pod that answered, "" if none did.
func (a *Answer) Pod() string { return a.Header.Get("X-Fake-Pod") }

// String is the answer in short.
func (a *Answer) String() string {
	return fmt.Sprintf("%d over %s, error %v, after %v, header %v, body %q", a.Status, a.Proto, a.Err, a.Ended.Sub(a.Began).Round(time.Millisecond), a.Header, shortened(string(a.Body), 300))
}

// JSON decodes the body, which must be a JSON object; numbers stay json.Number.
func (a *Answer) JSON(tb testing.TB) map[string]any {
	tb.Helper()
	var m map[string]any
	d := json.NewDecoder(bytes.NewReader(a.Body))
	d.UseNumber()
	if err := d.Decode(&m); err != nil {
		tb.Fatalf("the body is no JSON object (%v): %v", err, a)
	}
	return m
}

// Request makes a request for this server. headers are names and values in turn;
// a name Host sets the request's Host. Without a Content-Type a body is
// application/json.
func (c *Client) Request(ctx context.Context, tb testing.TB, method, path, body string, headers ...string) *http.Request {
	tb.Helper()
	var r io.Reader = http.NoBody
	if body != "" {
		r = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.Base+path, r)
	if err != nil {
		tb.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if len(headers)%2 != 0 {
		tb.Fatalf("headers %q are no pairs", headers)
	}
	for k := 0; k < len(headers); k += 2 {
		if strings.EqualFold(headers[k], "Host") {
			req.Host = headers[k+1]
			continue
		}
		req.Header.Set(headers[k], headers[k+1])
	}
	return req
}

// AnswerPatience is how long Post and Get wait for the whole of an answer, and a
// Stream for its headers and for each event. What never comes fails its test
// instead of holding up all others: Post and Get have context.DeadlineExceeded as
// Err. It only matters for tests that fail.
var AnswerPatience = 2 * time.Minute

// Post sends a body and returns the whole answer.
func (c *Client) Post(tb testing.TB, path, body string, headers ...string) *Answer {
	tb.Helper()
	return c.sendFor(c.Request(tb.Context(), tb, http.MethodPost, path, body, headers...), AnswerPatience)
}

// Get asks for a path and returns the whole answer.
func (c *Client) Get(tb testing.TB, path string, headers ...string) *Answer {
	tb.Helper()
	return c.sendFor(c.Request(tb.Context(), tb, http.MethodGet, path, "", headers...), AnswerPatience)
}

// Send sends any request and returns the whole answer.
func (c *Client) Send(req *http.Request) *Answer {
	a := &Answer{Began: time.Now(), Header: http.Header{}}
	resp, err := c.HTTP.Do(req)
	a.HeadersAt = time.Now()
	if err != nil {
		a.Err, a.Ended = err, a.HeadersAt
		return a
	}
	defer resp.Body.Close()
	a.Body, a.Err = io.ReadAll(resp.Body)
	a.Ended = time.Now()
	a.Status, a.Proto, a.Header, a.Trailer = resp.StatusCode, resp.Proto, resp.Header, resp.Trailer
	a.TransferEncoding, a.ContentLength = resp.TransferEncoding, resp.ContentLength
	if err := c.checkProto(resp); err != nil {
		a.Err = err
	}
	return a
}

func (c *Client) checkProto(resp *http.Response) error {
	if resp.ProtoMajor != int(c.Protocol) {
		return fmt.Errorf("the answer came over %s, want %v", resp.Proto, c.Protocol)
	}
	return nil
}
