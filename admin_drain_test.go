package calinix_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// drain posts drain or undrain.
func drain(t testing.TB, c *testcaddy.Caddy, id, what string) {
	t.Helper()
	if a := c.AdminPost(t, "/calinix/pods/"+url.PathEscape(id)+"/"+what, ""); a.Status != http.StatusNoContent || len(a.Body) > 0 {
		t.Fatalf("%s %s: %v", what, id, a)
	}
}

// TestAdminEscapedIDs: a pod's id stands escaped in the path, whatever it is.
func TestAdminEscapedIDs(t *testing.T) {
	p := pods(t, "all")[0]
	ids := []string{"plain", "a/b", "a%2Fb", "a%b", "..", ".", "x?y#z", `"q"`, "{id}", "drain", "a+b", "a&b=c;d", "~!@$^*()_`|\\", "pods/a/drain"}
	var list strings.Builder
	for _, id := range ids {
		coded, err := json.Marshal(id)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&list, "      - {id: %s, url: %q}\n", coded, p.URL)
	}
	c := testcaddy.Load(t, fmt.Sprintf("version: 1\ngateway: {port: %d}\nupstreams:\n  single:\n    pods:\n%s", testcaddy.Port(t), list.String()), testcaddy.Adapter("calinix"))
	for k, id := range ids {
		escaped := url.PathEscape(id)
		if strings.Trim(id, ".") == "" {
			escaped = strings.ReplaceAll(id, ".", "%2e") // dots alone would lead elsewhere
		}
		for _, what := range []string{"drain", "undrain", "drain"} {
			if a := c.AdminPost(t, "/calinix/pods/"+escaped+"/"+what, ""); a.Status != 204 {
				t.Fatalf("%s %q: %v", what, id, a)
			}
		}
		for j, e := range entries(t, c, "") {
			if e.ID != ids[j] || e.Draining != (j <= k) {
				t.Fatalf("after draining %q, pod %q: %+v", id, ids[j], e)
			}
		}
	}
	m := c.Metrics(t)
	for _, id := range ids {
		if !m.Has("calinix_pod_up", "balancer", "default", "pod", id, "role", "single") {
			t.Errorf("the metrics have no pod %q", id)
		}
	}
}

// TestAdminDrain: a drained pod ends what it has and gets nothing new; it keeps
// what it is known to hold.
func TestAdminDrain(t *testing.T) {
	ps := pods(t, "a", "b")
	s := serve(t, "block_size 4\n"+single(ps))
	cl := s.Client(t, testcaddy.H2)
	drain(t, s.Caddy, "b", "drain")
	prompt := words("keep", 100)
	if a := cl.Post(t, chatPath, chat(prompt)); a.Pod() != "a" {
		t.Fatal(a)
	}
	drain(t, s.Caddy, "b", "undrain")
	hold := make(chan struct{})
	ps.Pod("a").Set(fakepod.Reply{Hold: hold})
	stream := make(chan *testcaddy.Answer)
	go func() { stream <- cl.Post(t, chatPath, chat(prompt+"more", `"stream":true`)) }()
	ps.Pod("a").WaitRequests(t, 2)

	drain(t, s.Caddy, "a", "drain")
	drain(t, s.Caddy, "a", "drain") // twice is fine
	if e := entry(t, s.Caddy, "a"); !e.Draining || !e.Up || e.Inflight != 1 || e.Blocks == 0 {
		t.Errorf("a while it drains: %+v", e)
	}
	for i := range 10 {
		if a := cl.Post(t, chatPath, chat(prompt+fmt.Sprint(i))); a.Pod() != "b" {
			t.Errorf("while a drains: %v", a)
		}
	}
	drain(t, s.Caddy, "b", "drain")
	if a := cl.Post(t, chatPath, chat(prompt)); a.Status != 503 || a.Header.Get("Retry-After") == "" {
		t.Errorf("while both drain: %v", a)
	}
	close(hold)
	if a := <-stream; a.Err != nil || a.Status != 200 || !strings.HasSuffix(string(a.Body), "data: [DONE]\n\n") {
		t.Errorf("the stream that ran: %v", a)
	}
	drain(t, s.Caddy, "a", "undrain")
	if a := cl.Post(t, chatPath, chat(prompt)); a.Pod() != "a" || a.Header.Get("X-Calinix-Cache-Hit") != "true" {
		t.Errorf("after its return: %v", a)
	}
}

// TestAdminDrainOverReload: what was decided by hand outlives a reload, in both
// directions; the configuration's word is where a pod begins.
func TestAdminDrainOverReload(t *testing.T) {
	ps := pods(t, "a", "b", "c")
	keys := fmt.Sprintf("single {\npod a %s\npod b %s {\ndraining\n}\npod c %s {\ndraining\n}\n}\n", ps[0].URL, ps[1].URL, ps[2].URL)
	s := serve(t, keys, testcaddy.Plain())
	draining := func() string {
		var out []string
		for _, e := range entries(t, s.Caddy, "") {
			if e.Draining {
				out = append(out, e.ID)
			}
		}
		return strings.Join(out, " ")
	}
	if got := draining(); got != "b c" {
		t.Errorf("at the start: %q", got)
	}
	drain(t, s.Caddy, "a", "drain")
	drain(t, s.Caddy, "b", "undrain")
	for range 2 {
		s.reload(t, keys+"retries 0\n")
		s.reload(t, keys)
		if got := draining(); got != "a c" {
			t.Errorf("after a reload: %q", got)
		}
	}
	cl := s.Client(t, testcaddy.H1)
	for i := range 5 {
		if a := cl.Post(t, chatPath, chat(fmt.Sprint("x", i))); a.Pod() != "b" {
			t.Errorf("only b takes requests: %v", a)
		}
	}
}

// TestAdminNamesTheOtherBalancer: who asks the wrong balancer for a pod is told
// the right one.
func TestAdminNamesTheOtherBalancer(t *testing.T) {
	ps := pods(t, "a", "b")
	c := testcaddy.Load(t, fmt.Sprintf("http://:%d {\ncalinix {\nname aard\nsingle {\npod x %s\n}\n}\ncalinix {\nname zebra\nsingle {\npod y %s\n}\n}\n}\n", testcaddy.Port(t), ps[0].URL, ps[1].URL))
	a := c.AdminPost(t, "/calinix/pods/y/drain", "")
	if a.Status != 404 || !strings.Contains(string(a.Body), `balancer \"aard\" has no pod \"y\", but \"zebra\" has`) {
		t.Errorf("%v", a)
	}
}
