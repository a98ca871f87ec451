package cases

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"iter"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
)

// Request is one request to send, with its body made.
type Request struct {
	Case    string
	Name    string
	N       int // the running number i, or the place in the list of sizes; 1 otherwise
	Method  string
	Path    string // with the query
	Headers map[string]string
	Body    []byte
	Note    string

	// Concurrency is how many requests of this name are to be in flight at
	// once; 0 is one after another.
	Concurrency int
	// AbortAfter is when the client is to leave; 0 is never.
	AbortAfter time.Duration
	// Chunked asks for a body without Content-Length.
	Chunked bool
	// Zeros is the number of zero bytes to compress by Encode while sending,
	// when Body would be too large to keep.
	Zeros  int64
	Encode string
}

// Requests walks through all requests of the case in order, or through those
// with one of the names. Each body is made when its turn comes.
func (c *Case) Requests(names ...string) iter.Seq[Request] {
	return func(yield func(Request) bool) {
		for k := range c.Raw {
			r := &c.Raw[k]
			if len(names) > 0 && !slices.Contains(names, r.Name) {
				continue
			}
			if !r.expand(c.ID, yield) {
				return
			}
		}
	}
}

// Named returns all requests with this name and ends the test if there are none.
func (c *Case) Named(tb testing.TB, name string) []Request {
	tb.Helper()
	var all []Request
	for r := range c.Requests(name) {
		all = append(all, r)
	}
	if len(all) == 0 {
		tb.Fatalf("%s has no request named %q", c.File, name)
	}
	return all
}

// One returns the first request with this name.
func (c *Case) One(tb testing.TB, name string) Request {
	tb.Helper()
	return c.Named(tb, name)[0]
}

// HTTP makes the request for a client; base is scheme and host. A header Host
// becomes the request's Host. Zeros are compressed while they are read. A body
// that is in memory can be sent again by the client (GetBody).
func (r *Request) HTTP(ctx context.Context, base string) (*http.Request, error) {
	var body io.Reader = http.NoBody
	switch {
	case r.Zeros > 0:
		body = r.compressedZeros()
	case r.Chunked:
		body = io.NopCloser(bytes.NewReader(r.Body)) // hides the length
	case len(r.Body) > 0:
		body = bytes.NewReader(r.Body)
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, strings.TrimSuffix(base, "/")+r.Path, body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", r.Case, r.Name, err)
	}
	for k, v := range r.Headers {
		if strings.EqualFold(k, "Host") {
			req.Host = v
			continue
		}
		req.Header.Set(k, v)
	}
	return req, nil
}

// compressedZeros returns a reader of Zeros zero bytes under Encode. Closing it
// early ends the goroutine that compresses.
func (r *Request) compressedZeros() io.ReadCloser {
	pr, pw := io.Pipe()
	go func() {
		w, err := newEncoder(r.Encode, pw)
		if err == nil {
			_, err = io.Copy(w, io.LimitReader(zeroReader{}, r.Zeros))
			if err2 := w.Close(); err == nil {
				err = err2
			}
		}
		pw.CloseWithError(err)
	}()
	return pr
}

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func newEncoder(name string, to io.Writer) (io.WriteCloser, error) {
	if name == "zstd" {
		return zstd.NewWriter(to, zstd.WithEncoderConcurrency(1))
	}
	return gzip.NewWriterLevel(to, gzip.BestCompression)
}

// encode compresses b; the decoded bytes are what a case pins, not the
// compressed ones, which depend on the library.
func encode(name string, b []byte) []byte {
	var out bytes.Buffer
	w, err := newEncoder(name, &out)
	if err == nil {
		_, err = w.Write(b)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		panic("compressing into memory: " + err.Error()) // a bytes.Buffer does not fail
	}
	return out.Bytes()
}

// multipartBody is a form with a model and a file of n bytes whose values run
// through all 256, so that any re-coding shows.
func multipartBody(n int) []byte {
	const head = "--zz\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nacme-stt\r\n" +
		"--zz\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\nContent-Type: audio/wav\r\n\r\n"
	const tail = "\r\n--zz--\r\n"
	b := make([]byte, 0, len(head)+n+len(tail))
	b = append(b, head...)
	for j := range n {
		b = append(b, byte(j*31))
	}
	return append(b, tail...)
}

// expand yields the concrete requests of one entry and reports whether to go on.
func (r *Raw) expand(id string, yield func(Request) bool) bool {
	g := r.Gen
	reps := orOne(r.Repeat)
	if g == nil {
		for range reps {
			if !yield(r.request(id, 1, r.body)) {
				return false
			}
		}
		return true
	}
	if g.Zeros > 0 {
		q := r.request(id, 1, nil)
		q.Zeros, q.Encode = g.Zeros, g.Encode
		return yield(q)
	}
	if g.Multipart > 0 {
		return yield(r.request(id, 1, multipartBody(g.Multipart)))
	}
	if len(g.Sizes) > 0 {
		for range orOne(g.Repeat) * reps {
			for k, size := range g.Sizes {
				if !yield(r.request(id, k+1, r.tmpl.pad(size))) {
					return false
				}
			}
		}
		return true
	}
	for range reps {
		for i := orOne(g.From); i <= orOne(g.To); i++ {
			if !yield(r.request(id, i, r.tmpl.fill(i))) {
				return false
			}
		}
	}
	return true
}

func (r *Raw) request(id string, n int, body []byte) Request {
	q := Request{Case: id, Name: r.Name, N: n, Method: r.Method, Path: r.Path, Body: body, Note: r.Note}
	q.Headers = make(map[string]string, len(r.Headers))
	for k, v := range r.Headers {
		q.Headers[k] = v
	}
	g := r.Gen
	if g == nil {
		return q
	}
	q.Concurrency, q.Chunked = g.Concurrency, g.Chunked
	q.AbortAfter = time.Duration(g.AbortAfterMs) * time.Millisecond
	if g.Path != "" {
		q.Path = g.Path
	}
	for k, t := range r.headers {
		q.Headers[k] = string(t.fill(n))
	}
	if g.Encode != "" && g.Zeros == 0 && g.Multipart == 0 {
		q.Body = encode(g.Encode, body)
	}
	return q
}

func orOne(p *int) int {
	if p == nil {
		return 1
	}
	return *p
}
