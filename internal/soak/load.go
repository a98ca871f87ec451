package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go/http3"
)

// patience is how long a request may take; the longest fault lasts 4 s.
const patience = 40 * time.Second

// crowd is how many requests run at once at most: a machine that is too busy to
// serve the rate is not buried under them.
const crowd = 800

// load are the clients.
type load struct {
	cancel  context.CancelFunc
	running sync.WaitGroup
	clients map[string]*http.Client
	h3      *http3.Transport
	opened  sync.Map // net.Conn to time.Time
}

// startLoad sends requests at a fixed rate, whatever becomes of those before, but
// for those that exceed the crowd.
func startLoad(ctx context.Context, s settings, ca *caddy, c *checker) *load {
	ctx, cancel := context.WithCancel(ctx)
	slots := make(chan struct{}, crowd)
	l := &load{cancel: cancel, clients: map[string]*http.Client{}}
	for name, h2 := range map[string]bool{"h1": false, "h2": true} {
		protocols := new(http.Protocols)
		protocols.SetHTTP1(!h2)
		protocols.SetHTTP2(h2)
		l.clients[name] = &http.Client{Transport: &http.Transport{
			Protocols: protocols, TLSClientConfig: unverified(), MaxIdleConnsPerHost: 1000, DisableCompression: true,
		}}
	}
	l.h3 = &http3.Transport{TLSClientConfig: unverified(), DisableCompression: true}
	l.clients["h3"] = &http.Client{Transport: l.h3}
	prompts := newPrompts(s.seed)
	rng := rand.New(rand.NewPCG(s.seed, 2))
	l.running.Go(func() {
		began := time.Now()
		tick := time.NewTicker(4 * time.Millisecond)
		defer tick.Stop()
		for n := 0; ; {
			select {
			case <-ctx.Done():
				return
			case now := <-tick.C:
				for ; n < int(now.Sub(began).Seconds()*float64(s.rate)); n++ {
					r := prompts.next(rng, n, ca.url())
					select {
					case slots <- struct{}{}:
						l.running.Go(func() { l.send(r, c); <-slots })
					default:
						c.held.Add(1)
					}
				}
			}
		}
	})
	return l
}

// stop sends no more, and waits until all have ended.
func (l *load) stop() {
	l.cancel()
	l.running.Wait()
	for _, c := range l.clients {
		c.CloseIdleConnections()
	}
	_ = l.h3.Close()
}

// request is one to be sent.
type request struct {
	id, mode, protocol, url string
	body                    []byte
	stream                  bool
	leave                   time.Duration // after which the client leaves; 0: it stays
}

// prompts makes requests whose beginnings are shared.
type prompts struct {
	words     []string
	documents []string
}

func newPrompts(seed uint64) *prompts {
	rng := rand.New(rand.NewPCG(seed, 3))
	p := &prompts{words: strings.Fields("river stone cloud garden letter window winter market engine bottle mirror forest")}
	for range 100 {
		p.documents = append(p.documents, p.text(rng, 100+rng.IntN(400)))
	}
	return p
}

func (p *prompts) text(rng *rand.Rand, n int) string {
	var b strings.Builder
	for range n {
		fmt.Fprintf(&b, "%s%d ", p.words[rng.IntN(len(p.words))], rng.IntN(50))
	}
	return b.String()
}

func (p *prompts) next(rng *rand.Rand, n int, url string) request {
	r := request{id: fmt.Sprintf("soak-%d", n), stream: rng.IntN(10) < 8}
	r.mode = [...]string{"single", "dispatch"}[rng.IntN(2)]
	r.protocol = [...]string{"h1", "h1", "h1", "h1", "h1", "h2", "h2", "h2", "h2", "h3"}[rng.IntN(10)]
	if rng.IntN(100) < 8 {
		r.leave = time.Duration(1+rng.IntN(150)) * time.Millisecond
	}
	document := p.documents[rng.IntN(len(p.documents))]
	if rng.IntN(200) == 0 { // a long one
		document = strings.Repeat(document, 40)
	}
	r.body, _ = json.Marshal(map[string]any{ // strings only: cannot fail
		"model": "m", "stream": r.stream, "user": fmt.Sprint("user ", rng.IntN(500)),
		"messages": []map[string]string{{"role": "system", "content": document}, {"role": "user", "content": p.text(rng, 20)}},
	})
	r.url = url + "/" + r.mode + "/v1/chat/completions"
	return r
}

// send sends a request, reads the answer to its end and enters what came of it.
func (l *load) send(r request, c *checker) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	got := answer{began: time.Now()}
	var opened atomic.Value // time.Time
	if r.leave > 0 {
		timer := time.AfterFunc(r.leave, cancel)
		defer timer.Stop()
	}
	c.begin(&r)
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		at, _ := l.opened.LoadOrStore(info.Conn, time.Now())
		opened.Store(at)
	}})
	req, err := http.NewRequestWithContext(traced, http.MethodPost, r.url, bytes.NewReader(r.body))
	if err != nil {
		panic(err) // of fixed parts: cannot fail
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Calinix-Request-Id", r.id)
	resp, err := l.clients[r.protocol].Do(req)
	if err == nil {
		got.status, got.first = resp.StatusCode, time.Since(got.began)
		var body []byte
		body, err = io.ReadAll(resp.Body)
		resp.Body.Close()
		got.whole = err == nil
		if err == nil && got.status == http.StatusOK {
			got.madeUp = r.stream && !bytes.HasSuffix(body, []byte("data: [DONE]\n\n")) || !r.stream && !json.Valid(body)
		}
	}
	got.err = err
	got.ended = time.Now()
	got.opened, _ = opened.Load().(time.Time)
	got.left = r.leave > 0 && ctx.Err() != nil
	c.end(&r, got)
}
