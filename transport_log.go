package calinix

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"

	"golang.org/x/net/http2"
)

// shown are the headers whose values a log line about a leg may have, beside ours.
// Every other one may be a credential, or a session's key, under a name that only
// its sender knows; of those the line has the name.
var shown = map[string]bool{
	"Accept": true, "Accept-Encoding": true, "Accept-Language": true, "Connection": true, "Content-Encoding": true,
	"Content-Length": true, "Content-Type": true, "Origin": true, "Te": true, "Traceparent": true, "Upgrade": true,
	"User-Agent": true, "Via": true, "X-Forwarded-For": true, "X-Forwarded-Host": true, "X-Forwarded-Proto": true,
	"X-Request-Id": true,
}

// hidden stands for the values of the others, as Caddy writes it.
var hidden = []string{"REDACTED"}

// loggable makes req what Caddy's log lines about this round trip may have of it.
func loggable(req *http.Request) {
	req.RequestURI, _, _ = strings.Cut(req.RequestURI, "?") // some put their key into the query
	header, copied := req.Header, false
	for name := range header {
		if shown[name] || isOwnHeader(name) {
			continue
		}
		if !copied {
			req.Header, copied = maps.Clone(header), true
		}
		req.Header[name] = hidden
	}
}

// notHTTP is an error about an answer that breaks HTTP's rules. What net/http
// says of it quotes the answer, which no log line may have.
type notHTTP struct{ error }

// Error implements error.
func (notHTTP) Error() string { return "the pod's answer is not HTTP" }

// Unwrap returns the error.
func (e notHTTP) Unwrap() error { return e.error }

// tellable is err as a log line may have it. answering says that a part of an
// answer had come.
func tellable(err error, answering bool) error {
	var op *net.OpError
	var stream http2.StreamError
	switch {
	case !answering, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, context.Canceled),
		isTimeout(err), errors.As(err, &op), errors.As(err, &stream):
		return err
	}
	return notHTTP{err}
}
