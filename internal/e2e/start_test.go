package e2e

import (
	"testing"

	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// TestServesFromTheStart: Caddy starts its apps in any order, so the engines of
// the same process may begin to listen after the first probe has asked for them.
// No request that comes once Caddy has started may be refused for that.
func TestServesFromTheStart(t *testing.T) {
	for range 20 {
		t.Run("", func(t *testing.T) {
			p := newPlan(t, 2, 0, 0, fast)
			c := testcaddy.Load(t, p.caddyfile())
			a := testcaddy.NewClient(t, testcaddy.H1, p.url()).Post(t, "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"hi"}]}`)
			if a.Status != 200 {
				t.Errorf("the first request: %v", a)
			}
			for _, e := range c.Log.Entries() {
				if e.Msg == "pod is down" {
					t.Errorf("%s", e.Line)
				}
			}
		})
	}
}
