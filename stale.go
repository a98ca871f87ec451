package calinix

import (
	"errors"
	"net/http"
	"time"

	"golang.org/x/net/http2"
)

// staleWindow is how long after a request was fully written on a reused
// connection the connection's end, with no byte of an answer seen, still counts
// as the race between our write and the engine's idle timeout. Later than that
// the engine may have begun to work, and a repeat could generate twice.
const staleWindow = 100 * time.Millisecond

// stale reports whether err is the end of a reused connection that the pod had
// closed before, or while, the request was written. A stream of an HTTP/2
// connection that the pod has reset is not: the pod has the request, unless it
// says that it refused the stream.
func (a *attempt) stale(err error) bool {
	if !a.reused.Load() || a.answering.Load() || isDialError(err) || isTimeout(err) {
		return false
	}
	var stream http2.StreamError
	if errors.As(err, &stream) && stream.Code != http2.ErrCodeRefusedStream {
		return false
	}
	wrote := a.wroteAt.Load()
	return wrote == 0 || time.Since(time.Unix(0, wrote)) < staleWindow
}

// rewound gives req a fresh reader over the leg's body.
func (l *leg) rewound(req *http.Request) *http.Request {
	again := req.WithContext(req.Context())
	again.Body = l.bodyReader()
	return again
}
