package calinix_test

import (
	"net/http"
	"strings"
	"testing"
)

// TestConnectorsOtherAPIs: responses and messages are handed over as chats are, and
// the decode leg has the client's limit again.
func TestConnectorsOtherAPIs(t *testing.T) {
	for i := range handings {
		h := &handings[i]
		t.Run(h.name, func(t *testing.T) {
			s := h.troubled(t, quickSim, "")
			for _, c := range []struct{ name, path, body, has string }{
				{"responses", "/v1/responses", `{"model":"m","input":"TEXT","max_output_tokens":4}`, `"output_tokens":4`},
				{"responses-streamed", "/v1/responses", `{"model":"m","input":"TEXT","max_output_tokens":4,"stream":true}`, "event: response.incomplete"},
				{"messages", "/v1/messages", `{"model":"m","messages":[{"role":"user","content":"TEXT"}],"max_tokens":4}`, `"output_tokens":4`},
				{"messages-streamed", "/v1/messages", `{"model":"m","messages":[{"role":"user","content":"TEXT"}],"max_tokens":4,"stream":true}`, "event: message_stop"},
			} {
				before, counts := s.transferred(), s.counts()
				a := s.cl.Post(t, c.path, strings.Replace(c.body, "TEXT", words(c.name, 40), 1))
				if a.Status != 200 || a.Err != nil || !strings.Contains(string(a.Body), c.has) {
					t.Errorf("%s: %v", c.name, a)
				}
				s.idle(t)
				if p, d := s.since(counts); p != 1 || d != 1 {
					t.Errorf("%s: %d prefill and %d decode legs", c.name, p, d)
				}
				// Of trtllm it is not verified that engines pass the parameters on in
				// these answers; the simulated ones do not.
				if handed := s.transferred() > before; handed != (h.handsOver() && h.name != "trtllm") {
					t.Errorf("%s: handed over: %v", c.name, handed)
				}
			}
			s.clock.runOut()
			s.serves(t)
		})
	}
}

// TestConnectorsSeveralAnswers: a request for several answers is not handed over: one
// decode pod gets it whole. With sglang it is handed over as a batch.
func TestConnectorsSeveralAnswers(t *testing.T) {
	text := words("several", 40)
	for i := range handings {
		h := &handings[i]
		t.Run(h.name, func(t *testing.T) {
			s := h.troubled(t, quickSim, "")
			for _, c := range []struct {
				name, path, body string
				answers          int
			}{
				{"n", chatPath, chat(text, `"max_tokens":3`, `"n":2`), 2},
				{"prompts", "/v1/completions", `{"model":"m","prompt":["` + text + `","` + text + `too"],"max_tokens":3}`, 2},
				{"n and prompts", "/v1/completions", `{"model":"m","prompt":[[1,2,3],[4,5]],"n":2,"max_tokens":3}`, 4},
			} {
				counts := s.counts()
				a := s.cl.Post(t, c.path, c.body)
				s.idle(t)
				p, d := s.since(counts)
				batch := h.name == "sglang"
				if d != 1 || (p == 1) != batch || p > 1 {
					t.Errorf("%s: %d prefill and %d decode legs", c.name, p, d)
				}
				want := h.aloneStatus()
				if batch {
					want = http.StatusOK
				}
				if a.Status != want {
					t.Fatalf("%s: %v", c.name, a)
				}
				if want != http.StatusOK {
					continue
				}
				if got := len(a.JSON(t)["choices"].([]any)); got != c.answers {
					t.Errorf("%s: %d answers, want %d: %v", c.name, got, c.answers, a)
				}
				legs := s.decode[0].legs()
				if !batch && string(legs[len(legs)-1].body) != c.body {
					t.Errorf("%s: the decode engine got %s", c.name, legs[len(legs)-1].body)
				}
			}
			s.serves(t)
		})
	}
}
