package calinix_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// podEntry is one pod of GET /calinix/pods with every member.
type podEntry struct {
	Balancer string   `json:"balancer"`
	ID       string   `json:"id"`
	URL      string   `json:"url"`
	Role     string   `json:"role"`
	Roles    []string `json:"roles"`
	Up       bool     `json:"up"`
	Draining bool     `json:"draining"`
	Inflight int      `json:"inflight"`
	MaxConns *int     `json:"maxConns"`
	Blocks   int      `json:"blocks"`
	Node     string   `json:"node"`
	Zone     string   `json:"zone"`
	Room     int      `json:"room"`
	Tokens   int64    `json:"cacheTokens"`
	Stale    bool     `json:"stale"`
	Models   []string `json:"models"`
	Health   string   `json:"health"`
}

// adminJSON asks an admin route and decodes the answer strictly.
func adminJSON(t testing.TB, a *testcaddy.Answer, out any) {
	t.Helper()
	if a.Err != nil || a.Status != http.StatusOK || a.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("want JSON: %v", a)
	}
	d := json.NewDecoder(strings.NewReader(string(a.Body)))
	d.DisallowUnknownFields()
	if err := d.Decode(out); err != nil {
		t.Fatalf("%v: %v", err, a)
	}
}

// entries lists the pods of a balancer.
func entries(t testing.TB, c *testcaddy.Caddy, query string) []podEntry {
	t.Helper()
	var all []podEntry
	adminJSON(t, c.AdminGet(t, "/calinix/pods"+query), &all)
	return all
}

// entry is the pod of that id.
func entry(t testing.TB, c *testcaddy.Caddy, id string) podEntry {
	t.Helper()
	for _, p := range entries(t, c, "") {
		if p.ID == id {
			return p
		}
	}
	t.Fatalf("no pod %q", id)
	return podEntry{}
}

// indexEntry is the answer of GET /calinix/index.
type indexEntry struct {
	Balancer string `json:"balancer"`
	Blocks   int    `json:"blocks"`
	Bytes    int64  `json:"bytes"`
	Pods     []struct {
		ID     string `json:"id"`
		Blocks int    `json:"blocks"`
	} `json:"pods"`
}

func indexOf(t testing.TB, c *testcaddy.Caddy) (x indexEntry) {
	t.Helper()
	adminJSON(t, c.AdminGet(t, "/calinix/index"), &x)
	return x
}

// TestAdminPods: every member of every pod, in the order of the configuration.
func TestAdminPods(t *testing.T) {
	ps := pods(t, "a", "b", "p", "d")
	s := serve(t, fmt.Sprintf(`block_size 4
		single {
			pod a %s {
				max_conns 7
				node rack1
				zone west
				capabilities decode
			}
			pod b %s {
				draining
			}
		}
		dispatch {
			prefill {
				pod p %s
			}
			decode {
				pod d %s {
					healthy off
				}
			}
		}
		health {
			healthy_threshold 1000000
			interval 20ms
		}`, ps[0].URL, ps[1].URL, ps[2].URL, ps[3].URL), testcaddy.Plain())
	for _, p := range ps {
		p.WaitProbes(t, 2)
	}
	hold := make(chan struct{})
	ps[0].Set(fakepod.Reply{Hold: hold})
	done := make(chan *testcaddy.Answer)
	cl := s.Client(t, testcaddy.H1)
	go func() { done <- cl.Post(t, chatPath, chat(words("w", 7))) }()
	ps[0].WaitRequests(t, 1)

	seven := 7
	blocks := entry(t, s.Caddy, "a").Blocks
	if blocks < 2 {
		t.Errorf("a holds %d blocks of a prompt of at least 7 tokens, 4 a block", blocks)
	}
	want := []podEntry{
		{ID: "a", URL: ps[0].URL, Role: "single", Roles: []string{"single", "decode"}, Up: true, Inflight: 1, MaxConns: &seven, Blocks: blocks, Node: "rack1", Zone: "west", Health: "200 OK"},
		{ID: "b", URL: ps[1].URL, Role: "single", Roles: []string{"single"}, Up: true, Draining: true, Node: "127.0.0.1", Health: "200 OK"},
		{ID: "p", URL: ps[2].URL, Role: "prefill", Roles: []string{"prefill"}, Up: true, Node: "127.0.0.1", Health: "200 OK"},
		{ID: "d", URL: ps[3].URL, Role: "decode", Roles: []string{"decode"}, Up: false, Node: "127.0.0.1", Health: "200 OK"},
	}
	room, tokens := 460800/4, int64(460800)
	for k := range want {
		want[k].Balancer = s.balancer
		want[k].Room, want[k].Tokens = room, tokens
	}
	show := func(v any) string { out, _ := json.Marshal(v); return string(out) }
	if got := entries(t, s.Caddy, ""); show(got) != show(want) {
		t.Errorf("got\n%s\nwant\n%s", show(got), show(want))
	}
	if a := s.AdminSend(t, http.MethodHead, "/calinix/pods", ""); a.Status != 200 || len(a.Body) > 0 {
		t.Errorf("HEAD: %v", a)
	}
	close(hold)
	if a := <-done; a.Status != 200 {
		t.Error(a)
	}
	s.waitIdle(t, ps)
	if n := entry(t, s.Caddy, "a").Inflight; n != 0 {
		t.Errorf("%d legs at an idle pod", n)
	}
}

