package fakepod

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"time"
)

// answer is a Reply made concrete for one request.
type answer struct {
	status  int
	header  http.Header
	framing Framing
	length  int      // of the body; -1 for a stream that does not tell
	pieces  [][]byte // each sent in one write
	content int      // how many of them are content chunks, which Gap keeps apart
	pause   time.Duration
	stream  bool
}

// compose makes the answer to x's request.
func (x *exchange) compose(r *Reply) answer {
	x.pod.mu.Lock()
	copied := *x.rec
	x.pod.mu.Unlock()
	q := askedFor(&copied)
	a := answer{status: r.Status, header: http.Header{}, framing: r.Framing, pause: r.Gap}
	if a.status == 0 {
		a.status = http.StatusOK
	}
	if a.pause == 0 {
		a.pause = defaultGap
	}
	a.header.Set("X-Fake-Pod", x.pod.Name)
	a.header.Set("Content-Type", "application/json")
	a.stream = r.Events != nil || a.status < 400 && r.Body == nil && (r.Stream == Always || r.Stream == AsAsked && q.stream)
	switch {
	case r.Events != nil:
		for _, e := range r.Events {
			a.pieces = append(a.pieces, []byte(e))
		}
		a.content = len(a.pieces)
	case a.stream:
		a.pieces, a.content = q.events(r)
	case r.Body != nil:
		a.pieces = [][]byte{r.Body}
	case a.status >= 400:
		a.pieces = [][]byte{errorBody(a.status, "pod "+x.pod.Name+" answers "+http.StatusText(a.status))}
	default:
		a.pieces = [][]byte{q.json(r)}
	}
	if a.stream {
		a.header.Set("Content-Type", "text/event-stream; charset=utf-8")
	}
	if r.Gzip && !a.stream {
		a.header.Set("Content-Encoding", "gzip")
		a.pieces[0] = zip(a.pieces[0])
	}
	if a.framing == AutoFraming {
		a.framing = Length
		if a.stream {
			a.framing = Chunked
		}
	}
	for _, p := range a.pieces {
		a.length += len(p)
	}
	if r.Close {
		a.header.Set("Connection", "close")
	}
	for k, v := range r.Header {
		a.header[http.CanonicalHeaderKey(k)] = v
	}
	return a
}

// gap is the pause before piece k > 0.
func (a *answer) gap(k int) time.Duration {
	if k <= a.content && a.stream { // the finish chunk keeps its distance, too
		return max(0, a.pause)
	}
	return 0
}

// limit is the number of body bytes after which the answer is cut, -1 for none
// or for a place beyond the end.
func (a *answer) limit(r *Reply) int {
	total := 0
	for _, p := range a.pieces {
		total += len(p)
	}
	n := -1
	switch r.At.where {
	case beforeHeaders: // has happened already
	case afterHeaders:
		n = 0
	case afterBytes:
		n = r.At.n
	case afterChunks:
		if r.At.n <= len(a.pieces) {
			n = 0
			for _, p := range a.pieces[:r.At.n] {
				n += len(p)
			}
		}
	case halfBody:
		n = total / 2
		if a.stream {
			mid := a.content / 2
			n = 0
			for _, p := range a.pieces[:mid] {
				n += len(p)
			}
			n += len(a.pieces[mid]) / 2
		}
	}
	if r.Cut == NoCut || n > total {
		return -1
	}
	return n
}

func zip(b []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	must(w.Write(b))
	if err := w.Close(); err != nil {
		panic(err)
	}
	return out.Bytes()
}
