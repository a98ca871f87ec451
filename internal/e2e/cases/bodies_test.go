package cases_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// TestBR07: long prompts around every well-known buffer size.
func TestBR07(t *testing.T) {
	c := begin(t)
	s := serveSingle(t, abcd)
	s.all(t)
	cl := s.Client(t, testcaddy.H1)
	sizes := cl.SendCases(t, c.Requests("sizes"))
	twins := cl.SendCases(t, c.Requests("1MiB-twins"))
	c.expect(t, 1, "every size is answered 200", func(t *testing.T) {
		wantStatus(t, 200, sizes...)
		s.wantBytes(t, append(sizes, twins...)...)
	})
	c.expect(t, 2, "the 4 '1MiB-twins' reach one and the same pod", func(t *testing.T) {
		wantStatus(t, 200, twins...)
		if used := testcaddy.Pods(twins); len(twins) != 4 || len(used) != 1 {
			t.Errorf("answered by %v", used)
		}
	})
	c.expect(t, 3, "a 10 MiB body adds less than 1 s", func(t *testing.T) {
		limit := time.Second
		if testcaddy.RaceEnabled {
			limit *= 10 // what the race detector makes of a scan of 10 MiB
		}
		big := sizes[len(sizes)-1]
		if len(big.Request.Body) < 10<<20 {
			t.Fatalf("the last size is %d", len(big.Request.Body))
		}
		direct := testcaddy.NewClient(t, testcaddy.H1, s.pods[0].URL).SendCase(t, big.Request)
		if direct.Status != 200 {
			t.Fatal(direct)
		}
		through, without := big.Ended.Sub(big.Began), direct.Ended.Sub(direct.Began)
		t.Logf("%v through the gateway, %v without", through, without)
		if through-without > limit {
			t.Errorf("%v through the gateway, %v without", through, without)
		}
	})
}

// TestBR26: routing headers from outside are not trusted.
func TestBR26(t *testing.T) {
	c := begin(t)
	s := serveSingle(t, abcd)
	decoy := fakepod.New(t, fakepod.Options{Name: "decoy"})
	s.all(t)
	cl := s.Client(t, testcaddy.H1)
	forged := c.Named(t, "forged")
	expected := s.pick(t, forged[0]) // as without the headers
	var sent []testcaddy.Sent
	for _, r := range forged {
		for name, v := range r.Headers {
			r.Headers[name] = strings.ReplaceAll(v, "127.0.0.1:DECOY", decoy.Addr)
		}
		sent = append(sent, cl.SendCases(t, one(r))...)
	}
	wantStatus(t, 200, sent...)
	c.expect(t, 1, "the decoy sees no connection", func(t *testing.T) {
		if conns := decoy.Conns(); len(conns) != 0 {
			t.Errorf("the decoy saw %d connections", len(conns))
		}
	})
	c.expect(t, 2, "the 20 requests are placed as without the headers", func(t *testing.T) {
		wantPod(t, expected.Name, sent...) // one prompt, one after another: one pod
		if n := s.pods.Pod("b").Count(); len(sent) != 20 || n == 20 {
			t.Errorf("%d were sent, pod b received %d", len(sent), n)
		}
	})
	c.expect(t, 3, "each pod sees at most one X-Calinix-Target-Pod-Id", func(t *testing.T) {
		for _, q := range s.pods.Received() {
			if got := q.Header.Values("X-Calinix-Target-Pod-Id"); !slices.Equal(got, []string{q.Pod}) {
				t.Errorf("pod %s sees %q", q.Pod, got)
			}
			if strings.Contains(q.Head, "decoy") || len(q.Header.Values("X-Prefiller-Host-Port")) > 0 {
				t.Errorf("pod %s sees %s", q.Pod, q.Head)
			}
		}
	})
	c.expect(t, 4, "the mode cannot be changed by a client", func(t *testing.T) {
		for _, a := range sent {
			if got := a.Header.Get("X-Calinix-Mode"); got != "single" { // there are no other pods
				t.Errorf("the mode was %q", got)
			}
		}
		s.wantCount(t, 20, "calinix_requests_total", "mode", "single")
		s.wantCount(t, 20, "calinix_requests_total")
	})
	c.expect(t, 5, "response headers that report pod ids", func(t *testing.T) {
		for _, a := range sent {
			for name, values := range a.Answer.Header {
				if strings.HasPrefix(name, "X-Calinix-") && strings.HasSuffix(name, "-Pod-Id") && !slices.Equal(values, []string{a.Pod()}) {
					t.Errorf("%s is %q, pod %s answered", name, values, a.Pod())
				}
			}
		}
	})
}

