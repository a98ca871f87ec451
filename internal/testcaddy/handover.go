package testcaddy

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// Handover is to be called before a reload that a test brings about by itself,
// and what it returns after it, with the reload's error, which it passes on: it
// waits until the servers of the old configuration take no new connections any
// more. Until then Caddy now and then closes a new connection without an answer,
// whatever the site does. Reload, ReloadSite and their Try forms wait by
// themselves. It needs Serve's site.
func (c *Caddy) Handover() (wait func(reload error) error, err error) {
	// A server closes its listeners first and its idle connections then, so
	// the end of an idle connection is the sign.
	nc, err := c.idle()
	if err != nil {
		return nil, fmt.Errorf("waiting for a reload: %w", err)
	}
	return func(reload error) error {
		defer nc.Close()
		if reload != nil {
			return reload
		}
		_ = nc.SetReadDeadline(time.Now().Add(Patience))
		if n, err := io.Copy(io.Discard, nc); err != nil || n > 0 {
			return fmt.Errorf("an idle connection was not closed by a reload: %d bytes, %w", n, err)
		}
		return nil
	}, nil
}

// idle returns a connection to Serve's site on which one request was answered.
// OPTIONS * is answered by net/http's server before the site is asked.
func (c *Caddy) idle() (net.Conn, error) {
	addr := "localhost:" + strconv.Itoa(c.port)
	var nc net.Conn
	var err error
	if c.plain {
		nc, err = net.DialTimeout("tcp", addr, Patience)
	} else {
		nc, err = tls.DialWithDialer(&net.Dialer{Timeout: Patience}, "tcp", addr, insecure())
	}
	if err != nil {
		return nil, err
	}
	_ = nc.SetDeadline(time.Now().Add(Patience))
	_, err = fmt.Fprintf(nc, "OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n")
	if err == nil {
		var resp *http.Response
		if resp, err = http.ReadResponse(bufio.NewReader(nc), nil); err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	}
	if err != nil {
		nc.Close()
		return nil, err
	}
	return nc, nil
}
