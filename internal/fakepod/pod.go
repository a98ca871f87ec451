package fakepod

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/fakepod/freeport"
)

// Protocol is what a pod speaks.
type Protocol uint8

// The protocols.
const (
	// HTTP1 is HTTP/1.1 with exact control of the connection.
	HTTP1 Protocol = iota
	// HTTP2 is HTTP/2: without TLS by prior knowledge (h2c), with it by ALPN.
	// HTTP/1.1 is understood, too.
	HTTP2
)

// Options make a pod. All may be left out.
type Options struct {
	Name       string   // "pod"
	Host       string   // address to listen on, "127.0.0.1"
	Port       int      // a free one that stays this pod's until Close
	Protocol   Protocol // HTTP1
	Cert       *Cert    // TLS with this certificate, if not nil
	HealthPath string   // "/health"; GETs of it are probes
	Script     Script   // Reply{}
	Strict     Strict   // Lenient
	Keep       int      // records of the latest requests to keep; 0 is all
}

// Pod is a fake inference engine that listens on a loopback port. All methods
// are safe for concurrent use, and what they set holds from the next request
// on.
type Pod struct {
	// Name is the pod's name, URL its scheme, host and port, Addr host and port.
	Name string
	URL  string
	Addr string

	opts Options
	port int // taken from freeport, or 0

	wg sync.WaitGroup // accept loops and connections

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at every change (waiters look again)
	closed  bool
	ln      net.Listener // nil while the port is closed
	server  *http.Server // HTTP2 only, beside ln
	conns   map[*conn]struct{}
	connLog []*Conn

	script Script
	rules  []rule
	queue  []Script // for the next requests, before any rule
	health Script
	strict Strict

	frozen       chan struct{} // not nil while frozen; closed by Thaw
	resetOnReuse bool
	idle         time.Duration

	requests book
	probes   book
	inFlight int
	maxSeen  int
}

// Start makes a pod and listens. Close ends it.
func Start(o Options) (*Pod, error) {
	if o.Name == "" {
		o.Name = "pod"
	}
	if o.Host == "" {
		o.Host = "127.0.0.1"
	}
	if o.HealthPath == "" {
		o.HealthPath = "/health"
	}
	if o.Script == nil {
		o.Script = Reply{}
	}
	p := &Pod{
		Name: o.Name, opts: o, changed: make(chan struct{}), conns: map[*conn]struct{}{},
		script: o.Script, health: Reply{}, strict: o.Strict,
	}
	port := o.Port
	if port == 0 {
		var err error
		if port, err = freeport.Take(); err != nil {
			return nil, fmt.Errorf("fake pod %s: %w", o.Name, err)
		}
		p.port = port
	}
	p.Addr = net.JoinHostPort(o.Host, strconv.Itoa(port))
	p.URL = "http://" + p.Addr
	if o.Cert != nil {
		p.URL = "https://" + p.Addr
	}
	if err := p.Listen(); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// New starts a pod for the length of a test.
func New(tb testing.TB, o Options) *Pod {
	tb.Helper()
	p, err := Start(o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.Close)
	return p
}

// Close ends all connections, closes the port and returns when every goroutine
// of the pod has ended. Exchanges that still run end with PodGone.
func (p *Pod) Close() {
	p.mu.Lock()
	closed := p.closed
	p.closed = true
	p.mu.Unlock()
	p.Crash()
	if !closed && p.port != 0 {
		freeport.Give(p.port)
	}
}

// Listen opens the port again after Refuse or Crash. It does nothing while the
// port is open.
func (p *Pod) Listen() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return fmt.Errorf("fake pod %s: listening after Close", p.Name)
	}
	if p.ln != nil {
		return nil
	}
	ln, err := listen(p.Addr)
	if err != nil {
		return fmt.Errorf("fake pod %s: %w", p.Name, err)
	}
	p.ln = ln
	p.wg.Add(1)
	if p.opts.Protocol == HTTP2 {
		p.server = p.newServer()
		go p.serveHTTP2(p.server, ln)
	} else {
		go p.accept(ln)
	}
	return nil
}

// listen tries for a short while: a child process that is being started may
// hold a copy of the old socket for an instant.
func listen(addr string) (net.Listener, error) {
	deadline := time.Now().Add(2 * time.Second)
	for {
		ln, err := net.Listen("tcp", addr)
		if err == nil || !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(deadline) {
			return ln, err
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Refuse closes the port, so that new connections are refused, and ends idle
// connections in good order. Exchanges that run go on; their connections end
// after them. It returns when the port is closed and the peers have closed
// their side of the idle connections, so that none of them will be used again.
func (p *Pod) Refuse() {
	p.stopListening()
	p.mu.Lock()
	var idle []*conn
	for c := range p.conns {
		c.last = true
		if c.busy == 0 {
			c.done = true
			c.sayEnd()
			idle = append(idle, c)
		}
	}
	p.mu.Unlock()
	deadline := time.NewTimer(linger)
	defer deadline.Stop()
	for _, c := range idle {
		select {
		case <-c.ctx.Done():
		case <-deadline.C:
			p.mu.Lock()
			for _, c := range idle {
				c.stop(errPodGone)
			}
			p.mu.Unlock()
			return
		}
	}
}

// Crash closes the port and every connection at once, as the kernel does when a
// process is killed, and returns when all exchanges have ended.
func (p *Pod) Crash() {
	p.stopListening()
	p.mu.Lock()
	for c := range p.conns {
		c.stop(errPodGone)
	}
	p.mu.Unlock()
	p.wg.Wait()
}

// Restart is Crash and Listen: an engine that comes back on its address with
// nothing in its cache. Scripts and records stay.
func (p *Pod) Restart() error {
	p.Crash()
	return p.Listen()
}

// stopListening closes the port. An HTTP/2 server also tells its connections
// to end after what runs on them.
func (p *Pod) stopListening() {
	p.mu.Lock()
	ln, server := p.ln, p.server
	p.ln, p.server = nil, nil
	p.mu.Unlock()
	if ln != nil {
		ln.Close()
	}
	if server != nil {
		// with a context that is over, Shutdown does its part and does not wait
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = server.Shutdown(ctx)
	}
}

// ResetConns resets every open connection, whatever runs on it. The port stays
// open.
func (p *Pod) ResetConns() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.reset(errPodGone)
	}
}

// Freeze makes the pod accept connections and stay silent: nothing is read,
// nothing is written, running answers stop where they are, as with a stopped
// process. Health probes get no answer either.
func (p *Pod) Freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen == nil {
		p.frozen = make(chan struct{})
	}
}

// Thaw ends Freeze; what piled up is served.
func (p *Pod) Thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen != nil {
		close(p.frozen)
		p.frozen = nil
	}
}

// ResetOnReuse makes the pod reset a connection when the first byte of its
// second request comes, before anything of it is read or answered. Such a
// request is not recorded; the connection is, with Reset.
func (p *Pod) ResetOnReuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.resetOnReuse = on
}

// CloseIdle makes the pod close a connection in good order when no request
// has come on it for that long after an answer; 0 is never. It holds for
// connections that become idle from now on, on HTTP/1.1.
func (p *Pod) CloseIdle(after time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = after
}

// notify wakes the waiters. The lock is held.
func (p *Pod) notify() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// tlsConfig is the server's side of TLS for one protocol.
func (p *Pod) tlsConfig(next ...string) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{p.opts.Cert.TLS}, NextProtos: next, MinVersion: tls.VersionTLS12}
}
