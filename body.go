package calinix

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
)

// Errors of reading a body; each becomes an answer of its own.
var (
	errBodyTooLarge = errors.New("request body is larger than maxBodyBytes")
	errBodyMemory   = errors.New("no memory left for request bodies (bodyMemoryBytes)")
)

// bodyMemory bounds the bytes of all bodies that are buffered at one time, over
// every request of a balancer.
type bodyMemory struct {
	used atomic.Int64
}

// take reserves n bytes below limit, or reports that they are not to be had.
func (m *bodyMemory) take(n, limit int64) bool {
	if m.used.Add(n) > limit {
		m.used.Add(-n)
		return false
	}
	return true
}

func (m *bodyMemory) give(n int64) { m.used.Add(-n) }

// fits reports whether n bytes are to be had now, without taking them.
func (m *bodyMemory) fits(n, limit int64) bool { return m.used.Load()+n <= limit }

// body is a request's body, held whole: the prompt is read from it, and every
// leg and repeat sends it again from the start.
type body struct {
	raw     []byte // as the client sent it
	decoded []byte // raw after its Content-Encoding was undone; raw itself without one; nil if it cannot be
	coded   error  // why it cannot be; nil if it was
	memory  *bodyMemory
	held    int64 // bytes reserved of memory
}

// release gives the reserved memory back. The bytes themselves are left to the
// garbage collector: a transport's write loop may still hold them after its
// round trip has returned.
func (b *body) release() {
	if b.memory != nil {
		b.memory.give(b.held)
		b.held = 0
	}
}

// bodyLimits are the bounds of reading one body.
type bodyLimits struct {
	maxBytes int64 // of one body, and of what it decompresses to
	memory   int64 // of all bodies together
}

const (
	firstRead  = 4 << 10 // buffer of a body whose length is not announced
	leastGrow  = 64      // of such a buffer, when memory runs short
	trustedLen = 1 << 20 // an announced length up to this is reserved and allocated at once, beyond as it arrives
)

// readBody reads r's body whole. The memory is reserved by Content-Length as far
// as trustedLen, beyond that, and without one, as the body is read: a few clients
// that announce much and send little must not keep all others out. What is
// announced and would not fit now is refused at once. Errors: errBodyTooLarge,
// errBodyMemory, or what reading from the client gave.
func readBody(r *http.Request, m *bodyMemory, lim bodyLimits) (*body, error) {
	b := &body{memory: m}
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 || r.Method == http.MethodConnect {
		return b, nil // what follows a CONNECT is a tunnel, and has no end
	}
	if r.ContentLength > lim.maxBytes {
		return nil, errBodyTooLarge
	}
	if !m.fits(r.ContentLength, lim.memory) {
		return nil, errBodyMemory
	}
	if err := b.reserve(min(max(r.ContentLength, 0), trustedLen), lim); err != nil {
		return nil, err
	}
	raw, err := b.readAll(r.Body, r.ContentLength, lim)
	if err != nil {
		b.release()
		return nil, err
	}
	b.raw = raw
	b.decoded, b.coded, err = b.decode(r.Context(), r.Header, lim)
	if err != nil {
		b.release()
		return nil, err
	}
	return b, nil
}

// reserve makes sure that n bytes are reserved in all.
func (b *body) reserve(n int64, lim bodyLimits) error {
	if n <= b.held {
		return nil
	}
	if !b.memory.take(n-b.held, lim.memory) {
		return errBodyMemory
	}
	b.held = n
	return nil
}

// reserveUpTo reserves memory for a buffer of n bytes, beside base others, that
// is to grow to want, or by less if there is not so much, and returns its size.
func (b *body) reserveUpTo(want, n, base int64, lim bodyLimits) (int64, error) {
	for {
		err := b.reserve(base+want, lim)
		if err == nil || want-n <= leastGrow {
			return want, err
		}
		want = n + (want-n)/2
	}
}

// shrink gives back what is reserved beyond n bytes.
func (b *body) shrink(n int64) {
	if b.held > n {
		b.memory.give(b.held - n)
		b.held = n
	}
}

// readAll reads src to its end into one slice. length is the announced one, of
// which trustedLen are reserved, -1 if unknown. Memory is reserved as the buffer
// grows; what was too much is given back in the end.
func (b *body) readAll(src io.Reader, length int64, lim bodyLimits) (_ []byte, err error) {
	base := int64(0) // reserved for other bytes of this body
	size := min(length, trustedLen)
	if length < 0 {
		base = int64(len(b.raw))
		if size, err = b.reserveUpTo(min(firstRead, lim.maxBytes+1), 0, base, lim); err != nil {
			return nil, err
		}
	}
	buf := make([]byte, 0, size)
	for {
		if len(buf) == cap(buf) {
			if int64(len(buf)) == length {
				return buf, atEnd(src)
			}
			if size, err = b.grown(int64(len(buf)), length, base, lim); err != nil {
				return nil, err
			}
			bigger := make([]byte, len(buf), size)
			copy(bigger, buf)
			buf = bigger
		}
		n, err := src.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case int64(len(buf)) > lim.maxBytes:
			return nil, errBodyTooLarge
		case errors.Is(err, io.EOF) && length < 0:
			b.shrink(base + int64(len(buf)))
			return bytes.Clone(buf), nil
		case errors.Is(err, io.EOF):
			return buf, nil
		case err != nil:
			return nil, fmt.Errorf("reading request body: %w", err)
		}
	}
}

// grown reserves memory for a full buffer of n bytes to grow to about twice its
// size, and returns its new size.
func (b *body) grown(n, length, base int64, lim bodyLimits) (int64, error) {
	if length >= 0 {
		size := min(2*n, length)
		return size, b.reserve(size, lim)
	}
	return b.reserveUpTo(min(2*n, lim.maxBytes+1), n, base, lim)
}

// atEnd reads the end of a body of which all announced bytes have been read:
// only when it has been seen does an HTTP/1 server begin to watch for the
// client's leaving.
func atEnd(src io.Reader) error {
	for {
		var one [1]byte
		switch n, err := src.Read(one[:]); {
		case n > 0:
			return errBodyTooLarge
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("reading request body: %w", err)
		}
	}
}
