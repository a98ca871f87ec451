package calinix_test

import (
	"fmt"
	"testing"

	calinix "github.com/calinix/caddy-calinix"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// TestReferences: the state of a balancer is held once by the configuration that
// runs, however many handlers share it, reloads there were, and configurations
// were refused at any stage; and by nobody once Caddy has stopped.
func TestReferences(t *testing.T) {
	testcaddy.NoLeaks(t)
	ps := pods(t, "a", "b")
	s := serve(t, single(ps), testcaddy.Plain())
	want := func(n int, when string) {
		t.Helper()
		if got := calinix.References(s.balancer); got != n {
			t.Errorf("%s the state has %d references, want %d", when, got, n)
		}
	}
	want(1, "at the start")
	health := "health {\ninterval 1h\n}\n"
	shared := s.body(health+single(ps)) + "\n}\nhttp://:" + fmt.Sprint(testcaddy.Port(t)) + " {\n" + s.body(health+single(ps))
	for k := range 10 {
		s.ReloadSite(t, shared)
		want(1, fmt.Sprintf("after reload %d, by two handlers,", 2*k+1))
		s.reload(t, fmt.Sprintf("max_body_bytes %d\n", 1000+k)+health+single(ps))
		want(1, fmt.Sprintf("after reload %d", 2*k+2))
	}
	taken := fmt.Sprint(ps[0].Addr[len("127.0.0.1:"):])
	for _, refused := range []string{
		s.body("block_size 0\n" + single(ps)),
		s.body("transport http {\ntls_trust_pool file /none.pem\n}\n" + single(ps)),
		shared + "\n}\nhttps://localhost:" + fmt.Sprint(testcaddy.Port(t)) + " {\ntls /none.pem /none.key",
		shared + "\n}\nhttp://:" + taken + " {\nbind 127.0.0.1\nrespond x",
	} {
		for range 5 { // apps start in any order
			if err := s.TryReloadSite(refused); err == nil {
				t.Fatalf("loaded:\n%s", refused)
			}
			want(1, "after a refused reload")
		}
	}
	if a := s.Client(t, testcaddy.H1).Post(t, chatPath, chat("hi")); a.Status != 200 {
		t.Error(a)
	}
	s.Stop()
	want(0, "after the stop")
}
