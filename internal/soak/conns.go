package main

import (
	"net"
	"time"
)

// connection is one of a client's. Guarded by the checker's mu.
type connection struct {
	server   int       // the configuration whose server has it, as an answer on it said; unknown before
	answered time.Time // the end of the last answer on it
}

const unknown = -1

// connected enters a new connection from a local address.
func (c *checker) connected(local net.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conns[key(local)] = &connection{server: unknown} // an earlier one of the address is over
}

// connection returns the one that an address has now.
func (c *checker) connection(local net.Addr) *connection {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conns[key(local)]
}

func key(local net.Addr) string { return local.Network() + " " + local.String() }

// reload is one: the n-th replaces the server of configuration n.
type reload struct{ from, to time.Time }

// late is how long after a reload its old server may still close connections. It
// looks for idle ones at least every half second, and closes others as their last
// answers end.
const late = time.Second

// unaccepted reports whether a reload has kept a request that got no answer from any
// handler, as it does under any configuration: a server that is told to stop closes
// connections on which nothing runs, or on which it has just read a request's head
// (net/http's conn.serve and Server.Shutdown), and a client may be sending on them.
//
// So the connection must have been the replaced server's, and still about to be
// closed. That is known if an answer came on it before. If none did, or if there was
// no connection at all, the request must have run during the reload. Guarded by mu.
func (c *checker) unaccepted(a *answer) bool {
	if a.conn != nil && a.conn.server != unknown {
		if a.conn.server >= len(c.reloads) {
			return false
		}
		r := c.reloads[a.conn.server]
		end := r.to
		if a.conn.answered.After(end) {
			end = a.conn.answered
		}
		return a.ended.After(r.from) && a.began.Before(end.Add(late))
	}
	for _, r := range c.reloads {
		if a.ended.After(r.from) && a.began.Before(r.to.Add(late)) {
			return true
		}
	}
	return false
}
