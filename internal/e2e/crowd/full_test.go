package crowd

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// TestFull: while as many run as all pods of a role may have, every further request
// is answered with 503 and Retry-After, and no pod sees anything of it; when one has
// ended there is room for one. Nothing waits in a queue.
func TestFull(t *testing.T) {
	testcaddy.NoLeaks(t)
	const limit, further = 4, 40
	for _, full := range []string{"single", "prefill", "decode"} {
		t.Run(full, func(t *testing.T) {
			roles := map[string]fakepod.Pods{}
			lines := map[string]string{full: fmt.Sprint("max_conns ", limit)}
			var all fakepod.Pods
			for _, role := range []string{"single", "prefill", "decode"} {
				roles[role] = fakepod.NewPods(t, fakepod.Options{}, role+"-1", role+"-2")
				all = append(all, roles[role]...)
			}
			s := testcaddy.Serve(t, "calinix {\nhealth {\ntimeout 20s\n}\nsingle {\n"+list(roles["single"], lines["single"])+"}\ndispatch {\nconnector plain\nprefill {\n"+
				list(roles["prefill"], lines["prefill"])+"}\ndecode {\n"+list(roles["decode"], lines["decode"])+"}\n}\n}")
			mode := "dispatch"
			if full == "single" {
				mode = "single"
			}
			s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
				hold := make(chan struct{})
				release := sync.OnceFunc(func() { close(hold) })
				defer release()
				roles[full].Set(fakepod.Reply{Hold: hold})
				all.Forget()
				ask := func() *testcaddy.Answer {
					return cl.Post(t, "/v1/completions", `{"model":"m","prompt":"hello"}`, "x-calinix-mode", mode)
				}
				var running sync.WaitGroup
				for range 2 * limit {
					running.Go(func() {
						if a := ask(); a.Status != http.StatusOK {
							t.Errorf("one that there was room for: %v", a)
						}
					})
				}
				for _, p := range roles[full] {
					p.WaitInFlight(t, limit)
				}
				before := all.Total()
				var more sync.WaitGroup
				for range further {
					more.Go(func() {
						a := ask()
						if a.Err != nil || a.Status != http.StatusServiceUnavailable || a.Header.Get("Retry-After") == "" || a.Header.Get("Content-Type") != "application/json" {
							t.Errorf("one too many: %v", a)
						}
					})
				}
				more.Wait() // while the others still run
				if n := all.Total(); n != before {
					t.Errorf("%d requests reached a pod though there was no room", n-before)
				}
				release()
				running.Wait()
				roles[full].Set(fakepod.Reply{})
				s.WaitMetric(t, 0, "calinix_pod_inflight")
				if a := ask(); a.Status != http.StatusOK {
					t.Errorf("afterwards: %v", a)
				}
				s.WaitMetric(t, 0, "calinix_pod_inflight")
			})
		})
	}
}
