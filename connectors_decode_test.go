package calinix_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// What becomes of a prompt that was computed, when the decode leg fails before its
// first byte and is tried at another pod.
const (
	reused   = "re-used"  // the other decode engine fetches it
	repeated = "repeated" // it is computed again, with fresh ids
)

// decodeTroubles are those of a decode engine after which another one is tried.
var decodeTroubles = []struct {
	name, reason string
	is           func(*troubledEngine)
	// reusable: the engine has not begun to fetch anything.
	reusable bool
	member   string // of the request
}{
	{"503", "refused_5xx", func(e *troubledEngine) { e.has(answersWith(503)) }, true, streamed},
	{"429", "refused_4xx", func(e *troubledEngine) { e.has(answersWith(429)) }, true, streamed},
	{"500", "refused_5xx", func(e *troubledEngine) { e.has(answersWith(500)) }, false, streamed},
	{"refused", "unreachable", (*troubledEngine).stop, true, streamed},
	{"hung up on", "lost_sending", (*troubledEngine).hangsUp, true, streamed + "," + bulk},
}

// after says what becomes of the prompt. What a store or a cache below the engines
// holds stays there; else it serves one decode leg, of sequential connectors alone,
// and of p2pnccl the one decode engine that it was pushed to.
func (h *handing) after(reusable bool) string {
	switch {
	case h.name == "plain", h.name == "shared_storage":
		return reused
	case h.concurrent, h.name == "p2pnccl", !reusable:
		return repeated
	default:
		return reused
	}
}

// pins says whether the prefill engine keeps what it has computed until a decode leg
// fetches it.
func (h *handing) pins() bool { return h.name != "plain" && h.name != "shared_storage" }

// TestConnectorsDecodeElsewhere: with each connector a decode leg that fails before its
// first byte, when the prompt was computed, is tried at another pod. The prompt is
// fetched by it, or computed again with a fresh id; what is then fetched by nobody is
// pinned until the engine's lease runs out.
func TestConnectorsDecodeElsewhere(t *testing.T) {
	for i := range handings {
		h := &handings[i]
		for _, c := range decodeTroubles {
			t.Run(h.name+"/"+c.name, func(t *testing.T) {
				s := h.troubled(t, quickSim, "retry_status 429 500 503")
				c.is(s.decode[0])
				a := s.cl.Post(t, chatPath, chat(words("elsewhere", 40), c.member))
				if a.Status != 200 || a.Err != nil || !strings.Contains(string(a.Body), "[DONE]") || a.Header.Get("X-Calinix-Decode-Pod-Id") != "decode-2" {
					t.Fatal(a)
				}
				s.idle(t)
				legs := s.prefill[0].legs()
				want := map[string]int{reused: 1, repeated: 2}[h.after(c.reusable)]
				if len(s.decode[0].legs()) > 1 || len(s.decode[1].legs()) != 1 || len(legs) > want || !h.concurrent && len(legs) != want {
					t.Fatalf("the engines got %v, want %d prefill legs", s.counts(), want)
				}
				ids, id := h.ids(t, legs), h.id(t, s.decode[1].legs()[0])
				if !slices.Contains(ids, id) || len(ids) == 2 && id != "" && ids[0] == ids[1] {
					t.Errorf("the prefill legs have the ids %s, the decode leg %s", ids, id)
				}
				if n := s.decode[1].Stats().TransferredTokens; (n > 0) != h.handsOver() {
					t.Errorf("%d tokens were handed over", n)
				}
				s.waitCount(t, 1, "calinix_retries_total", "reason", c.reason)
				s.waitCount(t, 0, "calinix_prefill_failures_total")

				pinned, _ := s.leases()
				if abandoned := h.pins() && h.after(c.reusable) == repeated; !h.concurrent && pinned != map[bool]int{true: 1}[abandoned] {
					t.Errorf("%d prompts are pinned", pinned)
				}
				s.clock.runOut()
				if still, expired := s.leases(); still != 0 || expired != uint64(pinned) {
					t.Errorf("%d prompts are pinned for ever, %d have expired", still, expired)
				}
			})
		}
	}
}

