package calinix_test

import (
	"fmt"
	"net/http"
	"testing"
)

// TestConnectorsClientGone: with each connector, in each phase of a request, a client
// that leaves takes both legs with it: no engine goes on, nothing else is sent, and the
// next request finds everything as before.
func TestConnectorsClientGone(t *testing.T) {
	for i := range handings {
		h := &handings[i]
		for _, ph := range []struct {
			name string
			slow string // keys of the engines
			// enter returns what returns when the request is in the phase, and what returns
			// when the engine that has it has noticed that its sender has left.
			enter func(t *testing.T, s *troubledSite) (reached, noticed func())
			skip  bool // the connector has no such phase
		}{
			{name: "at the prefill engine", slow: quickSim, enter: func(t *testing.T, s *troubledSite) (reached, noticed func()) {
				return holding(t, s.prefill[0])
			}},
			{name: "between the legs", slow: quickSim, skip: h.concurrent, enter: func(t *testing.T, _ *troubledSite) (reached, noticed func()) {
				g := newGate(t, 2) // before the second leg
				return func() { g.wait(t) }, func() { g.noticed(t) }
			}},
			{name: "at the decode engine", slow: quickSim, enter: func(t *testing.T, s *troubledSite) (reached, noticed func()) {
				return holding(t, s.decode[0])
			}},
			{name: "while the prompt is computed", slow: "prefill_tokens_per_second 100\nmax_num_batched_tokens 10\n", enter: func(t *testing.T, s *troubledSite) (reached, noticed func()) {
				return func() {
					eventually(t, "a prompt that is computed", func() bool { return s.prefill[0].Stats().Running > 0 })
				}, func() {}
			}},
			{name: "while the prompt is handed over", slow: quickSim + "transfer_tokens_per_second 1\n", skip: !h.handsOver(), enter: func(t *testing.T, s *troubledSite) (reached, noticed func()) {
				return func() {
					eventually(t, "a prompt that is handed over", func() bool { return s.decode[0].Stats().TransferredTokens > 0 })
				}, func() {}
			}},
			{name: "in the stream", slow: "prefill_tokens_per_second 1e8\ndecode_tokens_per_second 20\n", enter: func(t *testing.T, s *troubledSite) (reached, noticed func()) {
				return func() {
					eventually(t, "an answer that runs", func() bool { return s.decode[0].Stats().GenerationTokens > 1 })
				}, func() {}
			}},
		} {
			if ph.skip {
				continue
			}
			t.Run(h.name+"/"+ph.name, func(t *testing.T) {
				s := h.troubled(t, ph.slow, "retries 3\nretry_budget 1\nretry_status 500", "on_prefill_failure decode_only")
				reached, noticed := ph.enter(t, s)
				id := fmt.Sprintf("gone-%d", balancers.Add(1))
				ctx, leave := testContext(t)
				gone := make(chan struct{})
				go func() {
					defer close(gone)
					s.cl.Send(s.cl.Request(ctx, t, http.MethodPost, chatPath, chat(words("gone", 60), `"stream":true`, `"max_tokens":200`, `"ignore_eos":true`), "x-calinix-request-id", id))
				}()
				reached()
				leave()
				noticed()
				await(t, gone, "the client's end")
				if e := s.logged(t, id); !e.Has("calinix_outcome", "client_gone") {
					t.Errorf("logged as %s", e.Line)
				}
				s.idle(t)
				if got := s.counts(); got[0] > 1 || !h.concurrent && got[0] != 1 || got[1] != 0 || got[2] > 1 || got[3] != 0 {
					t.Errorf("the engines got %v", got)
				}
				s.waitCount(t, 0, "calinix_retries_total")
				s.waitCount(t, 0, "calinix_prefill_failures_total")
				s.clock.runOut()
				if pinned, _ := s.leases(); pinned > 0 {
					t.Errorf("%d prompts are pinned for ever", pinned)
				}
				if ph.slow == quickSim {
					s.serves(t)
				}
			})
		}
	}
}

// holding makes the engine hold its next request.
func holding(t *testing.T, e *troubledEngine) (reached, noticed func()) {
	h := newHeldRequest()
	e.has(h.trouble)
	return func() { await(t, h.arrived, "the request at the engine") }, func() { await(t, h.left, "the engine to notice") }
}
