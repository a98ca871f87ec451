package calinix_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// routingNames are headers that no client may send to a pod.
var routingNames = append([]string{"X-Prefiller-Host-Port", "X-Encoder-Hosts-Ports", "X-Data-Parallel-Host-Port"}, ours...)

// read are those of which what a client says counts, in this spelling alone.
var read = map[string]bool{"X-Calinix-Mode": true, "X-Calinix-Request-Id": true}

// raw writes text to Serve's site, a plain one, and returns all that comes back
// until the server closes or a second has passed without anything.
func raw(t testing.TB, s *site, text string) string {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(testcaddy.Patience))
	io.WriteString(conn, text)
	got, _ := io.ReadAll(conn)
	return string(got)
}

// rawRequest is a POST of the body with these header lines, after which the
// connection is to be closed.
func rawRequest(body string, lines ...string) string {
	return "POST " + chatPath + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " + strconv.Itoa(len(body)) +
		"\r\n" + strings.Join(append(lines, ""), "\r\n") + "Connection: close\r\n\r\n" + body
}

// secureRoutingHeaders: in every case, with _ and . for -, twice, over all
// protocols, to all pods.
func secureRoutingHeaders(t *testing.T) {
	s, one, prefill, decode := bothModes(t)
	check := func(t *testing.T, what string) {
		t.Helper()
		for _, p := range []*fakepod.Pod{one, prefill, decode} {
			if p.Count() == 0 {
				t.Errorf("%s: pod %s has got nothing", what, p.Name)
				continue
			}
			if q := p.Last(t); strings.Contains(strings.ToLower(q.Head), "forged") {
				t.Errorf("%s: pod %s gets %s", what, q.Pod, q.Head)
			}
			p.Forget()
		}
	}
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		for _, mode := range []string{"single", "dispatch"} {
			req := cl.Request(t.Context(), t, http.MethodPost, chatPath, question, "x-calinix-mode", mode)
			for _, name := range routingNames {
				for _, spelled := range []string{name, strings.ReplaceAll(name, "-", "_"), strings.ReplaceAll(name, "-", "."), strings.Replace(name, "-", "_", 1)} {
					if !read[spelled] {
						req.Header[spelled] = []string{"forged", "forged"}
					}
				}
			}
			if a := cl.Send(req); a.Status != 200 {
				t.Fatal(a)
			}
		}
		check(t, "twice each")
	})
	s.Stop()

	s = serve(t, single(fakepod.Pods{one})+dispatch(fakepod.Pods{prefill}, fakepod.Pods{decode}), testcaddy.Plain())
	for _, spell := range []func(string) string{
		strings.ToLower, strings.ToUpper,
		func(n string) string { return strings.ReplaceAll(n, "-", "_") },
		func(n string) string { return strings.ReplaceAll(n, "-", ".") },
		func(n string) string { return strings.ToUpper(strings.Replace(n, "-", "_", 1)) },
	} {
		for _, mode := range []string{"single", "dispatch"} {
			lines := []string{"X-CALINIX-MODE: " + mode}
			for _, name := range routingNames {
				if !read[http.CanonicalHeaderKey(spell(name))] {
					lines = append(lines, spell(name)+": forged", spell(name)+":\tforged \t")
				}
			}
			if got := raw(t, s, rawRequest(question, lines...)); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
				t.Fatalf("%q: %s", lines, got)
			}
		}
		check(t, spell("As-This"))
	}
	// Not by a folded line either, which is malformed or part of a value.
	got := raw(t, s, rawRequest(question, "X-Other: a\r\n X-Calinix-Target-Pod-Id: forged"))
	if q := one.Requests(); len(q) > 0 && strings.Contains(q[0].Head, "\nX-Calinix-Target-Pod-Id: forged") || strings.Contains(got, "X-Calinix-Target-Pod-Id: forged") {
		t.Errorf("a folded line: %s", got)
	}
}

// secureRoutingTrailers: neither as trailers, of which pods may make headers.
func secureRoutingTrailers(t *testing.T) {
	for _, protocol := range []fakepod.Protocol{fakepod.HTTP1, fakepod.HTTP2} {
		all := fakepod.NewPods(t, fakepod.Options{Protocol: protocol}, "s1", "p1", "d1")
		keys := ""
		if protocol == fakepod.HTTP2 {
			keys = "transport http {\nversions h2c\n}\n"
		}
		s := serve(t, keys+single(all[:1])+dispatch(all[1:2], all[2:]))
		s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
			for _, mode := range []string{"single", "dispatch"} {
				all.Forget()
				req := cl.Request(t.Context(), t, http.MethodPost, chatPath, "x", "x-calinix-mode", mode)
				req.Body, req.ContentLength, req.GetBody = io.NopCloser(strings.NewReader(question)), -1, nil
				req.Trailer = http.Header{}
				for _, name := range routingNames {
					req.Trailer[name] = []string{"forged"}
				}
				if a := cl.Send(req); a.Status != 200 {
					t.Fatal(a)
				}
				if all.Total() == 0 {
					t.Error("no pod was asked")
				}
				for _, q := range all.Received() {
					if text := q.Head + fmt.Sprint(q.Header, q.Trailer); strings.Contains(text, "forged") || len(q.Trailer) > 0 && protocol == fakepod.HTTP1 {
						t.Errorf("%s: pod %s gets %s", mode, q.Pod, text)
					}
				}
			}
		})
		s.Stop()
	}
}

