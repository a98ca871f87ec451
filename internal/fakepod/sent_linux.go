package fakepod

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// awaitSent waits until the kernel has sent what was written, at most a second.
// A reset throws away what is still waiting for the peer's window; what has
// been sent on loopback is in the peer's hands.
func awaitSent(c net.Conn) {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return
	}
	for deadline := time.Now().Add(time.Second); time.Now().Before(deadline); {
		unsent := 0
		if raw.Control(func(fd uintptr) { unsent, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQNSD) }) != nil || unsent == 0 {
			return
		}
		time.Sleep(100 * time.Microsecond)
	}
}
