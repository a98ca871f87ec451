package calinix_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// streamed are the members of a request whose decode engine sends its headers at
// once, so that a limit on headers is one on the prefill engine alone.
const streamed = `"stream":true,"max_tokens":3`

// id is what a leg carries for the other one to be found by, digit by digit; "" with
// connectors whose legs carry nothing that Calinix makes.
func (h *handing) id(t *testing.T, l legSent) string {
	t.Helper()
	var body map[string]json.RawMessage
	if err := json.Unmarshal(l.body, &body); err != nil {
		t.Fatalf("%v: %s", err, l.body)
	}
	member := func(object, name string) string {
		var all map[string]json.RawMessage
		if err := json.Unmarshal(body[object], &all); err != nil || len(all[name]) == 0 {
			t.Fatalf("no %s in %s: %s", name, object, l.body)
		}
		return string(all[name])
	}
	switch h.name {
	case "nixl_push", "mooncake":
		return member("kv_transfer_params", "transfer_id")
	case "sglang":
		return string(body["bootstrap_room"])
	case "p2pnccl":
		return l.requestID
	case "trtllm":
		return member("disaggregated_params", "disagg_request_id")
	default:
		return ""
	}
}

// ids are those of the legs. One that was given up may come to its engine after others.
func (h *handing) ids(t *testing.T, legs []legSent) (all []string) {
	t.Helper()
	for _, l := range legs {
		all = append(all, h.id(t, l))
	}
	return all
}

// prefillTroubles are those of a prefill engine after which another one is tried,
// and what the client gets if that has them, too.
var prefillTroubles = []struct {
	name, reason string
	status       int
	is           trouble // nil: nobody listens
}{
	{"500", "refused_5xx", 502, answersWith(500)},
	{"503", "refused_5xx", 503, answersWith(503)},
	{"reset", "lost_waiting", 502, resets},
	{"refused", "unreachable", 502, nil},
	{"silent", "timed_out", 504, silence},
}

// TestConnectorsPrefillElsewhere: with each connector a prefill leg that fails by 5xx,
// connection or timeout is tried once at another pod with a fresh id; if that fails
// too, the client gets an error and nothing goes on anywhere.
func TestConnectorsPrefillElsewhere(t *testing.T) {
	for i := range handings {
		h := &handings[i]
		for _, c := range prefillTroubles {
			t.Run(h.name+"/"+c.name, func(t *testing.T) {
				s := h.troubled(t, quickSim, headerTimeout(c.reason))
				fails := func(e *troubledEngine) {
					if e.has(c.is); c.is == nil {
						e.stop()
					}
				}
				fails(s.prefill[0])
				a := s.cl.Post(t, chatPath, chat(words("elsewhere", 40), streamed))
				if a.Status != 200 || a.Err != nil || !strings.Contains(string(a.Body), "[DONE]") {
					t.Fatal(a)
				}
				if p, d := a.Header.Get("X-Calinix-Prefill-Pod-Id"), a.Header.Get("X-Calinix-Decode-Pod-Id"); p != "prefill-2" || d != "decode-1" {
					t.Errorf("prefill at %s, decode at %s", p, d)
				}
				s.idle(t)
				first, second, decode := s.prefill[0].legs(), s.prefill[1].legs(), s.decode[0].legs()
				if len(first) > 1 || len(second) != 1 || len(decode) == 0 || len(s.decode[1].legs()) != 0 || !h.concurrent && len(decode) != 1 {
					t.Fatalf("the engines got %v", s.counts())
				}
				fresh := h.id(t, second[0])
				if len(first) == 1 && fresh != "" && h.id(t, first[0]) == fresh {
					t.Errorf("both tries have the id %s", fresh)
				}
				if got := h.ids(t, decode); !slices.Contains(got, fresh) {
					t.Errorf("the decode legs have the ids %s, the prefill leg %s", got, fresh)
				}
				if n := s.transferred(); (n > 0) != h.handsOver() {
					t.Errorf("%d tokens were handed over", n)
				}
				s.waitCount(t, 1, "calinix_prefill_failures_total", "reason", c.reason)
				s.waitCount(t, 1, "calinix_retries_total", "reason", c.reason)

				fails(s.prefill[1])
				wantError(t, s.cl.Post(t, chatPath, chat(words("nowhere", 40), streamed)), c.status)
				s.idle(t)
				if got := s.counts(); got[1] > 2 || !h.concurrent && got[2] != 1 {
					t.Errorf("the engines got %v", got)
				}
				if pinned, _ := s.leases(); pinned > 0 {
					t.Errorf("%d prompts are kept for nobody", pinned)
				}
				s.waitCount(t, 3, "calinix_prefill_failures_total", "reason", c.reason)
				s.waitCount(t, 2, "calinix_retries_total", "reason", c.reason)
			})
		}
	}
}

