package fakepod

import (
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
)

// End says how an exchange ended.
type End uint8

// The ends.
const (
	Running  End = iota // not ended
	Whole               // the answer was sent to its end
	CutByPod            // the script broke it off
	PeerLeft            // the peer closed or reset before the end of the answer
	PodGone             // the pod was closed, crashed or stopped under it
	BadInput            // the request could not be read
)

// String is the end's name.
func (e End) String() string {
	return [...]string{"running", "whole", "cut by pod", "peer left", "pod gone", "bad input"}[e]
}

// Request is what a pod knows of one request. The pod's methods return copies;
// the slices and maps in them are shared and must not be changed.
type Request struct {
	// Pod is the pod's name, N the number of the request at this pod, from 1.
	// Probes are counted by themselves.
	Pod   string
	N     int
	Probe bool

	// Conn is the number of the connection at this pod, from 1, and OnConn the
	// number of the request on it, from 1. TLS is nil for plain connections.
	Conn   int
	OnConn int
	TLS    *tls.ConnectionState
	Remote string // the peer's address

	// Time is when the head had been read, BodyDone when the body had.
	Time     time.Time
	BodyDone time.Time

	// Head is the head exactly as it came, lines and all (HTTP/1.1 only).
	Head   string
	Proto  string // HTTP/1.1 or HTTP/2.0
	Method string
	Target string // the request target as it came: path and query
	Path   string
	Host   string
	// Header has canonical names and lacks Host. Content-Length stays in it;
	// Transfer-Encoding is in TransferEncoding instead.
	Header           http.Header
	ContentLength    int64 // -1: not told
	TransferEncoding []string
	Trailer          http.Header

	// Body is what was read of the body, as it came, and SHA256 its digest in
	// hex. BodyErr tells why reading ended early, if it did; BodyRead is false
	// while it is still being read and for ever under Unread.
	Body     []byte
	SHA256   string
	BodyRead bool
	BodyErr  error

	// Status is the status answered, 0 before. FirstByte is when the head of
	// the answer was about to leave, Sent when each piece of the body had left
	// (HTTP/2: had been handed to the server, which writes it a little later),
	// Ended when the exchange was over.
	Status    int
	FirstByte time.Time
	Sent      []time.Time
	Ended     time.Time
	End       End

	// ClosedEarly says that the peer left before the answer's end: when the pod
	// noticed and by which error (io.EOF: an orderly close; a reset otherwise).
	ClosedEarly bool
	ClosedAt    time.Time
	ClosedBy    error

	generation int // of the book that it is in
}

// Decoded returns the body with its Content-Encoding undone (gzip, zstd or
// none; other encodings are an error).
func (r *Request) Decoded() ([]byte, error) {
	var src io.Reader
	switch enc := strings.ToLower(r.Header.Get("Content-Encoding")); enc {
	case "", "identity":
		return r.Body, nil
	case "gzip":
		z, err := gzip.NewReader(bytes.NewReader(r.Body))
		if err != nil {
			return nil, fmt.Errorf("request %d of pod %s: %w", r.N, r.Pod, err)
		}
		src = z
	case "zstd":
		z, err := zstd.NewReader(bytes.NewReader(r.Body), zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, fmt.Errorf("request %d of pod %s: %w", r.N, r.Pod, err)
		}
		defer z.Close()
		src = z
	default:
		return nil, fmt.Errorf("request %d of pod %s: content encoding %q", r.N, r.Pod, enc)
	}
	b, err := io.ReadAll(src)
	if err != nil {
		return nil, fmt.Errorf("request %d of pod %s: %w", r.N, r.Pod, err)
	}
	return b, nil
}

// Member returns the raw value of a top-level member of the JSON body (of
// duplicates the last, as engines read it) after undoing its encoding, and
// whether there is one. A body that is no JSON object has none.
func (r *Request) Member(name string) (json.RawMessage, bool) {
	b, err := r.Decoded()
	if err != nil {
		return nil, false
	}
	var all map[string]json.RawMessage
	if json.Unmarshal(b, &all) != nil {
		return nil, false
	}
	v, ok := all[name]
	return v, ok
}

// String names the request in a test's output.
func (r Request) String() string {
	s := fmt.Sprintf("%s#%d conn %d.%d %s %s %d bytes → %d %s", r.Pod, r.N, r.Conn, r.OnConn, r.Method, r.Target, len(r.Body), r.Status, r.End)
	if r.ClosedEarly {
		s += fmt.Sprintf(" (%v)", r.ClosedBy)
	}
	return s
}

// Conn is what a pod knows of one connection.
type Conn struct {
	N        int
	Remote   string
	Opened   time.Time
	Closed   time.Time // zero while open
	Requests int
	// ByPeer says that the peer ended it; otherwise the pod did.
	ByPeer bool
	// Reset says that the pod ended it with a reset.
	Reset bool
	// Err is the error that ended it, such as a failed TLS handshake; nil for
	// an orderly end.
	Err error
}

// errPodGone is the cause of exchanges that end with their pod.
var errPodGone = errors.New("the pod is gone")

// book keeps the records of requests, or of probes. The pod's lock guards it.
type book struct {
	list               []*Request // the latest, in order
	begun, read, ended int        // how many came, have a read body, are over
	generation         int        // counts how often it was forgotten
}

// add numbers a request and keeps it, and of the older ones at most keep-1 if
// keep is not 0.
func (b *book) add(q *Request, keep int) {
	b.begun++
	q.N, q.generation = b.begun, b.generation
	b.list = append(b.list, q)
	if keep > 0 && len(b.list) > keep {
		b.list[0] = nil
		b.list = b.list[1:]
	}
}

// find returns the n-th request, or nil if it has not come or is not kept.
func (b *book) find(n int) *Request {
	at := n - 1 - (b.begun - len(b.list))
	if at < 0 || at >= len(b.list) {
		return nil
	}
	return b.list[at]
}

// forget starts again from nothing; requests that still run no longer count.
func (b *book) forget() { *b = book{generation: b.generation + 1} }

// bookOf is the book that the request is in.
func (p *Pod) bookOf(q *Request) *book {
	if q.Probe {
		return &p.probes
	}
	return &p.requests
}
