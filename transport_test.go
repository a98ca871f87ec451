package calinix_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// yamlSite serves a config.yaml with these pods in single mode, and these lines
// of the section transport.
func yamlSite(t testing.TB, ps fakepod.Pods, transport string, more ...string) (*site, *testcaddy.Client) {
	t.Helper()
	s := &site{balancer: fmt.Sprintf("yaml-%d", balancers.Add(1))}
	port := testcaddy.Port(t)
	var b strings.Builder
	fmt.Fprintf(&b, "version: 1\ngateway: {name: %s, port: %d, retries: 0}\n", s.balancer, port)
	fmt.Fprintf(&b, "health: {intervalMs: 3600000, timeoutMs: 60000}\ntransport: {%s}\n%s", transport, strings.Join(more, ""))
	b.WriteString("upstreams:\n  single:\n    mode: single\n    pods:\n")
	for _, p := range ps {
		fmt.Fprintf(&b, "      - {id: %s, url: %q}\n", p.Name, p.URL)
	}
	s.Caddy = testcaddy.Load(t, b.String(), testcaddy.Adapter("calinix"), testcaddy.Filename("config.yaml"))
	return s, testcaddy.NewClient(t, testcaddy.H1, fmt.Sprintf("http://127.0.0.1:%d", port))
}

// waitProbed waits until the verdict on every pod is in.
func (s *site) waitProbed(t testing.TB) {
	t.Helper()
	waitFor(t, "the first probe of every pod", func() bool {
		for _, e := range entries(t, s.Caddy, "") {
			if e.Health == "" {
				return false
			}
		}
		return true
	})
}

// TestTransportTLS: how the certificates of https pods are checked, for probes
// and requests alike; http pods may stand beside them.
func TestTransportTLS(t *testing.T) {
	local, named := fakepod.NewCert(t), fakepod.NewCert(t, "engine.example.test")
	for _, tc := range []struct {
		name, transport string
		cert            *fakepod.Cert
		up              bool
		detail, sni     string
	}{
		{"nothing said", "", local, false, "x509: certificate signed by unknown authority", ""},
		{"caFile", "tls: {caFile: " + local.File(t) + "}", local, true, "", "localhost"},
		{"another caFile", "tls: {caFile: " + named.File(t) + "}", local, false, "x509:", ""},
		{"insecureSkipVerify", "tls: {insecureSkipVerify: true}", local, true, "", "localhost"},
		{"not insecure", "tls: {insecureSkipVerify: false}", local, false, "x509:", ""},
		{"serverName", "tls: {caFile: " + named.File(t) + ", serverName: engine.example.test}", named, true, "", "engine.example.test"},
		{"no serverName", "tls: {caFile: " + named.File(t) + "}", named, false, "x509: certificate is valid for engine.example.test, not localhost", ""},
		{"another serverName", "tls: {caFile: " + local.File(t) + ", serverName: other.example.test}", local, false, "not other.example.test", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := fakepod.New(t, fakepod.Options{Name: "a", Cert: tc.cert})
			a.URL = strings.Replace(a.URL, "127.0.0.1", "localhost", 1)
			b := fakepod.New(t, fakepod.Options{Name: "b"})
			s, cl := yamlSite(t, fakepod.Pods{a, b}, tc.transport)
			s.waitProbed(t)
			e := entry(t, s.Caddy, "a")
			if e.Up != tc.up || !strings.Contains(e.Health, tc.detail) {
				t.Fatalf("%+v, want up %v, %q", e, tc.up, tc.detail)
			}
			if !tc.up {
				if lines := s.Log.Find(func(e testcaddy.Entry) bool { return e.Msg == "pod is down" && strings.Contains(e.Line, tc.detail) }); len(lines) != 1 {
					t.Errorf("%d lines name the certificate", len(lines))
				}
				if got := cl.Post(t, chatPath, chat("hi")); got.Pod() != "b" {
					t.Errorf("%v", got)
				}
				return
			}
			drain(t, s.Caddy, "b", "drain")
			if got := cl.Post(t, chatPath, chat("hi"), "Host", "llm.example.test"); got.Pod() != "a" {
				t.Fatalf("%v", got)
			}
			q := a.Last(t)
			for what, q := range map[string]fakepod.Request{"probe": a.Probes()[0], "request": q} {
				if q.TLS == nil || q.TLS.ServerName != tc.sni || q.Host != strings.TrimPrefix(a.URL, "https://") || q.Proto != "HTTP/1.1" {
					t.Errorf("%s: TLS %v, host %s, %s", what, q.TLS != nil, q.Host, q.Proto)
				}
			}
			drain(t, s.Caddy, "b", "undrain")
			drain(t, s.Caddy, "a", "drain")
			if got := cl.Post(t, chatPath, chat("hi"), "Host", "llm.example.test"); got.Pod() != "b" || b.Last(t).Host != "llm.example.test" || b.Last(t).TLS != nil {
				t.Errorf("the plain pod beside it: %v", got)
			}
		})
	}
}

