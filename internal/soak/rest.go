package main

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// measured is what the process takes while it rests: with no request running, no
// client connected, and no connection to a pod but those of the probes.
type measured struct {
	goroutines, files int
	heap              int64 // bytes in use after a collection
	resident          int64
	blocks            int // in the indexes
	most              int // goroutines, that were ever seen at once
}

func (m measured) String() string {
	return fmt.Sprintf("%d goroutines, %d open files, %.2f MiB of heap, %d blocks in the indexes, %.0f MiB resident", m.goroutines, m.files, mib(m.heap), m.blocks, mib(m.resident))
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }

const (
	idle    = 5 * time.Second // a connection to a pod is kept for 4 s
	looking = 3 * time.Second // probes come every second
)

// rest stops the load, waits until nothing of it is left, and measures until it has
// seen enough, though no longer than what belonged to the load may be kept. Of its
// samples it has the least of each figure: what leaks is in all of them, and a probe
// that runs is not.
func (l *load) rest(ctx context.Context, ca *caddy, enough func(measured) bool) measured {
	l.stop()
	ca.settle(ctx, l.c)
	sleep(ctx, idle)
	m := measured{goroutines: math.MaxInt, files: math.MaxInt, heap: math.MaxInt64}
	for began := time.Now(); ctx.Err() == nil; sleep(ctx, looking/10) {
		if took := time.Since(began); took > looking && (enough(m) || took > writeIdle) {
			break
		}
		heap, err := ca.heap(ctx)
		if err != nil {
			l.c.violate("measuring: %v", err)
			continue
		}
		now, err := ca.metrics(ctx)
		if err != nil {
			l.c.violate("measuring: %v", err)
			continue
		}
		m.goroutines = min(m.goroutines, int(now.Get("go_goroutines")))
		m.files = min(m.files, int(now.Get("process_open_fds")))
		m.heap = min(m.heap, heap)
		m.resident = int64(now.Get("process_resident_memory_bytes"))
		m.blocks = int(now.Sum("calinix_index_blocks"))
	}
	m.most = l.c.mostGoroutines()
	return m
}

// heap collects garbage and returns what is in use then.
func (ca *caddy) heap(ctx context.Context) (int64, error) {
	profile, err := ca.get(ctx, "/debug/pprof/heap?gc=1&debug=1")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(profile, "# HeapAlloc = ")
	line, _, _ := strings.Cut(rest, "\n")
	return strconv.ParseInt(line, 10, 64)
}

// How much more the process may take at the end than when it was warm, at rest both
// times. What it keeps is bounded (blocks, sessions, series of the metrics) and was
// full, or nearly, by then; a leak grows with the requests and the reloads.
const (
	moreGoroutines = 4 // two connections
	moreFiles      = 2
	moreHeap       = 1 << 20
	moreEach       = 512 // bytes for each goroutine more than ever before: Go's runtime keeps what describes it
)

// growth says what has grown.
func growth(warm, end measured) (all []string) {
	if end.goroutines > warm.goroutines+moreGoroutines {
		all = append(all, fmt.Sprintf("goroutines have grown from %d to %d", warm.goroutines, end.goroutines))
	}
	if end.files > warm.files+moreFiles {
		all = append(all, fmt.Sprintf("open files have grown from %d to %d", warm.files, end.files))
	}
	if end.heap > warm.heap+moreHeap+moreEach*int64(end.most-warm.most) {
		all = append(all, fmt.Sprintf("the heap has grown from %.2f to %.2f MiB", mib(warm.heap), mib(end.heap)))
	}
	return all
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
