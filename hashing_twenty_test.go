package calinix_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// numbered starts fake pods pod-0, pod-1, ….
func numbered(t testing.TB, n int) fakepod.Pods {
	t.Helper()
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("pod-%d", i)
	}
	return pods(t, names...)
}

// TestTwentyPods: of the sessions at 20 pods at most 1.3/20 move when a pod comes, all
// of them to it, and when it goes again each is back where it was. As long as nothing
// else runs a session is always at the same pod.
func TestTwentyPods(t *testing.T) {
	const n, sessions = 20, 1000
	ps := numbered(t, n+1)
	s := serve(t, "strategy session_affinity\n"+single(ps[:n]), testcaddy.Plain())
	where := func() []string {
		t.Helper()
		cl := s.Client(t, testcaddy.H1)
		return order(t, sessions, func(i int) *testcaddy.Answer {
			s.waitNone(t)
			return cl.Post(t, "/v1/completions", keyless, "X-Session-ID", fmt.Sprint("session-", i))
		})
	}
	first := where()
	for i, pod := range where() {
		if pod != first[i] {
			t.Fatalf("session %d was at %s, and is at %s", i, first[i], pod)
		}
	}
	s.reload(t, "strategy session_affinity\n"+single(ps))
	moved := 0
	for i, pod := range where() {
		if pod == first[i] {
			continue
		}
		if moved++; pod != ps[n].Name {
			t.Fatalf("session %d went from %s to %s", i, first[i], pod)
		}
	}
	limit := 1.3 / n * sessions
	if moved == 0 || float64(moved) > limit {
		t.Errorf("%d of %d sessions moved to the new pod, want at most %.0f", moved, sessions, limit)
	}
	s.reload(t, "strategy session_affinity\n"+single(ps[:n]))
	for i, pod := range where() {
		if pod != first[i] {
			t.Fatalf("without the new pod session %d is at %s, was at %s", i, pod, first[i])
		}
	}
	least, most := sessions, 0
	for _, k := range tally(first) {
		least, most = min(least, k), max(most, k)
	}
	t.Logf("%d of %d sessions (%.2f/%d) moved to a pod that came; a pod has %d to %d", moved, sessions, float64(moved)*n/sessions, n, least, most)
}

// TestTwentyPodsUnderSkew: one request in ten is of one session, and all run at once.
// No pod ever has more than 1.25 times the mean and one.
func TestTwentyPodsUnderSkew(t *testing.T) {
	const n, requests = 20, 300
	ps := numbered(t, n)
	s := serve(t, "strategy session_affinity\n"+single(ps))
	h := s.hold(t, ps)
	rnd := rand.New(rand.NewPCG(5, 6))
	at, hot, worst := map[string]int{}, map[string]int{}, 0.0
	for k := 1; k <= requests; k++ {
		key := fmt.Sprint("session-", rnd.IntN(10_000))
		if k%10 == 0 {
			key = "hot"
		}
		pod := h.send(t, ps, http.MethodPost, "/v1/completions", keyless, "X-Session-ID", key)
		at[pod]++
		if key == "hot" {
			hot[pod]++
		}
		mean := float64(k) / n
		for pod, legs := range at {
			if float64(legs) > 1.25*mean+1 {
				t.Fatalf("%d of %d requests at %s, want at most %.2f", legs, k, pod, 1.25*mean+1)
			}
			if k == requests {
				worst = max(worst, float64(legs)/mean)
			}
		}
	}
	passed := s.count(t, "calinix_ring_picks_total", "result", "passed")
	if len(hot) < 2 || passed == 0 {
		t.Errorf("the hot session is at %v, %v requests were passed on: the test tests nothing", hot, passed)
	}
	h.release(t, ps)
	t.Logf("%d requests at once: the most at a pod is %.2f times the mean; %v were passed on; the hot session is at %d pods", requests, worst, passed, len(hot))
}
