package calinix_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// legsOf are the sites on which an error of a leg's is shown: one pod that
// answers alone, and a decode pod behind a prefill pod that answers well.
type legsOf struct {
	name    string
	pod     *fakepod.Pod // the one that is to fail
	prefill *fakepod.Pod // of the decode site
	keys    string
}

func singleAndDecode(t *testing.T) []legsOf {
	t.Helper()
	all := pods(t, "s1", "p1", "d1")
	return []legsOf{
		{"single", all[0], nil, single(all[:1])},
		{"decode", all[2], all[1], dispatch(all[1:2], all[2:])},
	}
}

// TestErrorLost: a failed dial, or a connection lost before the answer, is a
// 502 if there is no other pod to try.
func TestErrorLost(t *testing.T) {
	for _, c := range singleAndDecode(t) {
		s := serve(t, c.keys)
		s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
			for name, fail := range map[string]func(){
				"refused":             func() { c.pod.Refuse() },
				"reset":               func() { c.pod.Set(fakepod.Reply{Cut: fakepod.Reset}) },
				"closed":              func() { c.pod.Set(fakepod.Reply{Cut: fakepod.Close}) },
				"reset in the body":   func() { c.pod.Set(fakepod.Unread{Bytes: 1000, Reply: fakepod.Reply{Cut: fakepod.Reset}}) },
				"no HTTP":             func() { c.pod.Set(fakepod.Reply{Raw: []byte("SSH-2.0-x\r\n"), Close: true}) },
				"half a status line":  func() { c.pod.Set(fakepod.Reply{Raw: []byte("HTTP/1.1 2"), Cut: fakepod.Close}) },
				"half of the headers": func() { c.pod.Set(fakepod.Reply{Raw: []byte("HTTP/1.1 200 OK\r\nContent-Le"), Cut: fakepod.Reset}) },
			} {
				fail()
				a := cl.Post(t, chatPath, chat(strings.Repeat("long ", 1<<12)))
				code := wantError(t, a, http.StatusBadGateway)
				if a.Header.Get("X-Calinix-Mode") == "" || !strings.Contains(string(a.Body), `\"`+c.pod.Name+`\"`) {
					t.Errorf("%s, %s: code %s: the error does not name the pod: %v", c.name, name, code, a)
				}
				c.pod.Clear()
				if err := c.pod.Listen(); err != nil {
					t.Fatal(err)
				}
				if a := cl.Post(t, chatPath, question); a.Status != 200 {
					t.Errorf("%s, %s: afterwards: %v", c.name, name, a)
				}
			}
		})
		s.waitIdle(t)
		s.waitCount(t, 3*7, "calinix_requests_total", "pod", c.pod.Name, "code", "502")
		s.Stop()
	}
}

// TestErrorOwnStatus: a pod's own 4xx and 5xx is passed on whole, also to a
// client that asked for a stream; of a prefill leg only the 4xx.
func TestErrorOwnStatus(t *testing.T) {
	all := pods(t, "s1", "p1", "d1")
	s := serve(t, single(all[:1])+dispatch(all[1:2], all[2:]))
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		for leg, p := range map[string]*fakepod.Pod{"single": all[0], "prefill": all[1], "decode": all[2]} {
			mode := map[bool]string{true: "single", false: "dispatch"}[leg == "single"]
			for _, status := range []int{400, 401, 404, 413, 422, 429, 499, 500, 501, 503, 504, 529} {
				if leg == "prefill" && status >= 500 {
					continue
				}
				body := fmt.Sprintf("<b>the pod's own %d</b>\x00\xff", status)
				p.Set(fakepod.Reply{Status: status, Body: []byte(body), Header: http.Header{
					"Content-Type": {"text/html; x=1"}, "Retry-After": {"17"}, "X-Ratelimit-Limit": {"5"}, "Set-Cookie": {"a=1", "b=2"},
				}})
				for _, stream := range []string{`"stream":false`, `"stream":true`} {
					a := cl.Post(t, chatPath, chat("status", stream), "x-calinix-mode", mode)
					h := a.Header
					if a.Err != nil || a.Status != status || string(a.Body) != body || h.Get("Content-Type") != "text/html; x=1" ||
						h.Get("Retry-After") != "17" || h.Get("X-Ratelimit-Limit") != "5" || !slices.Equal(h["Set-Cookie"], []string{"a=1", "b=2"}) ||
						a.ContentLength != int64(len(body)) || a.Pod() != p.Name {
						t.Errorf("%s, %d, %s: %v", leg, status, stream, a)
					}
					if h.Get("X-Calinix-Request-Id") == "" || leg == "prefill" && h.Get("X-Calinix-Decode-Pod-Id") != "" {
						t.Errorf("%s, %d: routing headers %v", leg, status, routing(t, h))
					}
				}
				if leg == "prefill" && all[2].Count() != 0 {
					t.Errorf("%d: the decode pod was asked", status)
				}
			}
			p.Clear()
			all.Forget()
		}
	})
	s.waitIdle(t, all)
	for _, want := range []struct{ role, pod string }{{"single", "s1"}, {"prefill", "p1"}, {"decode", "d1"}} {
		s.waitCount(t, 6, "calinix_requests_total", "role", want.role, "pod", want.pod, "code", "429")
	}
}

