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

// body is a request's body, held whole until the answer to it has begun: the
// prompt is read from it, and every leg and repeat sends it again from the start.
type body struct {
	raw     []byte // as the client sent it
	decoded []byte // raw after its Content-Encoding was undone; raw itself without one; nil if it cannot be
	coded   error  // why it cannot be; nil if it was
	memory  *bodyMemory
	held    int64 // bytes reserved of memory
}

// release gives the reserved memory back, and lets go of the bytes. They are left
// to the garbage collector: a transport's write loop may still hold them after its
// round trip has returned.
func (b *body) release() {
	b.raw, b.decoded = nil, nil
	b.shrink(0)
}

// size is how many bytes there are.
func (b *body) size() int64 {
	n := int64(len(b.raw))
	if len(b.decoded) > 0 && (n == 0 || &b.raw[0] != &b.decoded[0]) {
		n += int64(len(b.decoded))
	}
	return n
}

// bodyLimits are the bounds of reading one body.
type bodyLimits struct {
	maxBytes int64 // of one body, and of what it decompresses to
	memory   int64 // of all bodies together
}

const (
	firstRead = 4 << 10 // first part of a body whose length is not announced
	mostRead  = 1 << 20 // largest part of one
	leastRead = 32      // smallest part, when memory runs short

	trustedLen = 16 << 10 // an announced length up to this is allocated at once
	growth     = 4        // beyond, the buffer grows by this factor as it fills
)

// readBody reads r's body whole. What is announced and would not fit now is
// refused at once. The memory is reserved as the buffer grows: a few clients that
// announce much and send little must not keep all others out. Errors:
// errBodyTooLarge, errBodyMemory, or what reading from the client gave.
func readBody(r *http.Request, m *bodyMemory, lim bodyLimits) (*body, error) {
	b := &body{memory: m}
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 || r.Method == http.MethodConnect {
		return b, nil // what follows a CONNECT is a tunnel, and has no end
	}
	err := b.read(r, lim)
	if err == nil {
		b.decoded, b.coded, err = b.decode(r.Context(), r.Header, lim)
	}
	if err != nil {
		b.release()
		return nil, err
	}
	return b, nil
}

func (b *body) read(r *http.Request, lim bodyLimits) (err error) {
	if r.ContentLength < 0 {
		b.raw, err = b.readAll(r.Body, lim)
		return err
	}
	if r.ContentLength > lim.maxBytes {
		return errBodyTooLarge
	}
	if !b.memory.fits(r.ContentLength, lim.memory) {
		return errBodyMemory
	}
	b.raw, err = b.readAnnounced(r.Body, r.ContentLength, lim)
	return err
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

// enlarge reserves memory for n bytes and want more, or for fewer more, but at
// least that many, if there is not so much, and returns how many more.
func (b *body) enlarge(n, want, least int64, lim bodyLimits) (int64, error) {
	for {
		err := b.reserve(n+want, lim)
		if err == nil {
			return want, nil
		}
		if want /= 2; want < least {
			return 0, err
		}
	}
}

// shrink gives back what is reserved beyond n bytes.
func (b *body) shrink(n int64) {
	if b.held > n {
		b.memory.give(b.held - n)
		b.held = n
	}
}

// readAnnounced reads the length bytes of src into one slice, which grows as they
// come.
func (b *body) readAnnounced(src io.Reader, length int64, lim bodyLimits) ([]byte, error) {
	first, err := b.enlarge(0, min(length, trustedLen), length, lim)
	if err != nil {
		return nil, err
	}
	buf := make([]byte, first)
	n, err := fill(src, buf)
	for have := int64(n); err == nil && have < length; have = int64(n) {
		want := min(growth*have, length) - have
		if want, err = b.enlarge(have, want, max(have/8, leastRead), lim); err != nil {
			return nil, err
		}
		bigger := make([]byte, have+want)
		copy(bigger, buf)
		buf = bigger
		var read int
		read, err = fill(src, buf[n:])
		n += read
	}
	switch {
	case errors.Is(err, io.EOF):
		return buf[:n], nil
	case err != nil:
		return nil, fmt.Errorf("reading request body: %w", err)
	default:
		return buf, atEnd(src)
	}
}

// readAll reads src, of unknown length, to its end into one slice. Memory is
// reserved as it comes, beside what b.raw takes: in parts, each about as large as
// all before it, which are put together in the end.
func (b *body) readAll(src io.Reader, lim bodyLimits) ([]byte, error) {
	var parts [][]byte
	total, base := int64(0), int64(len(b.raw))
	for want := min(firstRead, lim.maxBytes+1); ; want = min(total, mostRead, lim.maxBytes+1-total) {
		size, err := b.enlarge(base+total, want, leastRead, lim)
		if err != nil {
			return nil, err
		}
		part := make([]byte, size)
		n, err := fill(src, part)
		total += int64(n)
		parts = append(parts, part[:n])
		switch {
		case total > lim.maxBytes:
			return nil, errBodyTooLarge
		case errors.Is(err, io.EOF):
			b.shrink(base + total)
			return bytes.Join(parts, nil), nil
		case err != nil:
			return nil, fmt.Errorf("reading request body: %w", err)
		}
	}
}

// fill reads from src until p is full. Unlike that of [io.ReadFull] the error is
// src's own, which tells an end from a broken body.
func fill(src io.Reader, p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var read int
		read, err = src.Read(p[n:])
		n += read
	}
	if n == len(p) && errors.Is(err, io.EOF) {
		err = nil // it will say so again
	}
	return n, err
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
