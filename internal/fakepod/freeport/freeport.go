// Package freeport hands out loopback ports to test servers without races.
//
// The usual way (listen on port 0, close, use the number) fails now and then:
// the kernel gives the same port to another process or to an outgoing
// connection before the server binds it, and a client that dials a closed port
// of the kernel's own range can even connect to itself. This package takes its
// ports from below that range, in blocks; a block belongs to the process that
// listens on its first port, so test binaries that run side by side never meet.
// A port stays with its holder while nobody listens on it, which is what a
// server that is to be stopped and started again on one address needs.
package freeport

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
)

const (
	low   = 12000 // above the ports of well-known services
	high  = 32000 // below Linux's default range for outgoing connections (32768)
	block = 100   // ports in a block, the guard included
)

var (
	mu     sync.Mutex
	guards []net.Listener // open while this process lives
	free   []int          // first in, first out: a used port rests as long as possible
	seek   = os.Getpid()  // number of the block to try next
)

// Take returns a port that no other holder has and that is free for TCP and
// UDP, on all addresses. It stays taken until Give.
func Take() (int, error) {
	mu.Lock()
	defer mu.Unlock()
	for range 2 * block {
		if len(free) == 0 {
			if err := claim(); err != nil {
				return 0, err
			}
		}
		port := free[0]
		free = free[1:]
		if usable(port) {
			return port, nil
		}
		// somebody outside holds it: leave it out for good
	}
	return 0, errors.New("finding a free port: every port of two blocks is in use")
}

// Give returns a port taken before.
func Give(port int) {
	mu.Lock()
	defer mu.Unlock()
	free = append(free, port)
}

// Get takes a port for the length of a test.
func Get(tb testing.TB) int {
	tb.Helper()
	port, err := Take()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { Give(port) })
	return port
}

// claim makes the next block that nobody guards this process's own.
func claim() error {
	const blocks = (high - low) / block
	for range blocks {
		first := low + seek%blocks*block
		seek++
		guard, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(first)))
		if err != nil {
			continue
		}
		guards = append(guards, guard)
		for port := first + 1; port < first+block; port++ {
			free = append(free, port)
		}
		return nil
	}
	return fmt.Errorf("claiming a block of ports between %d and %d: all are guarded", low, high)
}

// usable reports whether the port can be bound for TCP and UDP on every
// address family that the machine has.
func usable(port int) bool {
	for _, host := range []string{"", "127.0.0.1", "::1"} {
		addr := net.JoinHostPort(host, strconv.Itoa(port))
		ln, err := net.Listen("tcp", addr)
		if err == nil {
			ln.Close()
		} else if !noFamily(err) {
			return false
		}
		pc, err := net.ListenPacket("udp", addr)
		if err == nil {
			pc.Close()
		} else if !noFamily(err) {
			return false
		}
	}
	return true
}

// noFamily reports an error that only says that the machine has no such address.
func noFamily(err error) bool {
	return errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT)
}
