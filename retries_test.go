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

// inOrder are keys with which a leg tries its pods in the order in which they
// are listed, as long as none of them has more to do than the others.
const inOrder = "tie_break pod_id\nweights {\nsingle cache 0 load 1 sticky 0\nprefill cache 0 load 1 sticky 0\ndecode cache 0 load 1 sticky 0 locality 0\n}\n"

// retriedLegs are sites with the named pods, on which the pods of one kind of
// leg are tried in order.
func retriedLegs(t *testing.T, names ...string) []struct {
	name, keys string
	pods       fakepod.Pods
} {
	t.Helper()
	one, decode, prefill := pods(t, names...), pods(t, names...), pods(t, "p1", "p2")
	for _, p := range slices.Concat(one, decode) {
		p.SetHealth(fakepod.Reply{Close: true}) // no leg finds a connection to reuse
	}
	return []struct {
		name, keys string
		pods       fakepod.Pods
	}{
		{"single", inOrder + single(one), one},
		{"decode", inOrder + dispatch(prefill, decode), decode},
	}
}

// oversized is more than the kernel takes from a sender whose peer does not read.
var oversized = strings.Repeat("0123456789abcdef", 8<<20/16)

// TestRetryUnreachable: a failed dial is tried at another pod, with the whole
// body, and the answer names the pod that gave it.
func TestRetryUnreachable(t *testing.T) {
	for _, c := range retriedLegs(t, "a", "b") {
		s := serve(t, "retry_budget 1\n"+c.keys)
		c.pods[0].Refuse()
		s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
			body := chat(words(fmt.Sprint(c.name, cl.Protocol), 2000))
			a := cl.Post(t, chatPath, body)
			if a.Status != 200 || a.Pod() != "b" {
				t.Fatal(a)
			}
			for _, h := range []http.Header{a.Header, c.pods[1].Last(t).Header} {
				if got := h.Get("X-Calinix-Target-Pod-Id") + h.Get("X-Calinix-Decode-Pod-Id"); got != "b" {
					t.Errorf("%s: %q is named, want b", c.name, got)
				}
			}
			if got := string(c.pods[1].Last(t).Body); got != body {
				t.Errorf("%s: the second pod gets %d bytes, want %d", c.name, len(got), len(body))
			}
		})
		s.waitCount(t, 3, "calinix_retries_total", "reason", "unreachable")
		s.waitCount(t, 3, "calinix_requests_total", "role", c.name, "pod", "a", "code", "502")
		c.pods[1].Refuse()
		if a := s.Client(t, testcaddy.H2).Post(t, chatPath, question); wantError(t, a, http.StatusBadGateway) != "pod_unreachable" || !strings.Contains(string(a.Body), `\"b\"`) {
			t.Errorf("%s: when no pod is left: %v", c.name, a)
		}
		s.waitCount(t, 3, "calinix_requests_total", "role", c.name, "pod", "b", "code", "200")
		s.waitIdle(t, c.pods)
		s.Stop()
	}
}

// TestRetryLostWhileSending: a connection that is lost before the last byte of
// the body was written is tried at another pod.
func TestRetryLostWhileSending(t *testing.T) {
	for _, c := range retriedLegs(t, "a", "b") {
		s := serve(t, "retry_budget 1\n"+c.keys)
		cl := s.Client(t, testcaddy.H1)
		for n, cut := range []fakepod.Cut{fakepod.Reset, fakepod.Close} {
			c.pods[0].Set(fakepod.Unread{Bytes: 100_000, Reply: fakepod.Reply{Cut: cut}})
			a := cl.Post(t, "/v1/audio/transcriptions", oversized, "Content-Type", "application/octet-stream")
			if a.Status != 200 || a.Pod() != "b" || c.pods[0].Count() != n+1 || string(c.pods[1].Last(t).Body) != oversized {
				t.Errorf("%s, cut %d: %v", c.name, cut, a)
			}
			s.waitCount(t, float64(n+1), "calinix_retries_total", "reason", "lost_sending")
		}
		s.waitIdle(t, c.pods)
		s.Stop()
	}
}

// TestRetryLostWhileWaiting: a pod that has the whole body may have begun to
// work; and one that has begun to answer has. No other pod is asked.
func TestRetryLostWhileWaiting(t *testing.T) {
	for _, c := range retriedLegs(t, "a", "b") {
		s := serve(t, "retries 5\nretry_budget 1\nretry_status 502\n"+c.keys)
		cl := s.Client(t, testcaddy.H2)
		for _, reply := range []fakepod.Script{
			fakepod.Reply{Cut: fakepod.Reset},
			fakepod.Reply{Cut: fakepod.Close, Delay: 150 * time.Millisecond},
			fakepod.Reply{Raw: []byte("HTTP/1.1 103 Early Hints\r\n\r\n"), Cut: fakepod.Reset},
			fakepod.Reply{Raw: []byte("HTTP/1.1 200 O"), Cut: fakepod.Close},
		} {
			c.pods[0].Set(reply)
			wantError(t, cl.Post(t, chatPath, question), http.StatusBadGateway)
		}
		if c.pods[0].Count() != 4 || c.pods[1].Count() != 0 || s.count(t, "calinix_retries_total") != 0 {
			t.Errorf("%s: the pods got %v", c.name, c.pods.Counts())
		}
		s.waitIdle(t, c.pods)
		s.Stop()
	}
}

