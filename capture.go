package calinix

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// capture is the http.ResponseWriter of a prefill leg, whose answer reaches
// nobody but Calinix: it holds the answer, up to limit bytes.
type capture struct {
	header http.Header
	status int
	body   bytes.Buffer
	limit  int
	full   bool // the answer was longer than limit
}

var errCaptureFull = errors.New("answer of the prefill pod is too long")

func newCapture(limit int) *capture { return &capture{header: http.Header{}, limit: limit} }

// Header implements [http.ResponseWriter].
func (c *capture) Header() http.Header { return c.header }

// WriteHeader implements [http.ResponseWriter]. Informational answers (1xx) are
// dropped.
func (c *capture) WriteHeader(status int) {
	if c.status == 0 && status >= http.StatusOK {
		c.status = status
	}
}

// Write implements [http.ResponseWriter].
func (c *capture) Write(p []byte) (int, error) {
	c.WriteHeader(http.StatusOK)
	if c.body.Len()+len(p) > c.limit {
		c.full = true
		return 0, errCaptureFull
	}
	return c.body.Write(p)
}

// plain returns the body with its Content-Encoding undone.
func (c *capture) plain() ([]byte, error) {
	encoding := c.header.Get("Content-Encoding")
	if encoding == "" || encoding == "identity" {
		return c.body.Bytes(), nil
	}
	src, err := decoder(encoding, c.body.Bytes())
	if err != nil {
		return nil, fmt.Errorf("decoding the prefill pod's answer: %w", err)
	}
	defer src.Close()
	plain, err := io.ReadAll(io.LimitReader(src, int64(c.limit)+1))
	if err != nil {
		return nil, fmt.Errorf("decoding the prefill pod's answer: %w", err)
	}
	if len(plain) > c.limit {
		return nil, errCaptureFull
	}
	return plain, nil
}

// replay sends the answer on to w as it came.
func (c *capture) replay(w http.ResponseWriter) {
	h := w.Header()
	for name, values := range c.header {
		h[name] = values
	}
	w.WriteHeader(c.status)
	_, _ = w.Write(c.body.Bytes())
}