// TestConnectorsDecodeElsewhereLate: with connectors whose legs are sent at once, and
// whose prefill leg ends when the prompt is computed, a decode leg that fails after that:
// what was computed is pinned until the engine's lease runs out, and the try elsewhere
// has its prompt computed again, with a fresh id.
func TestConnectorsDecodeElsewhereLate(t *testing.T) {
	for i := range handings {
		h := &handings[i]
		if !h.concurrent || h.name == "sglang" { // whose prefill engine answers when the KV was fetched
			continue
		}
		t.Run(h.name, func(t *testing.T) {
			s := h.troubled(t, quickSim, "retry_status 503")
			late := make(chan struct{})
			s.decode[0].has(func(w http.ResponseWriter, r *http.Request, engine http.Handler) {
				<-late
				answersWith(503)(w, r, engine)
			})
			done := post(t, s.cl, chat(words("late", 40), streamed))
			eventually(t, "a prompt that is pinned, and no prefill leg", func() bool {
				return s.prefill[0].Stats().Leases == 1 && s.count(t, "calinix_pod_inflight", "role", "prefill") == 0
			})
			close(late)
			a := <-done
			if a.Status != 200 || a.Err != nil || !strings.Contains(string(a.Body), "[DONE]") || a.Header.Get("X-Calinix-Decode-Pod-Id") != "decode-2" {
				t.Fatal(a)
			}
			s.idle(t)
			legs := append(s.prefill[0].legs(), s.prefill[1].legs()...)
			if got := s.counts(); len(legs) != 2 || got[2] != 1 || got[3] != 1 {
				t.Fatalf("the engines got %v", got)
			}
			first, second := h.id(t, s.decode[0].legs()[0]), h.id(t, s.decode[1].legs()[0])
			if ids := h.ids(t, legs); first == second || !slices.Contains(ids, first) || !slices.Contains(ids, second) {
				t.Errorf("the prefill legs have the ids %s, the decode legs %s and %s", ids, first, second)
			}
			s.waitCount(t, 1, "calinix_retries_total", "reason", "refused_5xx")
			s.waitCount(t, 0, "calinix_prefill_failures_total")
			if pinned, expired := s.leases(); pinned != 1 || expired != 0 {
				t.Errorf("%d prompts are pinned, %d have expired", pinned, expired)
			}
			s.clock.runOut()
			if pinned, expired := s.leases(); pinned != 0 || expired != 1 {
				t.Errorf("%d prompts are pinned for ever, %d have expired", pinned, expired)
			}
		})
	}
}

// TestConnectorsDecodeFails: a decode leg that is not tried elsewhere. What the engine
// says is the client's, as it stands; what was computed is released by the engine's
// lease.
func TestConnectorsDecodeFails(t *testing.T) {
	for i := range handings {
		h := &handings[i]
		for _, c := range []struct {
			name, keys, outcome string
			is                  trouble
			members             string
			status              int
		}{
			{"500", "", "refused_5xx", answersWith(500), streamed, 500},
			{"429", "retry_status 500", "refused_4xx", answersWith(429), streamed, 429},
			{"reset", "", "lost_waiting", resets, streamed, 502},
			{"silent", headerTimeout("timed_out"), "timed_out", silence, `"max_tokens":3`, 504},
			{"cut", "", "cut", cutsAfter(300), streamed, 200},
		} {
			if c.name == "silent" && h.name == "sglang" {
				continue // its prefill engine is silent as long, and that is a failed prefill leg
			}
			t.Run(h.name+"/"+c.name, func(t *testing.T) {
				s := h.troubled(t, quickSim, c.keys)
				s.decode[0].has(c.is)
				a := s.cl.Post(t, chatPath, chat(words("fails", 40), c.members), "x-calinix-request-id", "fails")
				switch c.status {
				case 200:
					if a.Status != 200 || a.Err == nil || len(a.Body) == 0 || strings.Contains(string(a.Body), "[DONE]") {
						t.Errorf("an answer that breaks off: %v", a)
					}
				case 500, 429:
					if a.Status != c.status || string(a.Body) != `{"object":"error","message":"no"}` {
						t.Error(a)
					}
				default:
					wantError(t, a, c.status)
				}
				if e := s.logged(t, "fails"); !e.Has("calinix_outcome", c.outcome) {
					t.Errorf("logged as %s", e.Line)
				}
				s.idle(t)
				if got := s.counts(); got[0] > 1 || got[1] != 0 || got[2] != 1 || got[3] != 0 {
					t.Errorf("the engines got %v", got)
				}
				s.waitCount(t, 0, "calinix_retries_total")
				s.waitCount(t, 0, "calinix_prefill_failures_total")

				pinned, _ := s.leases()
				if kept := h.pins() && c.name != "cut"; !h.concurrent && pinned != map[bool]int{true: 1}[kept] {
					t.Errorf("%d prompts are pinned", pinned)
				}
				s.clock.runOut()
				if still, _ := s.leases(); still != 0 {
					t.Errorf("%d prompts are pinned for ever", still)
				}
				s.serves(t)
			})
		}
	}
}
