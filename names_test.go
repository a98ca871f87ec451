package calinix_test

import (
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// TestNames: what configurations, documentation and other plugins name.
func TestNames(t *testing.T) {
	for _, id := range []string{
		"http.handlers.calinix",
		"http.handlers.inference_sim",
		"http.reverse_proxy.selection_policies.cache_aware",
		"admin.api.calinix",
	} {
		info, err := caddy.GetModule(id)
		if err != nil {
			t.Error(err)
			continue
		}
		if got := info.New().CaddyModule().ID; got != caddy.ModuleID(id) {
			t.Errorf("%s makes a %s", id, got)
		}
	}
	if caddyconfig.GetAdapter("calinix") == nil {
		t.Error("no config adapter calinix")
	}
}

// TestDirectiveOrder: the directive needs no order line; it stands just before
// reverse_proxy, and takes a matcher.
func TestDirectiveOrder(t *testing.T) {
	ps := pods(t, "a")
	other := fakepod.New(t, fakepod.Options{Name: "other"})
	s := &site{balancer: "order"}
	for name, tc := range map[string]struct{ calinix, chat, rest string }{
		"without a matcher": {"calinix {\nname order\n" + single(ps) + "}\n", "a", "a"},
		"with a path":       {"calinix /v1/* {\nname order\n" + single(ps) + "}\n", "a", "other"},
		"with a matcher":    {"@post method POST\ncalinix @post {\nname order\n" + single(ps) + "}\n", "a", "other"},
	} {
		for _, body := range []string{"reverse_proxy " + other.Addr + "\n" + tc.calinix, tc.calinix + "reverse_proxy " + other.Addr + "\n"} {
			s.Caddy = testcaddy.Serve(t, body, testcaddy.Plain())
			cl := s.Client(t, testcaddy.H1)
			if a := cl.Post(t, chatPath, chat("hi")); a.Pod() != tc.chat {
				t.Errorf("%s: a chat: %v", name, a)
			}
			if a := cl.Get(t, "/other"); a.Pod() != tc.rest {
				t.Errorf("%s: another path: %v", name, a)
			}
			s.Stop()
		}
	}
	// before it stands what stands before reverse_proxy
	s.Caddy = testcaddy.Serve(t, "calinix {\nname order\n"+single(ps)+"}\nrespond /health 204\nheader X-By caddy", testcaddy.Plain())
	if a := s.Client(t, testcaddy.H1).Get(t, "/health"); a.Status != 204 {
		t.Errorf("%v", a)
	}
	if a := s.Client(t, testcaddy.H1).Get(t, "/v1/models"); a.Pod() != "a" || a.Header.Get("X-By") != "caddy" {
		t.Errorf("%v", a)
	}
}
