//go:build unix && !aix

package calinix

import "golang.org/x/sys/unix"

// endsNext looks, without waiting, whether the next thing to read is the end.
func endsNext(fd uintptr) bool {
	var b [1]byte
	n, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	return n == 0 && err == nil
}
