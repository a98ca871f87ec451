package testcaddy_test

import (
	"strings"
	"testing"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

func TestAdminAndMetrics(t *testing.T) {
	testcaddy.NoLeaks(t)
	p := fakepod.New(t, fakepod.Options{Name: "a"})
	c := testcaddy.Serve(t, proxy(p), testcaddy.Plain(), testcaddy.Global("metrics"))
	cl := c.Client(t, testcaddy.H1)
	for range 3 {
		cl.Post(t, chat, "{}")
	}
	m := c.WaitMetric(t, 3, "caddy_http_requests_total", "handler", "reverse_proxy")
	if !m.Has("caddy_http_requests_total", "server", "srv0", "handler", "reverse_proxy") ||
		m.Get("caddy_http_requests_total", "server", "srv0", "handler", "reverse_proxy") != 3 || m.Has("caddy_http_requests_total") {
		t.Errorf("%v", m)
	}
	if m.Get("caddy_absent") != 0 || m.Sum("caddy_absent") != 0 || m.Sum("caddy_http_requests_total", "handler", "none") != 0 {
		t.Error("an absent sample is not 0")
	}
	if c.Metrics(t).Sum("caddy_http_requests_total") < 3 {
		t.Error("Metrics sees less than WaitMetric")
	}
	if a := c.AdminGet(t, "/reverse_proxy/upstreams"); a.Status != 200 || !strings.Contains(string(a.Body), p.Addr) {
		t.Error(a)
	}
	if a := c.AdminPost(t, "/adapt", ":1 {\n\trespond x\n}", "Content-Type", "text/caddyfile"); a.Status != 200 || !strings.Contains(string(a.Body), "static_response") {
		t.Error(a)
	}
	if a := c.AdminSend(t, "DELETE", "/config/apps/none", ""); a.Status == 200 {
		t.Error(a)
	}
	impatient(t)
	f := record(t, func(tb testing.TB) { c.WaitMetric(tb, 99, "caddy_http_requests_total", "handler", "reverse_proxy") })
	if !strings.Contains(f, `waiting for caddy_http_requests_total{handler="reverse_proxy"} to be 99`) || !strings.Contains(f, `server="srv0"} 3`) {
		t.Errorf("%q", f)
	}
}

func TestParseMetrics(t *testing.T) {
	m, err := testcaddy.ParseMetrics("# HELP a b\na 1\nb{y=\"2\",x=\"q\\\"}\\\\\"} 2.5e3 1700000000\nc{} +Inf\n\n")
	if err != nil {
		t.Fatal(err)
	}
	if m.Get("a") != 1 || m.Get("b", "x", "q\"}\\", "y", "2") != 2500 || !m.Has("c") || m.Sum("b", "y", "2") != 2500 {
		t.Errorf("%v", m)
	}
	for _, bad := range []string{"a", "a x", "a{b=c} 1", "a{b} 1", "{"} {
		if _, err := testcaddy.ParseMetrics(bad); err == nil || !strings.Contains(err.Error(), "line 1") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
