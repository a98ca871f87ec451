package freeport

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestPortsAreDistinctAndFree(t *testing.T) {
	seen := map[int]bool{}
	for range 3 * block { // more than one block
		port, err := Take()
		if err != nil {
			t.Fatal(err)
		}
		defer Give(port)
		if seen[port] {
			t.Fatalf("port %d handed out twice", port)
		}
		seen[port] = true
		if port <= low || port >= high {
			t.Fatalf("port %d outside %d-%d", port, low, high)
		}
	}
}

func TestPortInUseIsSkipped(t *testing.T) {
	port, err := Take()
	if err != nil {
		t.Fatal(err)
	}
	for _, network := range []string{"tcp", "udp"} {
		addr := fmt.Sprintf("127.0.0.1:%d", port)
		if network == "tcp" {
			ln, err := net.Listen(network, addr)
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			if usable(port) {
				t.Error("a port with a TCP listener is called usable")
			}
			ln.Close()
			continue
		}
		pc, err := net.ListenPacket(network, addr)
		if err != nil {
			t.Fatal(err)
		}
		defer pc.Close()
		if usable(port) {
			t.Error("a port with a UDP socket is called usable")
		}
	}
}

// A second process never gets a port of the first one's blocks.
func TestProcessesDoNotShareBlocks(t *testing.T) {
	mine, err := Take()
	if err != nil {
		t.Fatal(err)
	}
	defer Give(mine)
	if os.Getenv("FREEPORT_CHILD") != "" {
		fmt.Printf("port %d\n", mine)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestProcessesDoNotShareBlocks$", "-test.v")
	cmd.Env = append(os.Environ(), "FREEPORT_CHILD=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	_, after, ok := strings.Cut(string(out), "port ")
	var theirs int
	if _, err := fmt.Sscan(after, &theirs); !ok || err != nil {
		t.Fatalf("the child printed no port:\n%s", out)
	}
	if (theirs-low)/block == (mine-low)/block {
		t.Errorf("ports %d and %d are of one block", mine, theirs)
	}
}

func TestGivenPortsReturnLast(t *testing.T) {
	a, err := Take()
	if err != nil {
		t.Fatal(err)
	}
	Give(a)
	b, err := Take()
	if err != nil {
		t.Fatal(err)
	}
	defer Give(b)
	if a == b {
		t.Errorf("port %d came back at once", a)
	}
}
