package health

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// bench is a Checker with three thresholds of the usual kind, scripted pods
// and a record of what the Checker said. The lock is for the race detector.
type bench struct {
	*Checker
	mu     sync.Mutex
	answer map[string]Result        // by pod id; OK if absent
	slow   map[string]time.Duration // a probe takes so long, or until its ctx ends (then Late)
	probes map[string][]time.Duration
	busy   map[string]int
	marks  []string
	events []Event
	begin  time.Time
}

var usual = Settings{
	Interval: 200 * time.Millisecond, Timeout: 150 * time.Millisecond,
	Healthy: 2, Unhealthy: 3,
}

func newBench(s Settings) *bench {
	b := &bench{
		answer: map[string]Result{}, slow: map[string]time.Duration{},
		probes: map[string][]time.Duration{}, busy: map[string]int{}, begin: time.Now(),
	}
	b.Checker = New(b, func(e Event) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.events = append(b.events, e)
	})
	b.Configure(s, b)
	return b
}

func (b *bench) Probe(ctx context.Context, p Pod) Result {
	b.mu.Lock()
	b.probes[p.ID] = append(b.probes[p.ID], time.Since(b.begin))
	b.busy[p.ID]++
	if b.busy[p.ID] > 1 {
		panic("probes of " + p.ID + " overlap")
	}
	r, slow := b.answer[p.ID], b.slow[p.ID]
	b.mu.Unlock()
	if slow > 0 {
		select {
		case <-time.After(slow):
		case <-ctx.Done():
			r = Result{Kind: Late, Detail: ctx.Err().Error()}
		}
	}
	b.mu.Lock()
	b.busy[p.ID]--
	b.mu.Unlock()
	return r
}

func (b *bench) SetUp(ref Ref, up, forget bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.marks = append(b.marks, fmt.Sprintf("%d.%d up=%v forget=%v", ref.Slot, ref.Gen, up, forget))
}

func (b *bench) script(id string, k Kind) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answer[id] = Result{Kind: k, Detail: "as scripted"}
}

func (b *bench) scriptSlow(id string, d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.slow[id] = d
}

// said returns what was told to Marks since the last call.
func (b *bench) said() string {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	s := strings.Join(b.marks, "; ")
	b.marks = nil
	return s
}

func (b *bench) probed(id string) []time.Duration {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.probes[id])
}

func (b *bench) expect(t *testing.T, want string) {
	t.Helper()
	if got := b.said(); got != want {
		t.Errorf("told %q, want %q", got, want)
	}
}

func pods(ids ...string) (ps []Pod) {
	for i, id := range ids {
		ps = append(ps, Pod{Ref: Ref{Slot: uint8(i), Gen: 1}, ID: id, URL: "http://" + id})
	}
	return ps
}
