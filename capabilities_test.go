package calinix_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// TestCapabilities: a pod serves the role under which it is listed, and those
// that are named besides; its limit holds for all of them together.
func TestCapabilities(t *testing.T) {
	ps := pods(t, "a", "p", "d")
	s := serve(t, fmt.Sprintf(`tie_break pod_id
		single {
			pod a %s {
				capabilities prefill
				max_conns 1
			}
		}
		dispatch {
			connector plain
			prefill {
				pod p %s {
					capabilities {
						decode on
						single off
					}
				}
			}
			decode {
				pod d %s {
					capabilities single
				}
			}
		}`, ps[0].URL, ps[1].URL, ps[2].URL), testcaddy.Plain())
	cl := s.Client(t, testcaddy.H1)
	var roles []string
	for _, e := range entries(t, s.Caddy, "") {
		roles = append(roles, e.ID+" "+strings.Join(e.Roles, "+"))
	}
	if got := strings.Join(roles, ", "); got != "a single+prefill, p prefill+decode, d single+decode" {
		t.Errorf("roles: %s", got)
	}
	served := func(mode, drained string) string {
		t.Helper()
		for id := range strings.FieldsSeq(drained) {
			drain(t, s.Caddy, id, "drain")
			defer drain(t, s.Caddy, id, "undrain")
		}
		h := cl.Post(t, chatPath, chat("hi", `"max_tokens":3`), "x-calinix-mode", mode).Header
		s.waitNone(t)
		return h.Get("X-Calinix-Target-Pod-Id") + h.Get("X-Calinix-Prefill-Pod-Id") + h.Get("X-Calinix-Decode-Pod-Id")
	}
	for _, tc := range []struct{ mode, drained, want string }{
		{"single", "d", "a"},
		{"single", "a", "d"},
		{"single", "a d", ""},
		{"dispatch", "p", "ad"},
		{"dispatch", "a", "pd"}, // though p could take both, and has the prompt
		{"dispatch", "a d", "pp"},
		{"dispatch", "a p", ""},
	} {
		if got := served(tc.mode, tc.drained); got != tc.want {
			t.Errorf("%s without %s: served by %q, want %q", tc.mode, tc.drained, got, tc.want)
		}
	}
	hold := make(chan struct{})
	ps.Pod("a").Set(fakepod.Reply{Hold: hold})
	drain(t, s.Caddy, "d", "drain")
	done := make(chan *testcaddy.Answer)
	go func() { done <- cl.Post(t, chatPath, chat("hi"), "x-calinix-mode", "single") }()
	ps.Pod("a").Wait(t, "the request", func(s fakepod.State) bool { return s.InFlight == 1 })
	if c := s.explain(t, "", chat("hi"), "x-calinix-mode", "dispatch").of(t, "a", "prefill"); c.Filtered != "at maxConns" {
		t.Errorf("a has its one leg, in another role: %+v", c)
	}
	close(hold)
	<-done
}
