package fakepod_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/fakepod"
)

// A closed port refuses, an idle connection ends with it, a running exchange
// goes on, and the pod comes back on the same port.
func TestRefuseAndListen(t *testing.T) {
	for _, proto := range []fakepod.Protocol{fakepod.HTTP1, fakepod.HTTP2} {
		newClient := client
		if proto == fakepod.HTTP2 {
			newClient = func(t *testing.T) *http.Client { return http2Client(t, nil) }
		}
		p := fakepod.New(t, fakepod.Options{Name: "a", Protocol: proto})
		idle, busy := newClient(t), newClient(t)
		if a := send(t, idle, p.URL, "x"); a.status != 200 {
			t.Fatalf("%+v", a)
		}
		hold := make(chan struct{})
		p.Set(fakepod.Reply{Hold: hold})
		got := make(chan answer, 1)
		go func() { got <- send(t, busy, p.URL, "x") }()
		p.WaitRequests(t, 2)

		p.Refuse()
		p.WaitOpen(t, 1) // the idle one is closed
		if a := send(t, idle, p.URL, "x"); !errors.Is(a.err, syscall.ECONNREFUSED) {
			t.Errorf("while refusing: %d, %v", a.status, a.err)
		}
		close(hold)
		if a := <-got; a.status != 200 || a.err != nil {
			t.Errorf("the running exchange: %+v", a)
		}
		p.WaitOpen(t, 0) // ended after its answer

		p.Set(fakepod.Reply{})
		for range 2 { // the second does nothing
			if err := p.Listen(); err != nil {
				t.Fatal(err)
			}
		}
		if a := send(t, idle, p.URL, "x"); a.status != 200 || a.err != nil {
			t.Errorf("after reopening: %+v", a)
		}
		if n := p.Count(); n != 3 {
			t.Errorf("%d requests, want 3", n)
		}
	}
}

func TestCrashAndRestart(t *testing.T) {
	for _, proto := range []fakepod.Protocol{fakepod.HTTP1, fakepod.HTTP2} {
		newClient := client
		if proto == fakepod.HTTP2 {
			newClient = func(t *testing.T) *http.Client { return http2Client(t, nil) }
		}
		p := fakepod.New(t, fakepod.Options{Protocol: proto, Script: fakepod.Reply{Pause: time.Minute, PauseAfter: 1, Gap: fakepod.NoGap}})
		c := newClient(t)
		got := make(chan answer, 1)
		go func() { got <- send(t, c, p.URL+chat, `{"stream":true}`) }()
		p.WaitSent(t, 1, 1)
		addr := p.Addr
		if err := p.Restart(); err != nil {
			t.Fatal(err)
		}
		if a := <-got; a.status != 200 || a.err == nil || len(events(a.body)) != 1 && proto == fakepod.HTTP1 {
			t.Errorf("the running exchange: %+v", a)
		}
		if q := p.Requests()[0]; q.End != fakepod.PodGone || q.ClosedEarly {
			t.Errorf("%v", q)
		}
		p.Set(fakepod.Reply{})
		if a := send(t, newClient(t), "http://"+addr, "x"); a.status != 200 {
			t.Errorf("after the restart: %+v", a)
		}
		p.Crash()
		if a := send(t, newClient(t), "http://"+addr, "x"); !errors.Is(a.err, syscall.ECONNREFUSED) {
			t.Errorf("after the crash: %+v", a)
		}
		p.Close()
		p.Close()
		if err := p.Listen(); err == nil {
			t.Error("a closed pod listens")
		}
	}
}

func TestResetConns(t *testing.T) {
	p := fakepod.New(t, fakepod.Options{Script: fakepod.Reply{Silent: true}})
	got := make(chan answer, 1)
	go func() { got <- send(t, client(t), p.URL, "x") }()
	p.WaitRequests(t, 1)
	p.ResetConns()
	if a := <-got; !errors.Is(a.err, syscall.ECONNRESET) {
		t.Errorf("%+v", a)
	}
	p.WaitOpen(t, 0)
	if cn := p.Conns()[0]; !cn.Reset || cn.ByPeer || cn.Err != nil {
		t.Errorf("%+v", cn)
	}
}

// The second request of a connection is met by a reset and leaves no trace but
// the connection's; a new connection is served.
func TestResetOnReuse(t *testing.T) {
	for _, body := range []string{"x", strings.Repeat("x", 4<<20)} {
		p := fakepod.New(t, fakepod.Options{})
		p.ResetOnReuse(true)
		c := client(t)
		for k := range 4 {
			a := send(t, c, p.URL, body)
			if served := k%2 == 0; served != (a.status == 200) || !served && !isReset(a.err) {
				t.Errorf("request %d of %d bytes: %d, %v", k, len(body), a.status, a.err)
			}
		}
		cs := p.Conns()
		if p.Count() != 2 || len(cs) != 2 || !cs[0].Reset || cs[0].Requests != 1 {
			t.Errorf("%d requests, connections %+v", p.Count(), cs)
		}
		p.ResetOnReuse(false)
		for range 2 {
			if a := send(t, client(t), p.URL, "x"); a.status != 200 {
				t.Errorf("switched off: %+v", a)
			}
		}
	}
}

