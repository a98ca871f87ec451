package calinix_test

import (
	"bytes"
	"fmt"
	"net/url"
	"strconv"
	"testing"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// TestEngineUnknown: without the engine's id, which mooncake's bootstrap server
// tells, neither leg is sent; how the question failed is how the prefill leg did.
func TestEngineUnknown(t *testing.T) {
	side := fakepod.New(t, fakepod.Options{Name: "side"})
	at, err := url.Parse(side.URL)
	if err != nil {
		t.Fatal(err)
	}
	told := fakepod.Reply{Body: []byte(`{"0":{"engine_id":"e"}}`)}
	for _, c := range []struct {
		name, port, outcome string
		status              int
		says                fakepod.Reply
	}{
		{"refused", strconv.Itoa(testcaddy.Port(t)), "unreachable", 502, told},
		{"no answer", at.Port(), "timed_out", 504, fakepod.Reply{Silent: true}},
		{"an error", at.Port(), "unusable", 502, fakepod.Reply{Status: 503}},
		{"of another rank", at.Port(), "unusable", 502, fakepod.Reply{Body: []byte(`{"1":{"engine_id":"e"}}`)}},
		{"too long", at.Port(), "unusable", 502, fakepod.Reply{Body: append([]byte(`{"0":{"engine_id":"e"}}`), bytes.Repeat([]byte(" "), 1<<20)...)}},
		{"told", at.Port(), "", 200, told},
	} {
		t.Run(c.name, func(t *testing.T) {
			side.SetPath("/query", c.says)
			ps := pods(t, "p", "d")
			limit := "30s"
			if c.status == 504 {
				limit = "500ms"
			}
			s := serve(t, fmt.Sprintf("dispatch {\nconnector mooncake\nprefill_timeout %s\nprefill {\npod p %s {\nbootstrap_port %s\n}\n}\ndecode {\npod d %s\n}\n}\n",
				limit, ps[0].URL, c.port, ps[1].URL), testcaddy.Plain())
			a := s.Client(t, testcaddy.H1).Post(t, chatPath, chat("x"))
			if c.outcome == "" {
				ps[0].WaitRequests(t, 1) // the prefill leg may be on its way when the client has the answer
				if a.Status != c.status || ps.Total() != 2 {
					t.Errorf("%v after %d legs", a, ps.Total())
				}
				return
			}
			if code := wantError(t, a, c.status); code != "pod_"+c.outcome {
				t.Errorf("code %s, want pod_%s", code, c.outcome)
			}
			if ps.Total() != 0 {
				t.Errorf("%d legs were sent", ps.Total())
			}
			s.waitCount(t, 1, "calinix_prefill_failures_total", "reason", c.outcome)
		})
	}
}