// TestErrorPrefill5xx: a prefill leg's 5xx becomes 503 if the last pod said so,
// else 502; the decode pod is not asked.
func TestErrorPrefill5xx(t *testing.T) {
	prefill, decode := pods(t, "p1", "p2"), pods(t, "d1")
	s := serve(t, dispatch(prefill, decode))
	cl := s.Client(t, testcaddy.H2)
	for _, c := range []struct{ first, last, want int }{
		{500, 500, 502}, {503, 500, 502}, {500, 503, 503}, {503, 503, 503}, {504, 504, 502}, {529, 503, 503}, {503, 529, 502},
	} {
		first := true
		reply := fakepod.Func(func(fakepod.Request) fakepod.Reply {
			status := c.last
			if first {
				status = c.first
			}
			first = false
			return fakepod.Reply{Status: status}
		})
		prefill.Set(reply)
		a := cl.Post(t, chatPath, question)
		if code := wantError(t, a, c.want); code != "prefill_failed" {
			t.Errorf("%d, then %d: code %q", c.first, c.last, code)
		}
		if c.want == http.StatusServiceUnavailable {
			wantRetryAfter(t, a)
		}
		if prefill.Total() != 2 || prefill[0].Count() != 1 || decode.Total() != 0 {
			t.Errorf("%d, then %d: prefill pods got %v, decode pods %v", c.first, c.last, prefill.Counts(), decode.Counts())
		}
		prefill.Forget()
	}
	s.waitIdle(t, prefill, decode)
}

// TestErrorTimeout: prefillTimeoutMs and responseHeaderTimeoutMs that have
// passed are a 504.
func TestErrorTimeout(t *testing.T) {
	const limit = 150 * time.Millisecond
	slow := fakepod.Reply{Silent: true}
	header := "transport http {\nresponse_header_timeout " + limit.String() + "\n}\n"
	all := pods(t, "s1", "p1", "d1")
	for _, c := range []struct {
		name, keys string
		pod        *fakepod.Pod
		least      time.Duration
		reply      fakepod.Reply
	}{
		{"single", header + single(all[:1]), all[0], limit, slow},
		{"decode", header + dispatch(all[1:2], all[2:]), all[2], limit, slow},
		{"prefill", header + dispatch(all[1:2], all[2:]), all[1], limit, slow},
		{"prefill_timeout", dispatch(all[1:2], all[2:], "prefill_timeout "+limit.String()), all[1], limit, slow},
		{"prefill_timeout in the body", dispatch(all[1:2], all[2:], "prefill_timeout "+limit.String()), all[1], limit, fakepod.Reply{FirstChunk: time.Minute}},
	} {
		s := serve(t, c.keys)
		all.Forget()
		s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
			c.pod.Set(c.reply)
			a := cl.Post(t, chatPath, question)
			if code := wantError(t, a, http.StatusGatewayTimeout); code != "pod_timed_out" {
				t.Errorf("%s: code %q", c.name, code)
			}
			if took := a.HeadersAt.Sub(a.Began); took < c.least {
				t.Errorf("%s: the answer came after %v", c.name, took)
			}
		})
		for n := range 3 {
			c.pod.WaitClosed(t, n+1)
		}
		if strings.HasPrefix(c.name, "prefill") && all[2].Count() != 0 {
			t.Errorf("%s: the decode pod was asked", c.name)
		}
		s.waitCount(t, 3, "calinix_requests_total", "pod", c.pod.Name, "code", "504")
		c.pod.Clear()
		s.waitIdle(t)
		s.Stop()
	}
}