// TestTransportRelativeCAFile: a relative path counts from the folder in which
// Caddy runs.
func TestTransportRelativeCAFile(t *testing.T) {
	cert := fakepod.NewCert(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "ca.pem"), cert.PEM, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	a := fakepod.New(t, fakepod.Options{Name: "a", Cert: cert})
	s, cl := yamlSite(t, fakepod.Pods{a}, "tls: {caFile: ca.pem}")
	s.waitProbed(t)
	if got := cl.Post(t, chatPath, chat("hi")); got.Pod() != "a" {
		t.Errorf("%v", got)
	}
}

// TestTransportVersions: HTTP/1.1 unless HTTP/2 is asked for; h2c is HTTP/2
// without TLS. Probes speak the same.
func TestTransportVersions(t *testing.T) {
	cert := fakepod.NewCert(t)
	for _, tc := range []struct{ transport, secure, plain string }{
		{"", "HTTP/1.1", "HTTP/1.1"},
		{`versions: ["1.1"]`, "HTTP/1.1", "HTTP/1.1"},
		{`versions: ["2"]`, "HTTP/2.0", "HTTP/1.1"}, // HTTP/2 without TLS is h2c's
		{`versions: ["1.1", "2"]`, "HTTP/2.0", "HTTP/1.1"},
		{`versions: ["h2c"]`, "HTTP/2.0", "HTTP/2.0"},
		{`versions: ["h2c", "2"]`, "HTTP/2.0", "HTTP/2.0"},
	} {
		t.Run(tc.transport, func(t *testing.T) {
			secure := fakepod.New(t, fakepod.Options{Name: "secure", Protocol: fakepod.HTTP2, Cert: cert})
			plain := fakepod.New(t, fakepod.Options{Name: "plain", Protocol: fakepod.HTTP2})
			ps := fakepod.Pods{secure, plain}
			transport := "tls: {insecureSkipVerify: true}"
			if tc.transport != "" {
				transport += ", " + tc.transport
			}
			s, cl := yamlSite(t, ps, transport)
			s.waitProbed(t)
			for pod, want := range map[string]string{"secure": tc.secure, "plain": tc.plain} {
				other := map[string]string{"secure": "plain", "plain": "secure"}[pod]
				drain(t, s.Caddy, other, "drain")
				for range 2 {
					if got := cl.Post(t, chatPath, chat("hi", `"stream":true`)); got.Pod() != pod || !strings.HasSuffix(string(got.Body), "data: [DONE]\n\n") {
						t.Errorf("%v", got)
					}
				}
				drain(t, s.Caddy, other, "undrain")
				p := ps.Pod(pod)
				for _, q := range append(p.Requests(), p.Probes()...) {
					if q.Proto != want {
						t.Errorf("%s: %v over %s, want %s", pod, q, q.Proto, want)
					}
				}
			}
		})
	}
}

// TestTransportKeepalive: a connection is used again, until it has been idle
// for so long; 0 uses none twice.
func TestTransportKeepalive(t *testing.T) {
	post := func(t *testing.T, cl *testcaddy.Client, p *fakepod.Pod) fakepod.Request {
		t.Helper()
		if got := cl.Post(t, chatPath, chat("hi")); got.Status != 200 {
			t.Fatal(got)
		}
		return p.Last(t)
	}
	t.Run("default", func(t *testing.T) {
		ps := pods(t, "a")
		s, cl := yamlSite(t, ps, "")
		s.waitProbed(t)
		for range 5 {
			post(t, cl, ps[0])
			s.waitNone(t)
		}
		if n := len(ps[0].Conns()); n > 2 { // the probe's may not have been free yet
			t.Errorf("%d connections for a probe and five requests one after another", n)
		}
	})
	t.Run("300 ms", func(t *testing.T) {
		ps := pods(t, "a")
		s, cl := yamlSite(t, ps, "keepaliveMs: 300")
		s.waitProbed(t)
		post(t, cl, ps[0])
		ps[0].WaitOpen(t, 0)
		for _, c := range ps[0].Conns() {
			if !c.ByPeer || c.Err != nil {
				t.Errorf("%+v", c)
			}
		}
		if q := post(t, cl, ps[0]); q.OnConn != 1 {
			t.Errorf("%v", q)
		}
	})
	t.Run("0", func(t *testing.T) {
		ps := pods(t, "a")
		s, cl := yamlSite(t, ps, "keepaliveMs: 0")
		s.waitProbed(t)
		for range 3 {
			if q := post(t, cl, ps[0]); q.OnConn != 1 {
				t.Errorf("%v", q)
			}
		}
		ps[0].WaitOpen(t, 0)
	})
}