// TestRetryStatus: a status of retryStatus is tried at another pod, any other
// one is passed on; so is the last pod's.
func TestRetryStatus(t *testing.T) {
	for _, c := range retriedLegs(t, "a", "b") {
		s := serve(t, "retry_budget 1\nretry_status 429 503\n"+c.keys)
		s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
			for status, at := range map[int]string{429: "b", 503: "b", 500: "a", 502: "a", 404: "a"} {
				c.pods[0].Set(fakepod.Reply{Status: status})
				s.waitNone(t)
				body := chat(fmt.Sprint(cl.Protocol, status))
				a := cl.Post(t, chatPath, body)
				if want := map[string]int{"a": status, "b": 200}[at]; a.Status != want || a.Pod() != at || a.Err != nil {
					t.Errorf("%s, %d: %v", c.name, status, a)
				}
				if at == "b" && string(c.pods[1].Last(t).Body) != body {
					t.Errorf("%s, %d: the second pod gets %q", c.name, status, c.pods[1].Last(t).Body)
				}
			}
			s.waitNone(t)
			// What the first pod still says holds nobody up.
			c.pods[0].Set(fakepod.Reply{Status: 503, Body: make([]byte, 1000), Framing: fakepod.Chunked, LateEnd: time.Minute})
			if a := cl.Post(t, chatPath, question); a.Pod() != "b" || a.Ended.Sub(a.Began) > testcaddy.Patience {
				t.Errorf("%s: after an answer without end: %v", c.name, a)
			}
			c.pods[0].Set(fakepod.Reply{Status: 503, Body: []byte("a is full")})
			c.pods[1].Set(fakepod.Reply{Status: 429, Body: []byte("b is busy"), Header: http.Header{"Retry-After": {"7"}}})
			if a := cl.Post(t, chatPath, question); a.Status != 429 || string(a.Body) != "b is busy" || a.Header.Get("Retry-After") != "7" {
				t.Errorf("%s: when none is left: %v", c.name, a)
			}
			c.pods.Set(fakepod.Reply{})
		})
		s.waitCount(t, 3*1, "calinix_retries_total", "reason", "refused_4xx")
		s.waitCount(t, 3*3, "calinix_retries_total", "reason", "refused_5xx")
		s.waitIdle(t, c.pods)
		s.Stop()
	}
}

// TestRetryNeverTheSamePod: up to retries further pods are tried, each once.
func TestRetryNeverTheSamePod(t *testing.T) {
	for _, c := range retriedLegs(t, "a", "b", "c") {
		for retries, want := range []int{1, 2, 3, 3} {
			s := serve(t, fmt.Sprintf("retry_budget 1\nretry_status 500\nretries %d\n", retries)+c.keys)
			c.pods.Forget()
			c.pods.Set(fakepod.Reply{Status: 500})
			a := s.Client(t, testcaddy.H1).Post(t, chatPath, question)
			if a.Status != 500 || a.Pod() != c.pods[want-1].Name {
				t.Errorf("%s, retries %d: %v", c.name, retries, a)
			}
			for i, p := range c.pods {
				if n := p.Count(); n > 1 || (n == 1) != (i < want) {
					t.Errorf("%s, retries %d: the pods got %v", c.name, retries, c.pods.Counts())
				}
			}
			s.waitCount(t, float64(want-1), "calinix_retries_total")
			s.Stop()
		}
	}
}

// TestRetryBudget: retries are at most a share of the requests of the last 10 s,
// but three in that time always may be.
func TestRetryBudget(t *testing.T) {
	for _, c := range []struct {
		share   string
		retried []int // of 12 requests, counted from 1
	}{
		{"0", []int{1, 2, 3}},
		{"0.1", []int{1, 2, 3}},
		{"0.5", []int{1, 2, 3, 8, 10, 12}},
		{"1", []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}},
	} {
		ps := pods(t, "a", "b")
		s := serve(t, "retry_budget "+c.share+"\n"+inOrder+single(ps))
		ps[0].Refuse()
		cl := s.Client(t, testcaddy.H2)
		began := time.Now()
		for n := 1; n <= 12; n++ {
			want := http.StatusBadGateway
			if slices.Contains(c.retried, n) {
				want = http.StatusOK
			}
			if a := cl.Post(t, chatPath, chat(fmt.Sprint("request ", n))); a.Status != want && time.Since(began) < 9*time.Second {
				t.Errorf("share %s, request %d: want %d: %v", c.share, n, want, a)
			}
		}
		if time.Since(began) < 9*time.Second {
			s.waitCount(t, float64(len(c.retried)), "calinix_retries_total")
		}
		s.Stop()
	}
}

// TestRetryNoPodNoBudget: a retry for which there is no pod is none, and uses
// up nothing.
func TestRetryNoPodNoBudget(t *testing.T) {
	ps := pods(t, "a", "b")
	keys := func(more string) string {
		return "retry_budget 0\nhealth {\ninterval 1h\n}\n" + inOrder + "single {\n" + podList(ps[:1]) + podList(ps[1:], more) + "}"
	}
	s := serve(t, keys("draining"))
	ps[0].Refuse()
	cl := s.Client(t, testcaddy.H2)
	for range 6 {
		wantError(t, cl.Post(t, chatPath, question), http.StatusBadGateway)
	}
	s.waitCount(t, 0, "calinix_retries_total")
	s.reload(t, keys(""))
	for n := range 4 {
		if a := cl.Post(t, chatPath, chat(fmt.Sprint(n))); (a.Status == 200) != (n < 3) {
			t.Errorf("request %d, with 3 retries left: %v", n+1, a)
		}
	}
}