// TestBR41: client headers reach the pod.
func TestBR41(t *testing.T) {
	c := begin(t)
	s := serveSingle(t, ab)
	s.all(t)
	ask := c.One(t, "ask")
	hop := map[string]bool{"Connection": true, "X-Hop": true}
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		for _, pod := range s.pods { // each in turn: what is said holds for all
			s.only(t, pod.Name)
			s.pods.Forget()
			r := ask
			r.Chunked = true // the client's framing is its own
			req, err := r.HTTP(t.Context(), cl.Base)
			if err != nil {
				t.Fatal(err)
			}
			if cl.Protocol == testcaddy.H1 {
				req.Header.Set("Keep-Alive", "timeout=5")
				req.Header.Set("Te", "deflate")
			} else { // there is no such header
				req.Header.Del("Connection")
				req.Header.Del("X-Hop")
			}
			if a := cl.Send(req); a.Status != 200 {
				t.Fatal(a)
			}
			q := pod.Last(t)
			c.expect(t, 1, "all end-to-end headers arrive", func(t *testing.T) {
				for name, v := range ask.Headers {
					if got := q.Header.Values(name); !hop[http.CanonicalHeaderKey(name)] && !slices.Equal(got, []string{v}) {
						t.Errorf("%s is %q, want %q", name, got, v)
					}
				}
			})
			c.expect(t, 2, "Connection-listed X-Hop, Keep-Alive", func(t *testing.T) {
				for _, name := range []string{"Connection", "X-Hop", "Keep-Alive", "Te", "Transfer-Encoding"} {
					if got := q.Header.Values(name); len(got) > 0 {
						t.Errorf("%s: %q has arrived", name, got)
					}
				}
				if len(q.TransferEncoding) > 0 || q.ContentLength != int64(len(ask.Body)) {
					t.Errorf("Transfer-Encoding %q, Content-Length %d", q.TransferEncoding, q.ContentLength)
				}
			})
			c.expect(t, 3, "X-Forwarded-For holds the client's address", func(t *testing.T) {
				if got := q.Header.Values("X-Forwarded-For"); !slices.Equal(got, []string{"127.0.0.1"}) && !slices.Equal(got, []string{"::1"}) {
					t.Errorf("X-Forwarded-For is %q", got)
				}
			})
			c.expect(t, 4, "Host is the pod's host:port or the client's", func(t *testing.T) {
				if want := strings.TrimPrefix(cl.Base, "https://"); q.Host != want { // the client's, for plain HTTP
					t.Errorf("Host is %q, want %q", q.Host, want)
				}
			})
		}
	})
}

// TestBR53: multipart uploads and unknown paths pass through.
func TestBR53(t *testing.T) {
	c := begin(t)
	s := serveSingle(t, ab)
	for _, p := range s.pods {
		p.When(func(r fakepod.Request) bool { return strings.HasSuffix(string(r.Body), "[") }, fakepod.Reply{Status: 400, Body: []byte(`{"error":"the pod's own"}`)})
	}
	s.all(t)
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		s.pods.Forget()
		sent := cl.SendCases(t, c.Requests("audio", "tokenize", "put"))
		for range 5 {
			sent = append(sent, cl.SendCases(t, c.Requests("anthropic"))...)
		}
		c.expect(t, 1, "audio, tokenize, put, anthropic: 200 from a pod", func(t *testing.T) {
			wantStatus(t, 200, sent...)
			s.wantBytes(t, sent...)
			bySum := map[string]fakepod.Request{}
			for _, q := range s.pods.Received() {
				bySum[q.SHA256] = q
			}
			for _, r := range sent {
				if q := bySum[sum(r.Request.Body)]; q.Target != r.Path || q.Method != r.Method || q.Header.Get("Content-Type") != r.Headers["Content-Type"] {
					t.Errorf("%s has become %v, %s", r.Name, q, q.Header)
				}
			}
		})
		c.expect(t, 2, "not-json: the gateway either passes it on", func(t *testing.T) {
			for range 4 { // more than one failure takes a pod down
				a := cl.SendCase(t, c.One(t, "not-json"))
				if a.Status != 400 || string(a.Body) != `{"error":"the pod's own"}` {
					t.Errorf("got %v", a)
				}
			}
			s.wantUp(t, ab...)
			s.wantCount(t, 0, "calinix_requests_total", "code", "502")
		})
		c.expect(t, 3, "/v1/messages with the same long system part", func(t *testing.T) {
			anthropic := sent[len(sent)-5:]
			if used := testcaddy.Pods(anthropic); len(used) != 1 {
				t.Errorf("answered by %v", used)
			}
		})
	})
}