// TestTransportDialTimeout: a pod to which no connection comes about is given up
// after so long.
func TestTransportDialTimeout(t *testing.T) {
	hole := &fakepod.Pod{Name: "hole", URL: "http://" + fakepod.Blackhole(t)}
	s, cl := yamlSite(t, fakepod.Pods{hole}, "dialTimeoutMs: 1500")
	// its first probe ends as late as the request, and until then it counts as up
	got := cl.Post(t, chatPath, chat("hi"))
	if code := wantError(t, got, http.StatusBadGateway); code != "pod_unreachable" {
		t.Errorf("code %q", code)
	}
	if took := got.Ended.Sub(got.Began); took < 1400*time.Millisecond {
		t.Errorf("given up after %v", took)
	}
	s.waitCount(t, 1, "calinix_requests_total", "pod", "hole", "code", "502")
}

// TestTransportHandshakeTimeout: dialTimeoutMs bounds the TLS handshake as well: a
// pod that accepts and says nothing is given up after so long.
func TestTransportHandshakeTimeout(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close() // with its connections, whether accepted or not
	mute := &fakepod.Pod{Name: "mute", URL: "https://" + ln.Addr().String()}
	s, cl := yamlSite(t, fakepod.Pods{mute}, "dialTimeoutMs: 800")
	got := cl.Post(t, chatPath, chat("hi"))
	if code := wantError(t, got, http.StatusBadGateway); code != "pod_unreachable" {
		t.Errorf("code %q", code)
	}
	if took := got.Ended.Sub(got.Began); took < 700*time.Millisecond {
		t.Errorf("given up after %v", took)
	}
	s.waitCount(t, 1, "calinix_requests_total", "pod", "mute", "code", "502")
}

// TestTransportResponseHeaderTimeout: a pod that does not begin to answer for so
// long is given up; a slow stream is not. It is no passive failure.
func TestTransportResponseHeaderTimeout(t *testing.T) {
	ps := pods(t, "a")
	s, cl := yamlSite(t, ps, "responseHeaderTimeoutMs: 400")
	s.waitProbed(t)
	ps[0].Next(fakepod.Reply{Silent: true})
	if code := wantError(t, cl.Post(t, chatPath, chat("hi")), http.StatusGatewayTimeout); code != "pod_timed_out" {
		t.Errorf("code %q", code)
	}
	ps[0].WaitClosed(t, 1)
	ps[0].Next(fakepod.Reply{Chunks: 4, Gap: 150 * time.Millisecond, FirstChunk: 600 * time.Millisecond})
	if got := cl.Post(t, chatPath, chat("hi", `"stream":true`)); got.Err != nil || got.Status != 200 || !strings.HasSuffix(string(got.Body), "data: [DONE]\n\n") {
		t.Errorf("a stream of more than a second: %v", got)
	}
}

// TestTransportOfCaddy: the directive takes Caddy's own transport block, whose
// placeholders also probes know; what it cannot do is refused.
func TestTransportOfCaddy(t *testing.T) {
	cert := fakepod.NewCert(t, "pod.example.test")
	a := fakepod.New(t, fakepod.Options{Name: "a", Cert: cert})
	s := serve(t, fmt.Sprintf(`transport http {
			tls_trust_pool file %s
			tls_server_name pod.example.test
		}
		`, cert.File(t))+single(fakepod.Pods{a}), testcaddy.Plain())
	if got := s.Client(t, testcaddy.H1).Post(t, chatPath, chat("hi")); got.Pod() != "a" || a.Last(t).TLS.ServerName != "pod.example.test" {
		t.Errorf("%v", got)
	}
	// a name that is known only when the pod is: its host
	local := fakepod.NewCert(t)
	b := fakepod.New(t, fakepod.Options{Name: "b", Cert: local})
	s.reload(t, fmt.Sprintf(`transport http {
			tls_trust_pool file %s
			tls_server_name {http.reverse_proxy.upstream.host}
		}
		`, local.File(t))+single(fakepod.Pods{b}))
	s.waitUp(t, true, "b")
	if got := s.Client(t, testcaddy.H1).Post(t, chatPath, chat("hi")); got.Pod() != "b" {
		t.Errorf("%v", got)
	}
	s.waitProbed(t)
	if e := entry(t, s.Caddy, "b"); !e.Up {
		t.Errorf("%+v", e)
	}
	for keys, want := range map[string]string{
		"transport http {\nproxy_protocol v2\n}\n":             "proxy_protocol is not supported",
		"transport fastcgi {\nroot /srv\n}\n":                  `transport "fastcgi": pods speak HTTP`,
		"transport http {\ntls_trust_pool file /none.pem\n}\n": "/none.pem",
	} {
		if err := s.TryReloadSite(s.body(keys + single(fakepod.Pods{a}))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", keys, err, want)
		}
	}
}