// TestConnectorsPrefillRefused: a 4xx of the prefill engine alone is the client's,
// byte for byte, also where a decode engine could do without; it is tried nowhere else.
func TestConnectorsPrefillRefused(t *testing.T) {
	for i := range handings {
		h := &handings[i]
		t.Run(h.name, func(t *testing.T) {
			s := h.troubled(t, quickSim, "retry_status 429", "on_prefill_failure decode_only")
			s.prefill[0].has(answersWith(429))
			a := s.cl.Post(t, chatPath, chat(words("refused", 40), streamed))
			if a.Status != 429 || string(a.Body) != `{"object":"error","message":"no"}` {
				t.Error(a)
			}
			s.idle(t)
			if got := s.counts(); got[0] != 1 || got[1] != 0 || got[3] != 0 || !h.concurrent && got[2] != 0 {
				t.Errorf("the engines got %v", got)
			}
			s.waitCount(t, 0, "calinix_prefill_failures_total")
			s.waitCount(t, 0, "calinix_retries_total")
			s.serves(t)
		})
	}
}

// TestConnectorsDecodeOnly: with onPrefillFailure decodeOnly a decode engine gets the
// client's bytes alone. Engines that serve nothing but decode legs refuse them, and the
// client sees that.
func TestConnectorsDecodeOnly(t *testing.T) {
	for i := range handings {
		h := &handings[i]
		t.Run(h.name, func(t *testing.T) {
			s := h.troubled(t, quickSim, "", "on_prefill_failure decode_only")
			for _, e := range s.prefill {
				e.has(answersWith(500))
			}
			body := `{ "model" : "m","stream":false, "messages":[{"role":"user","content":"alone"}], "max_tokens":7 ,"seed":9007199254740993}`
			a := s.cl.Post(t, chatPath, body)
			if a.Status != h.aloneStatus() || !strings.HasSuffix(a.Header.Get("X-Calinix-Route-Policy"), ";decode-only") || a.Header.Get("X-Calinix-Prefill-Pod-Id") != "" {
				t.Error(a)
			}
			s.idle(t)
			if legs := s.decode[0].legs(); !slices.ContainsFunc(legs, func(l legSent) bool { return string(l.body) == body }) {
				t.Errorf("the decode engine got %s", legs)
			}
			if n := s.transferred(); n > 0 {
				t.Errorf("%d tokens were handed over", n)
			}
			s.waitCount(t, 2, "calinix_prefill_failures_total", "reason", "refused_5xx")
			s.serves(t)
		})
	}
}

// TestMooncakeBootstrapGone: a prefill pod whose bootstrap server cannot be asked has
// failed before anything was sent to it.
func TestMooncakeBootstrapGone(t *testing.T) {
	for i := range handings {
		if h := &handings[i]; h.name == "mooncake" {
			s := h.troubled(t, quickSim, "")
			s.bootstrap[0]()
			a := s.cl.Post(t, chatPath, chat("x", streamed))
			if a.Status != http.StatusOK || a.Header.Get("X-Calinix-Prefill-Pod-Id") != "prefill-2" {
				t.Error(a)
			}
			if got := s.counts(); got != [4]int{0, 1, 1, 0} {
				t.Errorf("the engines got %v", got)
			}
			s.bootstrap[1]()
			s.waitCount(t, 1, "calinix_retries_total", "reason", "unreachable")
			s.serves(t) // the engine's id is known by now
		}
	}
}

// handsOver says whether the decode engine gets the prompt computed.
func (h *handing) handsOver() bool { return h.name != "plain" }

// aloneStatus is what a decode engine answers to a request that had no prefill leg.
func (h *handing) aloneStatus() int {
	switch h.name {
	case "sglang":
		return http.StatusBadRequest
	case "p2pnccl":
		return http.StatusInternalServerError
	default:
		return http.StatusOK
	}
}
