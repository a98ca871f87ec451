package calinix

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"syscall"
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

// taken reports whether the pod can have had the whole request. It may be repeated
// at that pod, as stale allows, but another one could generate a second time.
func (a *attempt) taken() bool { return a.wroteAt.Load() != 0 && !a.ended.Load() }

// rewound gives req a fresh reader over the leg's body.
func (l *leg) rewound(req *http.Request) *http.Request {
	again := req.WithContext(req.Context())
	again.Body = l.bodyReader()
	return again
}

// hasEnded reports whether the peer's end of the connection has arrived already,
// which net/http's reader may be late to see on a busy machine. Of what is
// written from now on a peer that has closed it begins nothing. On Windows, and where
// bytes come before the end, as those that close TLS do, it is false.
func hasEnded(conn net.Conn) bool {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	c, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	ended := false
	// Not raw.Read: it would wait for net/http's reader.
	return raw.Control(func(fd uintptr) { ended = endsNext(fd) }) == nil && ended
}
