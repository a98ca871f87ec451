package fakepod

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

const (
	headLimit = 64 << 10        // bytes of a request's head
	linger    = 5 * time.Second // how long an orderly close waits for the peer's
)

// conn is one connection. busy, last and done are guarded by the pod's lock.
type conn struct {
	pod    *Pod
	rec    *Conn    // guarded by the pod's lock
	tcp    net.Conn // the TCP connection, for resets
	nc     net.Conn // tcp, or TLS over it
	br     *bufio.Reader
	tls    *tls.ConnectionState
	ctx    context.Context // ends with the connection
	cancel context.CancelCauseFunc

	busy int  // requests that are being read or answered
	last bool // to be closed after it
	done bool // the pod has ended it
}

// open registers a new connection.
func (p *Pod) open(tcp net.Conn) *conn {
	c := &conn{pod: p, tcp: tcp, nc: tcp}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	p.mu.Lock()
	defer p.mu.Unlock()
	c.rec = &Conn{N: len(p.connLog) + 1, Remote: tcp.RemoteAddr().String(), Opened: time.Now()}
	p.connLog = append(p.connLog, c.rec)
	p.conns[c] = struct{}{}
	if p.ln == nil { // accepted in the instant in which the port was closed
		c.stop(errPodGone)
	}
	p.notify()
	return c
}

// shut ends a connection's record; err is why it ended, nil for good order.
func (c *conn) shut(err error) {
	c.cancel(errPodGone)
	c.tcp.Close()
	p := c.pod
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	c.rec.Closed = time.Now()
	c.rec.ByPeer = !c.done
	if err != io.EOF && !errors.Is(err, errPodGone) {
		c.rec.Err = err
	}
	p.notify()
}

// stop ends the connection as a dying process does. The pod's lock is held.
func (c *conn) stop(cause error) {
	c.done = true
	c.cancel(cause)
	c.tcp.Close()
}

// reset ends the connection with a reset. The pod's lock is held.
func (c *conn) reset(cause error) {
	if c.done {
		return
	}
	c.rec.Reset = true
	if t, ok := c.tcp.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	c.stop(cause)
}

// ours marks the end of the connection as the pod's doing.
func (c *conn) ours() {
	c.pod.mu.Lock()
	c.done = true
	c.pod.mu.Unlock()
}

// accept serves connections until the port is closed.
func (p *Pod) accept(ln net.Listener) {
	defer p.wg.Done()
	for {
		tcp, err := ln.Accept()
		if err != nil {
			return
		}
		p.wg.Add(1)
		go p.open(tcp).serve()
	}
}

// serve reads and answers the requests of one HTTP/1.1 connection.
func (c *conn) serve() {
	defer c.pod.wg.Done()
	err := c.start()
	for n := 1; err == nil; n++ {
		err = c.one(n)
	}
	c.shut(err)
}

// start does the TLS handshake, if there is to be one.
func (c *conn) start() error {
	if !c.pod.gate(c.ctx) {
		return context.Cause(c.ctx)
	}
	if c.pod.opts.Cert != nil {
		t := tls.Server(c.tcp, c.pod.tlsConfig("http/1.1"))
		if err := t.HandshakeContext(c.ctx); err != nil {
			return fmt.Errorf("TLS handshake: %w", err)
		}
		state := t.ConnectionState()
		c.pod.mu.Lock()
		c.nc, c.tls = t, &state
		c.pod.mu.Unlock()
	}
	c.br = bufio.NewReaderSize(c.nc, headLimit)
	return nil
}

// one reads and answers the n-th request. An error ends the connection.
func (c *conn) one(n int) error {
	p := c.pod
	if err := c.awaitRequest(n); err != nil {
		return err
	}
	p.mu.Lock()
	c.busy++
	refused := c.done
	reuse := p.resetOnReuse && n > 1
	if reuse {
		c.reset(errPodGone)
	}
	p.mu.Unlock()
	if refused || reuse || !p.gate(c.ctx) {
		return errPodGone
	}
	head, err := c.head()
	if err != nil {
		return err
	}
	r, err := http.ReadRequest(c.br)
	if err != nil {
		c.ours()
		return fmt.Errorf("reading a request: %w", err)
	}
	w := &wire1{c: c, req: r}
	x := p.begin(c, n, r, w)
	x.update(func(q *Request) { q.Head = head })
	keep := x.serve(c.watch)
	p.mu.Lock()
	c.busy--
	keep = keep && !c.last && !c.done
	left := x.rec.ClosedBy
	p.mu.Unlock()
	if left != nil {
		return left
	}
	if !keep {
		c.ours()
		c.closeOrderly()
		return io.EOF
	}
	return nil
}

// awaitRequest waits for the first byte of the n-th request.
func (c *conn) awaitRequest(n int) error {
	p := c.pod
	p.mu.Lock()
	idle := p.idle
	p.mu.Unlock()
	if idle > 0 && n > 1 {
		_ = c.nc.SetReadDeadline(time.Now().Add(idle))
		defer func() { _ = c.nc.SetReadDeadline(time.Time{}) }()
	}
	_, err := c.br.Peek(1)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.ours()
		c.closeOrderly()
		return io.EOF
	}
	return err
}

// head returns the request's head as it stands, without taking it from the
// reader.
func (c *conn) head() (string, error) {
	for n := 1; ; n = c.br.Buffered() + 1 {
		if _, err := c.br.Peek(n); err != nil {
			return "", err
		}
		b, _ := c.br.Peek(c.br.Buffered())
		if i := bytes.Index(b, []byte("\r\n\r\n")); i >= 0 {
			return string(b[:i+4]), nil
		}
	}
}

// watch notices when the peer leaves while an answer is in the making. The
// function that it returns ends the watch; until then nobody else may read.
// When more bytes come instead (pipelining), there is nothing more to notice.
func (c *conn) watch(left func(error)) (stop func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, err := c.br.Peek(1); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			left(err)
		}
	}()
	return func() {
		_ = c.nc.SetReadDeadline(time.Unix(1, 0))
		<-done
		_ = c.nc.SetReadDeadline(time.Time{})
	}
}

// closeOrderly says that nothing more comes and waits for the peer's own close.
// Closing at once would turn into a reset if bytes of the peer were unread.
func (c *conn) closeOrderly() {
	c.sayEnd()
	_ = c.tcp.SetReadDeadline(time.Now().Add(linger))
	_, _ = io.Copy(io.Discard, c.tcp)
	c.tcp.Close()
}

// sayEnd closes the sending side.
func (c *conn) sayEnd() {
	if t, ok := c.nc.(*tls.Conn); ok {
		_ = t.CloseWrite()
	}
	if t, ok := c.tcp.(*net.TCPConn); ok {
		_ = t.CloseWrite()
	}
}
