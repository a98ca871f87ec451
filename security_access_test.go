package calinix_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// secureMetricLabels: what clients send makes no series.
func secureMetricLabels(t *testing.T) {
	all := pods(t, "s1", "p1", "d1")
	s := serve(t, single(all[:1])+dispatch(all[1:2], all[2:]))
	cl := s.Client(t, testcaddy.H2)
	post := func(i int) {
		for _, mode := range []string{"single", "dispatch", "auto"} {
			cl.Post(t, chatPath, fmt.Sprintf(`{"model":"model-%d","user":"user-%d","messages":[{"role":"user","content":"prompt %d"}]}`, i, i, i), "x-calinix-mode", mode,
				"x-calinix-request-id", fmt.Sprint("id-", i), "X-Session-ID", fmt.Sprint("session-", i))
			cl.Send(cl.Request(t.Context(), t, fmt.Sprintf("METHOD%d", i), fmt.Sprintf("/path-%d?q=%d", i, i), "", "x-calinix-mode", mode))
		}
	}
	series := func() (n int) {
		s.waitIdle(t)
		for name := range s.Metrics(t) {
			if strings.HasPrefix(name, "calinix_") && strings.Contains(name, `"`+s.balancer+`"`) {
				n++
			}
		}
		return n
	}
	post(0)
	before := series()
	for i := range 30 {
		post(i + 1)
	}
	if after := series(); before == 0 || after != before {
		t.Errorf("%d series, then %d", before, after)
	}
}

// secureAdmin: the site has no administrative paths; they are its pods' own.
func secureAdmin(t *testing.T) {
	ps := pods(t, "a")
	s := serve(t, single(ps))
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		admin := strings.TrimPrefix(s.AdminURL, "http://")
		for _, path := range []string{
			"/calinix/pods", "/calinix/index", "/calinix/explain", "/calinix/pods/a/drain", "/metrics", "/config/", "/load", "/stop",
			"/debug/pprof/", "//calinix/explain", "/x/../calinix/pods/a/drain", "/%63alinix/explain", "/CALINIX/explain", "/v1/../calinix/explain",
		} {
			for _, host := range []string{"localhost", admin} {
				for _, method := range []string{http.MethodGet, http.MethodPost} {
					ps.Forget()
					req := cl.Request(t.Context(), t, method, "/", question, "Host", host, "Origin", "http://"+admin)
					req.URL.Opaque = strings.TrimPrefix(cl.Base, "https:") + path
					if cl.Protocol != testcaddy.H1 {
						req.URL.Opaque, req.URL.Path = "", path
					}
					if a := cl.Send(req); a.Status != 200 || a.Pod() != "a" || ps.Total() != 1 {
						t.Errorf("%s %s at %s: %v", method, path, host, a)
					}
				}
			}
		}
	})
	if e := entries(t, s.Caddy, ""); len(e) != 1 || e[0].Draining {
		t.Errorf("a client has drained a pod: %+v", e)
	}
}

// secureAccess: the example of the page lets in who has the key, to the paths of
// the API.
func secureAccess(t *testing.T) {
	example := pageBlock(t, "API_KEY")
	_, example, _ = strings.Cut(example, "{\n") // the site's name
	example = strings.TrimSuffix(strings.TrimSpace(example), "}")
	ps := fakepod.NewPods(t, fakepod.Options{}, "gpu-1")
	t.Setenv("API_KEY", "right")
	s := testcaddy.Serve(t, strings.Replace(example, "http://10.0.0.1:8000", ps[0].URL, 1))
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		for _, c := range []struct {
			path, key string
			status    int
		}{
			{chatPath, "Bearer right", 200},
			{chatPath, "Bearer wrong", 401},
			{chatPath, "", 401},
			{"/metrics", "Bearer right", 404},
			{"/v1/../metrics", "Bearer right", 404},
			{"/reset_prefix_cache", "Bearer right", 404},
		} {
			ps.Forget()
			var headers []string
			if c.key != "" {
				headers = []string{"Authorization", c.key}
			}
			a := cl.Post(t, c.path, question, headers...)
			if a.Status != c.status || (ps.Total() == 1) != (c.status == 200) {
				t.Errorf("%s with %q: %d requests at the pod, %v", c.path, c.key, ps.Total(), a)
			}
		}
	})
}
