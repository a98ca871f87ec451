package churn

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// The pods' network: the API server takes no endpoints on the loopback network, so
// they are shown with addresses of a net that is for documentation (RFC 5737), and
// a proxy, which Caddy's transport is told to use, leads from there to the loopback
// addresses on which they are.
const (
	shownNet  = "192.0.2."
	actualNet = "127.0.1."
)

// network is a SOCKS 5 server (RFC 1928) that connects to actualNet for shownNet. A
// connection that is refused there is refused here.
type network struct {
	listener net.Listener
	running  sync.WaitGroup
}

func newNetwork(t *testing.T) *network {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	n := &network{listener: l}
	n.running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			n.running.Go(func() { n.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		n.running.Wait()
	})
	return n
}

// url names the proxy.
func (n *network) url() string { return "socks5://" + n.listener.Addr().String() }

// serve leads one connection to its destination.
func (n *network) serve(conn net.Conn) {
	defer conn.Close()
	to, err := destination(conn)
	if err != nil {
		return
	}
	pod, err := net.Dial("tcp", to)
	if err != nil {
		_, _ = conn.Write([]byte{5, 5, 0, 1, 0, 0, 0, 0, 0, 0}) // refused
		return
	}
	defer pod.Close()
	if _, err := conn.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0}); err != nil {
		return
	}
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{conn, pod}, {pod, conn}} {
		both.Go(func() {
			_, _ = io.Copy(way[1], way[0])
			_ = way[1].(*net.TCPConn).CloseWrite()
		})
	}
	both.Wait()
}

// destination reads what the peer wants to be connected to.
func destination(conn net.Conn) (string, error) {
	var b [262]byte
	if _, err := io.ReadFull(conn, b[:2]); err != nil { // version, number of methods
		return "", err
	}
	if _, err := io.ReadFull(conn, b[:b[1]]); err != nil {
		return "", err
	}
	if _, err := conn.Write([]byte{5, 0}); err != nil { // no authentication
		return "", err
	}
	if _, err := io.ReadFull(conn, b[:10]); err != nil { // version, command, 0, kind, IPv4 address, port
		return "", err
	}
	if b[1] != 1 || b[3] != 1 {
		return "", errors.New("want to connect to an IPv4 address")
	}
	return fmt.Sprintf("%s%d:%d", actualNet, b[7], binary.BigEndian.Uint16(b[8:])), nil
}
