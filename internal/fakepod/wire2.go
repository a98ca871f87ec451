package fakepod

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// connKey finds the conn of a request in its context.
type connKey struct{}

// newServer makes the server of an HTTP/2 pod.
func (p *Pod) newServer() *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(p.opts.Cert != nil)
	protocols.SetUnencryptedHTTP2(p.opts.Cert == nil)
	var conns sync.Map // net.Conn as the server knows it → *conn
	return &http.Server{
		Protocols: protocols,
		Handler:   http.HandlerFunc(p.handle),
		ErrorLog:  log.New(io.Discard, "", 0),
		ConnContext: func(ctx context.Context, nc net.Conn) context.Context {
			tcp := nc
			if t, ok := nc.(*tls.Conn); ok {
				tcp = t.NetConn()
			}
			p.wg.Add(1)
			c := p.open(tcp)
			conns.Store(nc, c)
			return context.WithValue(ctx, connKey{}, c)
		},
		ConnState: func(nc net.Conn, state http.ConnState) {
			if state != http.StateClosed {
				return
			}
			if c, ok := conns.LoadAndDelete(nc); ok {
				c.(*conn).shut(nil)
				p.wg.Done()
			}
		},
	}
}

// serveHTTP2 serves until the port is closed.
func (p *Pod) serveHTTP2(s *http.Server, ln net.Listener) {
	defer p.wg.Done()
	if p.opts.Cert != nil {
		s.TLSConfig = p.tlsConfig("h2", "http/1.1")
		_ = s.ServeTLS(ln, "", "")
		return
	}
	_ = s.Serve(ln)
}

// handle answers one request of an HTTP/2 pod.
func (p *Pod) handle(rw http.ResponseWriter, r *http.Request) {
	p.wg.Add(1)
	defer p.wg.Done()
	c := r.Context().Value(connKey{}).(*conn)
	p.mu.Lock()
	onConn := c.rec.Requests + 1
	reuse := p.resetOnReuse && onConn > 1
	if reuse {
		c.reset(errPodGone)
	} else {
		c.busy++
	}
	p.mu.Unlock()
	if reuse {
		panic(http.ErrAbortHandler)
	}
	defer func() {
		p.mu.Lock()
		c.busy--
		p.mu.Unlock()
	}()
	w := &wire2{c: c, rw: rw}
	x := p.begin(c, onConn, r, w)
	if r.TLS != nil {
		x.update(func(q *Request) { q.TLS = r.TLS })
	}
	x.serve(func(left func(error)) func() {
		stop := context.AfterFunc(r.Context(), func() { left(context.Cause(r.Context())) })
		return func() { stop() }
	})
	if w.broken {
		panic(http.ErrAbortHandler)
	}
}

// wire2 answers through the standard library's server.
type wire2 struct {
	c      *conn
	rw     http.ResponseWriter
	broken bool
}

func (w *wire2) head(status int, h http.Header, f Framing, length int) error {
	for k, v := range h {
		w.rw.Header()[k] = v
	}
	if f == Length && h.Get("Content-Length") == "" && status != http.StatusNoContent {
		w.rw.Header().Set("Content-Length", strconv.Itoa(length))
	}
	w.rw.WriteHeader(status)
	return w.flush()
}

func (w *wire2) piece(b []byte, n int) error {
	if len(b) == 0 {
		return nil
	}
	if _, err := w.rw.Write(b[:n]); err != nil && !errors.Is(err, http.ErrBodyNotAllowed) {
		return err
	}
	return w.flush()
}

func (w *wire2) flush() error { return http.NewResponseController(w.rw).Flush() }

func (w *wire2) end() error { return nil }

func (w *wire2) proceed() error { return nil } // the server does it

func (w *wire2) raw([]byte) error {
	return fmt.Errorf("a raw answer needs an HTTP/1.1 pod")
}

func (w *wire2) cut(how Cut) {
	w.broken = true
	if how == Abort {
		return
	}
	// the frames that were flushed are written by another goroutine of the
	// server, which gives no sign when it is done
	time.Sleep(20 * time.Millisecond)
	awaitSent(w.c.tcp)
	w.c.pod.mu.Lock()
	defer w.c.pod.mu.Unlock()
	if how == Reset {
		w.c.reset(errPodGone)
	} else {
		w.c.stop(errPodGone)
	}
}
