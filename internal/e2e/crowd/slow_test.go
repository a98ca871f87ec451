package crowd

import (
	"flag"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

var slowCount = flag.Int("clients", 5000, "slow clients at once; at most 500 under the race detector")

// slowClients is how many there are.
func slowClients(t *testing.T) int {
	t.Helper()
	n := *slowCount
	if testcaddy.RaceEnabled {
		n = min(n, 500)
	}
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	if need := uint64(2*n + 500); files.Max < need { // of the process under test: a client's and a pod's connection each
		t.Fatalf("%d clients need %d file descriptors, the hard limit is %d: raise it (ulimit -Hn %d, or LimitNOFILE= of the service)", n, need, files.Max, need)
	}
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells what a process takes")
	}
	return n
}

// mostPerClient is what the process may take for a slow client: its connection and
// the pod's, with a goroutine or two and two buffers each, what Caddy copies through
// (32 KiB), and as much again that the collector has not got back yet.
const mostPerClient = 250 << 10

// TestSlowReaders: clients that take the beginning of a stream and no more. They
// cost what their connections do; others are served meanwhile; and when they leave
// all is as before.
func TestSlowReaders(t *testing.T) {
	n := slowClients(t)
	ps := fakepod.NewPods(t, fakepod.Options{Keep: 1}, "a", "b")
	for _, pod := range ps {
		// Of no other request: an answer of a known length is over before its late
		// end, and the next request on that connection would wait for that.
		pod.SetPath("/v1/completions", fakepod.Reply{Chunks: 8, ChunkBytes: 8 << 10, Gap: fakepod.NoGap, LateEnd: time.Hour})
	}
	p := start(t, "single {\n"+list(ps, "")+"}\n")
	p.servesOthers(t, 1000)
	before := p.settled(t)
	c := gather(t, readers, p.address, n, 8<<10)
	c.ready(t)
	if c.served != n {
		t.Errorf("of %d, %d get a stream, %d are refused, %d fail", n, c.served, c.refused, c.errors)
	}
	p.await(t, float64(n), "calinix_pod_inflight")
	p.await(t, 0, "calinix_body_bytes") // for their answers have begun
	took := p.settled(t) - before
	t.Logf("%d slow readers take %d MiB, %d KiB each", n, took>>20, took/int64(n)>>10)
	if took > int64(n)*mostPerClient {
		t.Errorf("%d slow readers take %d bytes, %d each, at most %d is enough", n, took, took/int64(n), mostPerClient)
	}
	p.servesOthers(t, 1000)
	c.leave()
	p.await(t, 0, "calinix_pod_inflight")
	p.await(t, float64(n), "calinix_requests_total", "code", "499")
}

// TestSlowSenders: clients that announce a megabyte and send a byte a second. They
// hold what they have sent, not what they have announced; others are served
// meanwhile, with bodies of the same size.
func TestSlowSenders(t *testing.T) {
	n := slowClients(t)
	ps := fakepod.NewPods(t, fakepod.Options{Keep: 1}, "a")
	p := start(t, "body_memory_bytes 128MiB\nmax_body_bytes 1MiB\nsingle {\n"+list(ps, "")+"}\n")
	p.servesOthers(t, 1<<20)
	before := p.settled(t)
	c := gather(t, senders, p.address, n, 1<<20)
	c.ready(t)
	if c.errors > 0 {
		t.Errorf("%d of %d could not send", c.errors, n)
	}
	p.await(t, float64(n*(16<<10)), "calinix_body_bytes")
	took := p.settled(t) - before
	t.Logf("%d slow senders take %d MiB, %d KiB each", n, took>>20, took/int64(n)>>10)
	if took > int64(n)*mostPerClient {
		t.Errorf("%d slow senders take %d bytes, %d each, at most %d is enough", n, took, took/int64(n), mostPerClient)
	}
	p.servesOthers(t, 1<<20)
	c.leave()
	p.await(t, 0, "calinix_body_bytes")
}