// TestAdminIndex: the size of the index agrees with that of its pods and with
// the metrics.
func TestAdminIndex(t *testing.T) {
	ps := pods(t, "a", "b")
	s := serve(t, "block_size 2\n"+single(ps), testcaddy.Plain())
	empty := indexOf(t, s.Caddy)
	if empty.Balancer != s.balancer || empty.Blocks != 0 || empty.Bytes <= 0 || len(empty.Pods) != 2 || empty.Pods[0].ID != "a" || empty.Pods[1].ID != "b" {
		t.Errorf("an empty index: %+v", empty)
	}
	cl := s.Client(t, testcaddy.H1)
	for i := range 20 {
		cl.Post(t, chatPath, chat(words(fmt.Sprintf("w%d-", i), 40)))
	}
	got := indexOf(t, s.Caddy)
	if sum := got.Pods[0].Blocks + got.Pods[1].Blocks; got.Blocks < 20*20 || sum < got.Blocks || got.Bytes <= empty.Bytes {
		t.Errorf("20 prompts of 40 words, 2 a block: %+v, empty it was %+v", got, empty)
	}
	for _, p := range got.Pods {
		if n := entry(t, s.Caddy, p.ID).Blocks; n != p.Blocks {
			t.Errorf("pod %s: %d blocks in one list, %d in the other", p.ID, p.Blocks, n)
		}
	}
	if blocks, bytes := s.count(t, "calinix_index_blocks"), s.count(t, "calinix_index_bytes"); blocks != float64(got.Blocks) || bytes != float64(got.Bytes) {
		t.Errorf("metrics: %v blocks, %v bytes; admin: %+v", blocks, bytes, got)
	}
}

// TestAdminErrors: what the admin routes refuse, as Caddy's admin API does.
func TestAdminErrors(t *testing.T) {
	s := serve(t, "max_body_bytes 1000\n"+single(pods(t, "a")), testcaddy.Plain())
	for _, tc := range []struct {
		method, path, body string
		status             int
		text, allow        string
	}{
		{"GET", "/calinix/", "", 404, "want pods, index, explain", ""},
		{"GET", "/calinix/none", "", 404, "unknown path", ""},
		{"GET", "/calinix/pods/", "", 404, "unknown path", ""},
		{"GET", "/calinix/pods/a", "", 404, "unknown path", ""},
		{"POST", "/calinix/pods/a/b/drain", "", 404, "unknown path", ""},
		{"POST", "/calinix/pods/a/stop", "", 404, "unknown path", ""},
		{"POST", "/calinix/pods", "", 405, "want GET", "GET"},
		{"DELETE", "/calinix/index", "", 405, "want GET", "GET"},
		{"GET", "/calinix/explain", "", 405, "want POST", "POST"},
		{"HEAD", "/calinix/explain", "", 405, "", "POST"},
		{"GET", "/calinix/pods/a/drain", "", 405, "want POST", "POST"},
		{"PUT", "/calinix/pods/a/undrain", "", 405, "want POST", "POST"},
		{"POST", "/calinix/pods/none/drain", "", 404, `has no pod "none"`, ""},
		{"GET", "/calinix/pods?balancer=none", "", 404, `no balancer is named "none"`, ""},
		{"POST", "/calinix/explain?balancer=none", "{}", 404, `no balancer is named "none"`, ""},
		{"POST", "/calinix/explain", strings.Repeat("x", 1001), 413, "larger", ""},
	} {
		a := s.AdminSend(t, tc.method, tc.path, tc.body)
		if a.Status != tc.status || a.Header.Get("Allow") != tc.allow {
			t.Errorf("%s %s: want %d: %v", tc.method, tc.path, tc.status, a)
		}
		if tc.method != "HEAD" {
			if e, ok := a.JSON(t)["error"].(string); !ok || e == "" || !strings.Contains(e, tc.text) {
				t.Errorf("%s %s: want an error with %q: %v", tc.method, tc.path, tc.text, a)
			}
		}
	}
	a := s.AdminPost(t, "/calinix/explain", chat("hi"), "x-calinix-mode", "auto")
	if a.Status != 400 || !strings.Contains(string(a.Body), `\"auto\"`) {
		t.Errorf("an unknown mode: %v", a)
	}
	if p := entry(t, s.Caddy, "a"); p.Draining {
		t.Error("a refused request has drained a pod")
	}
}

