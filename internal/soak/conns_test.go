package main

import (
	"net"
	"testing"
	"time"
)

// TestUnaccepted: a request that got no answer is excused by a reload only if its
// connection was the replaced server's and that server was closing connections.
func TestUnaccepted(t *testing.T) {
	zero := time.Now()
	at := func(s float64) time.Time { return zero.Add(time.Duration(s * float64(time.Second))) }
	on := func(server int, answered float64) *connection { return &connection{server, at(answered)} }
	for name, tc := range map[string]struct {
		conn         *connection
		began, ended float64
		want         bool
	}{
		"during the reload":                        {on(0, 9), 10.1, 10.2, true},
		"began before it, ended in it":             {on(0, 9), 9.5, 10.2, true},
		"ended before it":                          {on(0, 9), 9.5, 9.9, false},
		"after a stream that outlasted the reload": {on(0, 25), 25.1, 25.2, true},
		"long after that":                          {on(0, 25), 26.5, 26.6, false},
		"long after the reload":                    {on(0, 9), 12.1, 12.2, false},
		"a connection of the new server":           {on(1, 10.5), 10.6, 10.7, false},
		"of the new server, during the next":       {on(1, 29), 30.1, 30.2, true},
		"of the last server":                       {on(2, 40), 41, 41.1, false},
		"nobody's yet, during the reload":          {on(unknown, 0), 10.1, 10.2, true},
		"nobody's yet, soon after":                 {on(unknown, 0), 11.5, 11.6, true},
		"nobody's yet, later":                      {on(unknown, 0), 12.1, 12.2, false},
		"none, during the reload":                  {nil, 10.1, 10.2, true},
		"none, before":                             {nil, 9, 9.9, false},
		"none, later":                              {nil, 12.1, 12.2, false},
	} {
		c := newChecker()
		c.reloads = []reload{{at(10), at(11)}, {at(30), at(31)}}
		if got := c.unaccepted(&answer{conn: tc.conn, began: at(tc.began), ended: at(tc.ended)}); got != tc.want {
			t.Errorf("%s: excused %v, want %v", name, got, tc.want)
		}
	}
}

// TestConnections: an address that is used again is another connection, and an
// address of TCP is not that of UDP.
func TestConnections(t *testing.T) {
	tcp, udp := &net.TCPAddr{Port: 1}, &net.UDPAddr{Port: 1}
	c := newChecker()
	c.connected(tcp)
	c.connected(udp)
	first := c.connection(tcp)
	first.server = 3
	if other := c.connection(udp); other == nil || other.server != unknown {
		t.Errorf("the other protocol's: %+v", other)
	}
	c.connected(tcp)
	if again := c.connection(tcp); again == first || again.server != unknown || first.server != 3 {
		t.Errorf("the address again: %+v, before %+v", again, first)
	}
}

// TestUnlucky: reloads that keep more requests from our handlers than from Caddy's
// own are no chance.
func TestUnlucky(t *testing.T) {
	for _, tc := range []struct {
		ours, theirs int
		want         int
	}{{0, 0, 0}, {30, 0, 0}, {60, 0, 1}, {60, 5, 0}, {300, 60, 0}, {300, 40, 0}, {300, 25, 1}, {0, 20, 0}} {
		c := newChecker()
		c.figures.clients["200"], c.figures.controls = 10000, 2000
		c.figures.unaccepted["h1"], c.figures.unanswered = tc.ours, tc.theirs
		if c.unlucky(); len(c.violations()) != tc.want {
			t.Errorf("%d of 10000, and %d of 2000: %q, want %d", tc.ours, tc.theirs, c.violations(), tc.want)
		}
	}
}