func TestResetOnReuseHTTP2(t *testing.T) {
	p := fakepod.New(t, fakepod.Options{Protocol: fakepod.HTTP2})
	p.ResetOnReuse(true)
	c := http2Client(t, nil)
	if a := send(t, c, p.URL, "x"); a.status != 200 {
		t.Fatalf("%+v", a)
	}
	if a := send(t, c, p.URL, "x"); a.err == nil {
		t.Errorf("%+v", a)
	}
	p.WaitOpen(t, 0)
	if cs := p.Conns(); len(cs) != 1 || !cs[0].Reset || p.Count() != 1 {
		t.Errorf("%d requests, %+v", p.Count(), cs)
	}
}

func TestCloseIdle(t *testing.T) {
	p := fakepod.New(t, fakepod.Options{})
	p.CloseIdle(30 * time.Millisecond)
	c := dial(t, p)
	time.Sleep(50 * time.Millisecond) // before the first request nothing is closed
	r := bufio.NewReader(c)
	io.WriteString(c, "GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	if _, err := r.ReadByte(); err != io.EOF {
		t.Errorf("%v, want an orderly end", err)
	}
	c.Close()
	p.WaitOpen(t, 0)
	q, cn := p.WaitEnded(t, 1), p.Conns()[0]
	if cn.ByPeer || cn.Reset || cn.Err != nil || cn.Closed.Sub(q.Ended) < 30*time.Millisecond || q.ClosedEarly {
		t.Errorf("connection %+v, request %v", cn, q)
	}
}

func TestFreeze(t *testing.T) {
	p := fakepod.New(t, fakepod.Options{Script: fakepod.Reply{Gap: 5 * time.Millisecond, Chunks: 30}})
	c := client(t)
	got := make(chan answer, 3)
	go func() { got <- send(t, c, p.URL+chat, `{"stream":true}`) }()
	p.WaitSent(t, 1, 2)
	p.Freeze()
	go func() { got <- send(t, c, p.URL, "x") }()
	probe, cancel := context.WithTimeout(t.Context(), 60*time.Millisecond)
	defer cancel()
	if a := sendCtx(t, probe, client(t), p.URL+"/health", ""); !errors.Is(a.err, context.DeadlineExceeded) {
		t.Errorf("a probe of a frozen pod: %+v", a)
	}
	p.Wait(t, "the connections to be accepted", func(s fakepod.State) bool { return len(s.Conns) == 3 })
	if n := p.Count(); n != 1 {
		t.Errorf("%d requests were read", n)
	}
	sent := len(p.Requests()[0].Sent)
	select {
	case a := <-got:
		t.Errorf("an answer from a frozen pod: %+v", a)
	case <-time.After(30 * time.Millisecond): // not a wait: nothing may come
	}
	if now := len(p.Requests()[0].Sent); now > sent {
		t.Errorf("%d chunks went out while frozen", now-sent)
	}
	p.Thaw()
	for range 2 {
		if a := <-got; a.err != nil || a.status != 200 {
			t.Errorf("after thawing: %+v", a)
		}
	}
	p.Freeze()
	p.Close() // ends although frozen
}

func TestIPv6(t *testing.T) {
	ln, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip("no IPv6 loopback here")
	}
	ln.Close()
	p := fakepod.New(t, fakepod.Options{Host: "::1"})
	if a := send(t, client(t), p.URL, "x"); a.status != 200 || !strings.HasPrefix(p.URL, "http://[::1]:") || p.Last(t).Host != p.Addr {
		t.Errorf("%+v at %s, Host %s", a, p.URL, p.Last(t).Host)
	}
}

// Everything at once, closed in the middle: no goroutine is left (TestMain).
func TestCloseInTheMiddle(t *testing.T) {
	for _, proto := range []fakepod.Protocol{fakepod.HTTP1, fakepod.HTTP2} {
		p := fakepod.New(t, fakepod.Options{Protocol: proto})
		p.Set(fakepod.Cycle(
			fakepod.Reply{Silent: true}, fakepod.Reply{Delay: time.Minute}, fakepod.Reply{FirstChunk: time.Minute},
			fakepod.Reply{}, fakepod.Reply{Cut: fakepod.Abort}, fakepod.Unread{Reply: fakepod.Reply{Silent: true}},
		))
		c := client(t)
		if proto == fakepod.HTTP2 {
			c = http2Client(t, nil)
		}
		var wg sync.WaitGroup
		for range 30 {
			wg.Go(func() { send(t, c, p.URL+chat, `{"stream":true}`) })
		}
		p.Wait(t, "30 requests", func(s fakepod.State) bool { return len(s.Requests) >= 30 })
		p.Close()
		wg.Wait()
		if n := p.InFlight(); n != 0 {
			t.Errorf("%d in flight after Close", n)
		}
	}
}

func TestBlackhole(t *testing.T) {
	addr := fakepod.Blackhole(t)
	d := net.Dialer{Timeout: 300 * time.Millisecond}
	began := time.Now()
	_, err := d.Dial("tcp", addr)
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() || time.Since(began) < 250*time.Millisecond {
		t.Errorf("%v after %v, want a timeout", err, time.Since(began))
	}
}