// TestAdminWithoutBalancer: a Caddy that has the module and does not use it.
func TestAdminWithoutBalancer(t *testing.T) {
	c := testcaddy.Load(t, fmt.Sprintf(":%d {\n}\n", testcaddy.Port(t)))
	for _, path := range []string{"/calinix/pods", "/calinix/index", "/calinix/pods?balancer=default"} {
		if a := c.AdminGet(t, path); a.Status != 404 || !strings.Contains(string(a.Body), "no balancer") {
			t.Errorf("%s: %v", path, a)
		}
	}
	if m := c.Metrics(t); m.Sum("calinix_index_blocks") != 0 || m.Sum("calinix_pod_up") != 0 {
		t.Error("gauges of a balancer that is gone")
	}
}

// TestAdminChoosesTheBalancer: ?balancer, and the first by name without it.
func TestAdminChoosesTheBalancer(t *testing.T) {
	ps := pods(t, "a", "b")
	one, two := testcaddy.Port(t), testcaddy.Port(t)
	c := testcaddy.Load(t, fmt.Sprintf("http://:%d {\ncalinix {\nname zebra\nsingle {\npod x %s\n}\n}\n}\nhttp://:%d {\ncalinix {\nname aard\nsingle {\npod x %s\n}\n}\n}\n", one, ps[0].URL, two, ps[1].URL))
	of := func(query string) string {
		t.Helper()
		all := entries(t, c, query)
		if len(all) != 1 {
			t.Fatalf("%q: %d pods", query, len(all))
		}
		return all[0].Balancer + " " + all[0].URL
	}
	for query, want := range map[string]string{"": "aard " + ps[1].URL, "?balancer=aard": "aard " + ps[1].URL, "?balancer=zebra": "zebra " + ps[0].URL} {
		if got := of(query); got != want {
			t.Errorf("%q: %s, want %s", query, got, want)
		}
	}
	if a := c.AdminPost(t, "/calinix/pods/x/drain?balancer=zebra", ""); a.Status != 204 {
		t.Fatal(a)
	}
	if a := testcaddy.NewClient(t, testcaddy.H1, fmt.Sprintf("http://localhost:%d", one)).Post(t, chatPath, chat("hi")); a.Status != 503 {
		t.Errorf("the drained balancer: %v", a)
	}
	if a := testcaddy.NewClient(t, testcaddy.H1, fmt.Sprintf("http://localhost:%d", two)).Post(t, chatPath, chat("hi")); a.Pod() != "b" {
		t.Errorf("the other balancer, whose pod has the same id: %v", a)
	}
	var x indexEntry
	adminJSON(t, c.AdminGet(t, "/calinix/index?balancer=zebra"), &x)
	if x.Balancer != "zebra" || x.Blocks != 0 {
		t.Errorf("%+v", x)
	}
	var e explained
	adminJSON(t, c.AdminPost(t, "/calinix/explain?balancer=zebra", chat("hi")), &e)
	if e.Pick.Pod != "" || e.of(t, "x").Filtered != "draining" {
		t.Errorf("%+v", e)
	}
}

// TestAdminIsNotPublic: the site has no such paths; they are its pods' own.
func TestAdminIsNotPublic(t *testing.T) {
	ps := pods(t, "a")
	s := serve(t, single(ps))
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		for _, path := range []string{"/calinix/pods", "/calinix/index", "/metrics", "/config/"} {
			if a := cl.Get(t, path); a.Pod() != "a" || ps[0].Last(t).Target != path {
				t.Errorf("%s: %v", path, a)
			}
		}
		for _, path := range []string{"/calinix/pods/a/drain", "/calinix/explain"} {
			if a := cl.Post(t, path, chat("hi")); a.Pod() != "a" || ps[0].Last(t).Target != path {
				t.Errorf("%s: %v", path, a)
			}
		}
	})
	if e := entries(t, s.Caddy, ""); len(e) != 1 || e[0].Draining {
		t.Errorf("a client has drained a pod: %+v", e)
	}
}
