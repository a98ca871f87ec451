package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// patience is how long a request may take; the longest fault lasts 4 s.
const patience = 40 * time.Second

// crowd is how many requests run at once at most: a machine that is too busy to
// serve the rate is not buried under them.
const crowd = 400

// load are the clients.
type load struct {
	c       *checker
	rate    int
	url     string
	prompts *prompts
	rng     *rand.Rand
	n       int // requests made
	busy    time.Duration

	clients map[string]*http.Client

	mu   sync.Mutex
	quic []*quic.Conn // guarded by mu

	cancel  context.CancelFunc
	running sync.WaitGroup
}

func newLoad(s settings, ca *caddy, c *checker) *load {
	l := &load{
		c: c, rate: s.rate, url: ca.url(), prompts: newPrompts(s.seed), rng: rand.New(rand.NewPCG(s.seed, 2)),
		clients: map[string]*http.Client{},
	}
	for name, h2 := range map[string]bool{"h1": false, "h2": true} {
		protocols := new(http.Protocols)
		protocols.SetHTTP1(!h2)
		protocols.SetHTTP2(h2)
		l.clients[name] = &http.Client{Transport: &http.Transport{
			Protocols: protocols, TLSClientConfig: unverified(), MaxIdleConnsPerHost: 1000, DisableCompression: true, DialContext: l.dial,
		}}
	}
	l.clients["h3"] = &http.Client{Transport: &http3.Transport{TLSClientConfig: unverified(), DisableCompression: true, Dial: l.dialQUIC}}
	return l
}

func (l *load) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, addr)
	if err == nil {
		l.c.connected(conn.LocalAddr())
	}
	return conn, err
}

// dialQUIC does not end with the request that began it: others wait for the same
// connection, and http3 would tell them "context canceled" when that one leaves.
func (l *load) dialQUIC(ctx context.Context, addr string, tlsConfig *tls.Config, config *quic.Config) (*quic.Conn, error) {
	conn, err := quic.DialAddr(context.WithoutCancel(ctx), addr, tlsConfig, config)
	if err == nil {
		l.c.connected(conn.LocalAddr())
		l.mu.Lock()
		l.quic = append(l.quic, conn)
		l.mu.Unlock()
	}
	return conn, err
}

// start sends requests at the rate, whatever becomes of those before, but for those
// that exceed the crowd; with every fifth goes one that is its control.
func (l *load) start(ctx context.Context) {
	ctx, l.cancel = context.WithCancel(ctx)
	slots := make(chan struct{}, crowd)
	send := func(r request) {
		select {
		case slots <- struct{}{}:
			l.running.Go(func() { l.send(r); <-slots })
		default:
			l.c.held.Add(1)
		}
	}
	l.running.Go(func() {
		began := time.Now()
		defer func() { l.busy += time.Since(began) }()
		tick := time.NewTicker(4 * time.Millisecond)
		defer tick.Stop()
		for n := 0; ; {
			select {
			case <-ctx.Done():
				return
			case now := <-tick.C:
				for ; n < int(now.Sub(began).Seconds()*float64(l.rate)); n++ {
					r := l.prompts.next(l.rng, l.n, l.url)
					if l.n++; l.n%5 == 0 {
						send(r.control(l.url))
					}
					send(r)
				}
			}
		}
	})
}

// stop sends no more, waits until all have ended and closes the connections.
func (l *load) stop() {
	l.cancel()
	l.running.Wait()
	for _, c := range l.clients {
		c.CloseIdleConnections()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, conn := range l.quic { // http3 forgets one on which a request has failed, and keeps it alive
		_ = conn.CloseWithError(quic.ApplicationErrorCode(http3.ErrCodeNoError), "")
	}
	l.quic = nil
}

// send sends a request, reads the answer to its end and enters what came of it.
func (l *load) send(r request) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	got := answer{began: time.Now()}
	var conn atomic.Pointer[connection]
	if r.leave > 0 {
		timer := time.AfterFunc(r.leave, cancel)
		defer timer.Stop()
	}
	l.c.begin(&r)
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		conn.Store(l.c.connection(info.Conn.LocalAddr()))
	}})
	req, err := http.NewRequestWithContext(traced, http.MethodPost, r.url, bytes.NewReader(r.body))
	if err != nil {
		panic(err) // of fixed parts: cannot fail
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Calinix-Request-Id", r.id)
	resp, err := l.clients[r.protocol].Do(req)
	server := unknown
	if err == nil {
		got.status = resp.StatusCode
		if n, bad := strconv.Atoi(resp.Header.Get("X-Loaded")); bad == nil {
			server = n
		}
		answer := bufio.NewReader(resp.Body)
		_, _ = answer.Peek(1)
		got.first = time.Since(got.began)
		var body []byte
		body, err = io.ReadAll(answer)
		resp.Body.Close()
		got.whole = err == nil
		if err == nil && got.status == http.StatusOK {
			got.madeUp = r.stream && !bytes.HasSuffix(body, []byte("data: [DONE]\n\n")) || !r.stream && !json.Valid(body)
		}
	}
	got.err = err
	got.ended = time.Now()
	got.conn = conn.Load()
	got.left = r.leave > 0 && ctx.Err() != nil
	l.c.end(&r, got, server)
}
