//go:build unix && !aix

package calinix_test

import (
	"io"
	"net"
	"testing"

	calinix "github.com/calinix/caddy-calinix"
)

// TestHasEnded: the end of a connection is seen while net/http's reader, as it always
// does, waits on it; bytes that come before are none, and are still there to be read.
func TestHasEnded(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	pair := func() (ours, peer net.Conn) {
		ours, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ours.Close() })
		if peer, err = ln.Accept(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { peer.Close() })
		return ours, peer
	}

	ours, peer := pair()
	if calinix.HasEnded(ours) {
		t.Error("an open connection has ended")
	}
	peer.Close()
	eventually(t, "the end to be seen", func() bool { return calinix.HasEnded(ours) })

	ours, peer = pair()
	if _, err := peer.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	peer.Close()
	if calinix.HasEnded(ours) {
		t.Error("the end is seen before what comes before it")
	}
	if all, err := io.ReadAll(ours); string(all) != "x" || err != nil {
		t.Errorf("read %q, %v", all, err)
	}
	eventually(t, "the end to be seen", func() bool { return calinix.HasEnded(ours) })

	ours, peer = pair()
	read := make(chan error)
	go func() {
		_, err := ours.Read(make([]byte, 1))
		read <- err
	}()
	for range 100 {
		if calinix.HasEnded(ours) {
			t.Error("an open connection that is read from has ended")
		}
	}
	peer.Close()
	if err := <-read; err != io.EOF {
		t.Error(err)
	}
	if !calinix.HasEnded(ours) {
		t.Error("the end is not seen")
	}
}
