package calinix

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/headers"
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
	codings := contentCodings(c.header)
	if len(codings) == 0 {
		return c.body.Bytes(), nil
	}
	src, err := decoder(codings, c.body.Bytes(), int64(c.limit))
	if err != nil {
		return nil, fmt.Errorf("decoding the prefill pod's answer: %w", err)
	}
	defer src.Close()
	plain, err := io.ReadAll(src)
	switch {
	case errors.Is(err, errBodyTooLarge):
		return nil, errCaptureFull
	case err != nil:
		return nil, fmt.Errorf("decoding the prefill pod's answer: %w", err)
	}
	return plain, nil
}

// replay sends the answer on to w as it came, but for what header rules make of
// it with the leg's placeholders.
func (c *capture) replay(w http.ResponseWriter, rules *headers.RespHeaderOps, repl *caddy.Replacer) {
	if rules != nil && (rules.Require == nil || rules.Require.Match(c.status, c.header)) {
		rules.ApplyTo(c.header, repl)
	}
	maps.Copy(w.Header(), c.header)
	w.WriteHeader(c.status)
	_, _ = w.Write(c.body.Bytes())
}
