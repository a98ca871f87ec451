package calinix_test

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// ofTokens is a request for a prompt of so many estimated tokens, of which no
// other has the beginning.
func ofTokens(name string, tokens int, members string) string {
	prompt := strings.Repeat(name+" ", 4*tokens/(len(name)+1)+1)[:4*tokens]
	return fmt.Sprintf(`{"model":"m","prompt":%q%s}`, prompt, members)
}

// TestStrategyExpectedTTFT: what counts are the tokens that a pod has to compute, not
// its requests; they are done with when its first byte comes, and then a prompt goes
// back to where its beginning is.
func TestStrategyExpectedTTFT(t *testing.T) {
	ps := pods(t, "a", "b")
	s := serve(t, "strategy expected_ttft\n"+single(ps))
	h := s.hold(t, ps)
	busy := h.send(t, ps, http.MethodPost, "/v1/completions", ofTokens("long", 40_000, ""))
	for i := range 6 {
		if at := h.send(t, ps, http.MethodPost, "/v1/completions", ofTokens(fmt.Sprint("short", i), 200, "")); at == busy {
			t.Errorf("short prompt %d is behind 40,000 tokens at %s", i, at)
		}
	}
	h.release(t, ps)

	ps.Set(fakepod.Reply{PauseAfter: 3, Pause: time.Hour})
	talk := words("talk", 10_000)
	st := startStream(t, s.Client(t, testcaddy.H1), chat(talk, `"stream":true`))
	if e := s.explain(t, "", chat(talk)); e.Pick.Pod != st.pod {
		t.Errorf("%s has computed the prompt, and %s would be picked", st.pod, e.Pick.Pod)
	}
	st.Leave()
	s.waitIdle(t, ps)
}

// TestWholeAnswersCount: of an answer that is not streamed the prompt counts as
// computed after the time that its uncached part takes at prefill_rate; from then on
// the request is one that decodes. Of a stream that is seen, not estimated.
func TestWholeAnswersCount(t *testing.T) {
	const long, short = 10_000, 100
	for members, want := range map[string]float64{
		`,"stream":false`: short + 2*long + short, // U + K + D + n·L
		`,"stream":true`:  short + long,           // U + K
	} {
		t.Run(members[2:], func(t *testing.T) {
			ps := pods(t, "a")
			s := serve(t, "strategy expected_ttft\nexpected_ttft {\nprefill_rate 200000\ngamma 0\ntheta 1\neta 0\n}\n"+single(ps))
			h := s.hold(t, ps)
			began := time.Now()
			h.send(t, ps, http.MethodPost, "/v1/completions", ofTokens("long", long, members))
			eventually(t, fmt.Sprintf("a cost of %v", want), func() bool {
				cost := -s.explain(t, "?path=/v1/completions", ofTokens("short", short, "")).of(t, "a").Score
				return math.Abs(cost-want) < 1
			})
			if took := time.Since(began); took < 50*time.Millisecond {
				t.Errorf("computed after %v, want 50ms", took)
			}
			h.release(t, ps)
		})
	}
}
