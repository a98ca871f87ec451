package cases_test

import (
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// TestBR56: IPv6 pods.
func TestBR56(t *testing.T) {
	if ln, err := net.Listen("tcp", "[::1]:0"); err != nil {
		t.Skip("this machine has no IPv6 loopback:", err)
	} else {
		ln.Close()
	}
	c := begin(t)
	a := fakepod.New(t, fakepod.Options{Name: "a", Host: "::1"})
	b := fakepod.New(t, fakepod.Options{Name: "b"})
	ps := fakepod.Pods{a, b}
	if !strings.HasPrefix(a.URL, "http://[::1]:") {
		t.Fatal(a.URL)
	}
	s := serve(t, ps, probes+single(ps))
	s.all(t)
	cl := s.Client(t, testcaddy.H1)
	sent := cl.SendCases(t, c.Requests("ask"))
	c.expect(t, 1, "a and b are both probed", func(t *testing.T) {
		wantStatus(t, 200, sent...)
		for _, p := range ps {
			if len(p.Probes()) == 0 || p.Count() < 3 {
				t.Errorf("pod %s was probed %d times and received %v", p.Name, len(p.Probes()), ps.Counts())
			}
		}
	})
	c.expect(t, 2, "GET /v1/models answers 200 from either", func(t *testing.T) {
		for _, p := range ps {
			s.only(t, p.Name)
			wantPod(t, p.Name, cl.SendCases(t, c.Requests("models"))...)
		}
		s.all(t)
	})
	c.expect(t, 3, "the Host header at a is [::1]:PORT", func(t *testing.T) {
		if q := a.Probes()[0]; q.Host != a.Addr {
			t.Errorf("a probe's Host is %q, want %q", q.Host, a.Addr)
		}
		s.reload(t, probes+single(ps)+"header_up Host {http.reverse_proxy.upstream.hostport}\n")
		ps.Forget()
		wantStatus(t, 200, s.Client(t, testcaddy.H1).SendCases(t, c.Requests("ask"))...)
		for _, q := range ps.Received() {
			if want := ps.Pod(q.Pod).Addr; q.Host != want {
				t.Errorf("pod %s sees Host %q, want %q", q.Pod, q.Host, want)
			}
		}
		if a.Count() == 0 {
			t.Error("pod a received nothing")
		}
	})
	c.expect(t, 4, "Caddyfile and YAML accept the same spelling", func(t *testing.T) {
		yaml := func(url string) (config string, err error) {
			text := "version: 1\nupstreams:\n  single:\n    mode: single\n    pods:\n      - {id: six-1, url: \"" + url + "\"}\n"
			all, _, err := testcaddy.Adapt(text, testcaddy.Adapter("calinix"), testcaddy.Filename("config.yaml"))
			return string(all), err
		}
		caddyfile := func(url string) (config string, err error) {
			all, _, err := testcaddy.Adapt("http://:1 {\ncalinix {\nsingle {\npod six-1 " + url + "\n}\n}\n}\n")
			return string(all), err
		}
		for name, adapt := range map[string]func(string) (string, error){"YAML": yaml, "Caddyfile": caddyfile} {
			if config, err := adapt("http://[::1]:8000"); err != nil || !strings.Contains(config, `"http://[::1]:8000"`) {
				t.Errorf("%s: %v: %s", name, err, config)
			}
			for _, malformed := range []string{"http://::1:8000", "http://[::1:8000", "http://[::1]8000", "http://[::1]:port", "http://[::g]:8000"} {
				config, err := adapt(malformed)
				if err == nil { // accepted as text: then refused when it is loaded
					err = s.TryReload(config, testcaddy.Adapter("json"))
				}
				if err == nil || !strings.Contains(err.Error(), "six-1") {
					t.Errorf("%s: %s is refused with %v", name, malformed, err)
				}
			}
		}
	})
}

// TestBR65: TLS pods with a private certificate, and the Host they expect.
func TestBR65(t *testing.T) {
	c := begin(t)
	cert := fakepod.NewCert(t, "localhost")
	a := fakepod.New(t, fakepod.Options{Name: "a", Cert: cert})
	u, err := url.Parse(a.URL)
	if err != nil {
		t.Fatal(err)
	}
	a.URL = "https://localhost:" + u.Port() // the name in its certificate
	host := "localhost:" + u.Port()
	a.Set(fakepod.Func(func(r fakepod.Request) fakepod.Reply {
		if r.Host != host {
			return fakepod.Reply{Status: 421}
		}
		return fakepod.Reply{}
	}))
	b := fakepod.New(t, fakepod.Options{Name: "b"})
	ps := fakepod.Pods{a, b}
	keys := probes + single(ps)

	s := serve(t, ps, keys)
	s.waitUp(t, "b")
	first := s.Client(t, testcaddy.H1).SendCases(t, c.Requests())
	c.expect(t, 1, "phase 1: all 20 are answered 200 by b", func(t *testing.T) {
		wantStatus(t, 200, first...)
		wantPod(t, "b", first...)
		if len(first) != 20 {
			t.Errorf("%d were sent", len(first))
		}
		s.Log.Wait(t, 0, "pod a to be down for its certificate", func(e testcaddy.Entry) bool {
			return e.Msg == "pod is down" && e.Has("pod", "a") && strings.Contains(e.Line, "certificate")
		})
		if n := len(a.Probes()) + a.Count(); n != 0 {
			t.Errorf("pod a has read %d requests", n)
		}
	})
	for _, phase := range []struct{ name, tls string }{
		{"CA file", "tls_trust_pool file " + cert.File(t)},
		{"skip verify", "tls_insecure_skip_verify"},
	} {
		ps.Forget()
		s.reload(t, keys+"transport http {\n"+phase.tls+"\n}\n")
		s.all(t)
		for _, p := range ps { // which knows the prompts from the phase before, and has all of them otherwise
			s.crash(t, p)
			s.restart(t, p)
		}
		sent := s.Client(t, testcaddy.H1).SendCases(t, c.Requests())
		c.expect(t, 2, "phase 2 and 3: a serves at least 3 of 20", func(t *testing.T) {
			wantStatus(t, 200, sent...)
			if a.Count() < 3 || len(a.Probes()) < 2 {
				t.Errorf("%s: received: %v, and a %d probes", phase.name, ps.Counts(), len(a.Probes()))
			}
			for _, q := range append(a.Requests(), a.Probes()...) {
				if q.TLS == nil {
					t.Errorf("%s: %v came without TLS", phase.name, q)
				}
			}
		})
		c.expect(t, 3, "Host at a is its own host:port; SNI", func(t *testing.T) {
			for _, q := range append(a.Requests(), a.Probes()...) {
				if q.Host != host || q.TLS == nil || q.TLS.ServerName != "localhost" {
					t.Errorf("%s: %v: Host %q, TLS %v", phase.name, q, q.Host, q.TLS)
				}
			}
		})
		c.expect(t, 4, "http and https pods may be mixed", func(t *testing.T) {
			if b.Count() < 3 {
				t.Errorf("%s: received: %v", phase.name, ps.Counts())
			}
			for _, q := range b.Requests() {
				if q.TLS != nil {
					t.Errorf("%v came over TLS", q)
				}
			}
		})
	}
}

// TestBR68: ranks: one host, several ports; rank header.
func TestBR68(t *testing.T) {
	c := begin(t)
	ranks := []string{"r0", "r1", "r2", "r3"}
	s := serveOnly(t, "r2", ranks)
	r2, r1 := s.pods.Pod("r2"), s.pods.Pod("r1")
	cl := s.Client(t, testcaddy.H1)
	wantPod(t, "r2", cl.SendCases(t, c.Requests("warm-r2"))...)
	s.all(t)
	rankArrives := func(t *testing.T) {
		for _, q := range r2.Requests()[1:] {
			if got := q.Header.Values("X-Data-Parallel-Rank"); !slices.Equal(got, []string{"3"}) {
				t.Errorf("%v has rank %q", q, got)
			}
		}
	}
	follow := cl.SendCases(t, c.Requests("follow"))
	c.expect(t, 1, "all 5 'follow' reach r2", func(t *testing.T) { wantPod(t, "r2", follow...) })
	c.expect(t, 2, "X-Data-Parallel-Rank: 3 arrives unchanged", rankArrives)
	before := s.count(t, "calinix_index_blocks")
	r1.Crash()
	s.waitUp(t, "r0", "r2", "r3")
	follow = cl.SendCases(t, c.Requests("follow"))
	c.expect(t, 1, "all 5 'follow' reach r2", func(t *testing.T) { wantPod(t, "r2", follow...) })
	c.expect(t, 2, "X-Data-Parallel-Rank: 3 arrives unchanged", rankArrives)
	c.expect(t, 3, "one rank down (its port only)", func(t *testing.T) {
		wantStatus(t, 200, follow...)
		for _, a := range follow {
			if a.Answer.Header.Get("X-Calinix-Cache-Hit") != "true" {
				t.Errorf("%v", a.Answer)
			}
		}
		if after := s.count(t, "calinix_index_blocks"); before == 0 || after != before {
			t.Errorf("the index had %v blocks, and has %v", before, after)
		}
		for _, p := range []string{"r0", "r3"} { // each serves by itself
			s.only(t, p)
			wantPod(t, p, cl.SendCases(t, c.Requests("warm-r2"))...)
		}
	})
}
