package e2e

import (
	"net/http"
	"testing"

	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// TestServesFromTheStart: Caddy starts its apps in any order. The HTTP app may
// take requests before the balancer has its pods, and the engines of the same
// process may begin to listen after everything else. No request may be refused
// for that, be it the first that the port accepts, and no pod be taken for down.
func TestServesFromTheStart(t *testing.T) {
	const hello = `{"model":"m","messages":[{"role":"user","content":"hi"}]}`
	for range 20 {
		t.Run("", func(t *testing.T) {
			p := newPlan(t, 2, 0, 0, fast)
			// Without HTTP/3: Caddy v2.11.9 begins it after HTTP/1.1, and a request in
			// between reads what that writes.
			p.global = "servers {\nprotocols h1 h2\n}"
			cl := testcaddy.NewClient(t, testcaddy.H1, p.url())
			first := make(chan *testcaddy.Answer, 1)
			go func() { // knocks until the port is open
				for {
					a := cl.Send(cl.Request(within(t), t, http.MethodPost, "/v1/chat/completions", hello))
					if a.Err == nil || t.Context().Err() != nil {
						first <- a
						return
					}
				}
			}()
			// At DEBUG Caddy v2.11.9 reads its TLS app for the log line of a
			// handshake, be it started or not.
			c := testcaddy.Load(t, p.caddyfile(), testcaddy.LogLevel("INFO"))
			after := testcaddy.NewClient(t, testcaddy.H2, p.url()).Post(t, "/v1/chat/completions", hello)
			if a := <-first; a.Status != http.StatusOK || after.Status != http.StatusOK {
				t.Errorf("while Caddy started: %v\nonce it had: %v", a, after)
			}
			for _, e := range c.Log.Entries() {
				if e.Msg == "pod is down" {
					t.Errorf("%s", e.Line)
				}
			}
		})
	}
}
