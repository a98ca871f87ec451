//go:build !linux

package fakepod

import (
	"net"
	"time"
)

// awaitSent gives the kernel a moment to send what was written before a reset
// throws the rest away. Only Linux tells when that is done.
func awaitSent(net.Conn) { time.Sleep(10 * time.Millisecond) }