// secureConnectionHeader: a client that names headers as those of its connection
// takes none of ours from the pods.
func secureConnectionHeader(t *testing.T) {
	s, one, prefill, decode := bothModes(t)
	cl := s.Client(t, testcaddy.H1)
	for _, mode := range []string{"single", "dispatch"} {
		for _, list := range []string{strings.Join(ours, ","), strings.ToUpper(strings.Join(ours, ", ")), "close, " + strings.ReplaceAll(strings.Join(ours, ","), "-", "_"), "X-Calinix-Mode"} {
			req := cl.Request(t.Context(), t, http.MethodPost, chatPath, question, "x-calinix-mode", mode)
			req.Header["Connection"] = []string{list, "x-hop", "X-Calinix-Request-ID"}
			req.Header["X-Hop"] = []string{"forged"}
			a := cl.Send(req)
			legs := []fakepod.Request{one.Last(t)}
			if mode == "dispatch" {
				legs = []fakepod.Request{prefill.Last(t), decode.Last(t)}
			}
			for _, q := range legs {
				got := routing(t, q.Header)
				if a.Status != 200 || got["X-Calinix-Mode"] == "" || got["X-Calinix-Request-Id"] != a.Header.Get("X-Calinix-Request-Id") || len(got) < 6 || q.Header.Get("X-Hop") != "" {
					t.Errorf("%s, %s: pod %s gets %v", mode, list, q.Pod, q.Header)
				}
			}
		}
	}
}

// securePodHeaders: what pods say under our names reaches no client, as header, as
// trailer or before the answer; nor does what a prefill pod refuses with.
func securePodHeaders(t *testing.T) {
	s, one, prefill, decode := bothModes(t)
	forged := http.Header{}
	for _, name := range ours {
		forged[name] = []string{"forged", "forged"}
		forged[strings.ReplaceAll(name, "-", "_")] = []string{"forged"}
	}
	for _, p := range []*fakepod.Pod{one, decode} {
		p.Set(fakepod.Reply{Header: forged})
	}
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		for _, mode := range []string{"single", "dispatch"} {
			if a := cl.Post(t, chatPath, question, "x-calinix-mode", mode); a.Status != 200 || strings.Contains(fmt.Sprint(a.Header, a.Trailer), "forged") {
				t.Error(a)
			}
		}
		prefill.Next(fakepod.Reply{Status: 400, Header: forged})
		if a := cl.Post(t, chatPath, question, "x-calinix-mode", "dispatch"); a.Status != 400 || strings.Contains(fmt.Sprint(a.Header, a.Trailer), "forged") {
			t.Error(a)
		}
	})

	var lines strings.Builder
	for name := range forged {
		lines.WriteString(name + ": forged\r\n")
	}
	whole := fakepod.Reply{Raw: []byte("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n" + lines.String() + "\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Calinix-Mode, X-Sum\r\n\r\n" +
		"2\r\n{}\r\n0\r\nX-Sum: 1\r\n" + lines.String() + "\r\n"), Close: true}
	one.Set(whole)
	decode.Set(whole)
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		for _, mode := range []string{"single", "dispatch"} {
			hints := ""
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
				hints += fmt.Sprint(code, h)
				return nil
			}})
			a := cl.Send(cl.Request(ctx, t, http.MethodPost, chatPath, question, "x-calinix-mode", mode))
			if a.Status != 200 || a.Trailer.Get("X-Sum") != "1" || strings.Contains(fmt.Sprint(a.Header, a.Trailer, hints), "forged") {
				t.Errorf("%v, trailer %v, before it %s", a, a.Trailer, hints)
			}
			if !strings.Contains(hints, "103") && cl.Protocol != testcaddy.H3 { // whose client tells nothing of it
				t.Errorf("%s: no hints have come: the test tests nothing", mode)
			}
		}
	})
}

// securePinnedMode: the line of the page takes the choice of the mode from
// clients.
func securePinnedMode(t *testing.T) {
	line := pageLine(t, "request_header x-calinix-mode ")
	all := pods(t, "s1", "p1", "d1")
	s := serveBehind(t, line, single(all[:1])+dispatch(all[1:2], all[2:]))
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		req := cl.Request(t.Context(), t, http.MethodPost, chatPath, smuggled(`"kv_transfer_params":`+evil))
		req.Header["X-Calinix-Mode"] = []string{"single", "single"}
		if a := cl.Send(req); a.Status != 200 || a.Header.Get("X-Calinix-Mode") != "disaggregated" {
			t.Error(a)
		}
	})
	if all[0].Count() > 0 {
		t.Error("a client has chosen the mode")
	}
	wantClean(t, "pinned", all[1], all[2])
}

// secureH2CUpgrade: no pod is offered to go on in HTTP/2.
func secureH2CUpgrade(t *testing.T) {
	all := pods(t, "s1", "p1", "d1")
	s := serve(t, single(all[:1])+dispatch(all[1:2], all[2:]), testcaddy.Plain())
	for _, mode := range []string{"single", "dispatch"} {
		for _, upgrade := range []string{"h2c", "H2C", "websocket, h2c", "h2c\r\nUpgrade: websocket"} {
			for _, connection := range []string{"Upgrade, HTTP2-Settings", "Upgrade"} {
				all.Forget()
				got := raw(t, s, rawRequest(question, "x-calinix-mode: "+mode, "Upgrade: "+upgrade, "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA", "Connection: "+connection))
				if !strings.HasPrefix(got, "HTTP/1.1 200 ") || all.Total() == 0 {
					t.Fatalf("%s: %s", upgrade, got)
				}
				for _, q := range all.Received() {
					if text := strings.ToLower(q.Head); strings.Contains(text, "h2c") || strings.Contains(text, "http2-settings") || strings.Contains(text, "upgrade") {
						t.Errorf("%s: pod %s gets %s", upgrade, q.Pod, q.Head)
					}
				}
			}
		}
	}
}
