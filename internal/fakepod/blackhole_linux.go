package fakepod

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/calinix/caddy-calinix/internal/fakepod/freeport"
)

// Blackhole returns a loopback address to which connecting neither succeeds nor
// fails, as with a host that is gone from the network: what a dial timeout is
// for. It lasts for the length of the test. Linux only; elsewhere the test is
// skipped.
func Blackhole(tb testing.TB) (addr string) {
	tb.Helper()
	port := freeport.Get(tb)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		tb.Fatal(os.NewSyscallError("socket", err))
	}
	tb.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		tb.Fatal(os.NewSyscallError("setsockopt", err))
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		tb.Fatal(os.NewSyscallError("bind", err))
	}
	// the kernel drops the handshakes that do not fit in the queue of
	// connections to be accepted; nobody accepts, so it stays full
	if err := unix.Listen(fd, 0); err != nil {
		tb.Fatal(os.NewSyscallError("listen", err))
	}
	addr = fmt.Sprintf("127.0.0.1:%d", port)
	for range 16 {
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		cancel()
		switch {
		case err == nil:
			tb.Cleanup(func() { c.Close() })
		case errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded):
			return addr
		default:
			tb.Fatal(err)
		}
	}
	tb.Fatal("the queue of the black hole never filled up")
	return ""
}
