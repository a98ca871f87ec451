package calinix_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// onNodes lists pods with the node of each.
func onNodes(pods fakepod.Pods, nodes ...string) string {
	var b strings.Builder
	for i, p := range pods {
		fmt.Fprintf(&b, "pod %s %s {\nnode %s\n}\n", p.Name, p.URL, nodes[i])
	}
	return b.String()
}

// TestPairIsNear: a request goes to the two pods that are the best pair, as explain
// foretells; and when its decode pod fails it goes to one that is as near.
func TestPairIsNear(t *testing.T) {
	for _, connector := range []string{"nixl", "sglang"} {
		for _, strategy := range []string{"cache_aware", "expected_ttft"} {
			t.Run(connector+"/"+strategy, func(t *testing.T) {
				prefill, decode := pods(t, "p1", "p2"), pods(t, "d1", "d2", "d3")
				s := serve(t, fmt.Sprintf("strategy %s\ntie_break pod_id\ndispatch {\nconnector %s\nprefill {\n%s}\ndecode {\n%s}\n}\n", strategy, connector,
					onNodes(prefill, "rack1", "rack2"), onNodes(decode, "rack1", "rack2", "rack1")), testcaddy.Plain())
				cl := s.Client(t, testcaddy.H1)
				want := func(body, p, d string) {
					t.Helper()
					if e := s.explain(t, "", body); e.Pick.Prefill != p || e.Pick.Decode != d {
						t.Errorf("explained %+v, want %s and %s", e.Pick, p, d)
					}
					a := cl.Post(t, chatPath, body)
					if got := a.Header.Get("X-Calinix-Prefill-Pod-Id"); a.Status != 200 || got != p || a.Pod() != d {
						t.Errorf("prefill at %s, want %s at %s: %v", got, p, d, a)
					}
					s.waitNone(t)
				}
				want(chat(words("first", 100)), "p1", "d1")

				hold := make(chan struct{})
				decode[0].Next(fakepod.Reply{Hold: hold})
				decode[2].Next(fakepod.Reply{Hold: hold})
				done := make(chan *testcaddy.Answer, 2)
				for n := range 2 {
					go func() { done <- cl.Post(t, chatPath, chat(words(fmt.Sprint("busy", n), 100))) }()
					decode[2*n].WaitHead(t, 2-n)
					s.waitCount(t, 0, "calinix_pod_inflight", "role", "prefill") // with sglang both legs began at once
				}
				if e := s.explain(t, "", chat(words("second", 100))); e.Pick.Prefill != "p2" || e.Pick.Decode != "d2" {
					t.Errorf("both decode pods of rack1 are busy: explained %+v", e.Pick)
				}
				if a := cl.Post(t, chatPath, chat(words("second", 100))); a.Header.Get("X-Calinix-Prefill-Pod-Id") != "p2" || a.Pod() != "d2" {
					t.Errorf("both decode pods of rack1 are busy: %v", a)
				}
				close(hold)
				for range 2 {
					if a := <-done; a.Status != 200 {
						t.Error(a)
					}
				}
				s.waitNone(t)

				decode[0].Refuse()
				a := cl.Post(t, chatPath, chat(words("third", 100)))
				if a.Status != 200 || a.Header.Get("X-Calinix-Prefill-Pod-Id") != "p1" || a.Pod() != "d3" {
					t.Errorf("d1 is gone: %v", a)
				}
				s.waitCount(t, 1, "calinix_retries_total", "reason", "unreachable")
			})
		}
	}
}
