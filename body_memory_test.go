package calinix_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// chunked posts a body whose length is not announced.
func chunked(t testing.TB, cl *testcaddy.Client, body io.Reader, headers ...string) *testcaddy.Answer {
	t.Helper()
	req := cl.Request(t.Context(), t, http.MethodPost, "/v1/completions", "x", headers...)
	req.Body, req.ContentLength = io.NopCloser(body), -1
	req.GetBody = nil
	return cl.Send(req)
}

// TestBodyMemory: bodies that are held together may take so much, whether or
// not their length is announced, also while they arrive, and of compressed ones
// also what comes out. Beyond it a request is refused, and told to come again.
func TestBodyMemory(t *testing.T) {
	const limit = 100_000
	ps := pods(t, "a")
	a := ps[0]
	s := serve(t, fmt.Sprintf("body_memory_bytes %d\nmax_body_bytes 1MB\n", limit)+single(ps))
	body := func(n int) string { return completion(strings.Repeat("x", n-len(completion("")))) }
	zip := func(text string) string {
		var out bytes.Buffer
		z := gzip.NewWriter(&out)
		_, _ = z.Write([]byte(text))
		_ = z.Close()
		return out.String()
	}
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		send := map[string]func(n int) *testcaddy.Answer{
			"announced": func(n int) *testcaddy.Answer { return cl.Post(t, "/v1/completions", body(n)) },
			"chunked":   func(n int) *testcaddy.Answer { return chunked(t, cl, strings.NewReader(body(n))) },
			"gzip": func(n int) *testcaddy.Answer {
				packed := zip(body(n))
				return cl.Post(t, "/v1/completions", zip(body(n-len(packed))), "Content-Encoding", "gzip")
			},
		}
		for name, post := range send {
			t.Run(name, func(t *testing.T) {
				refused := func(what string, got *testcaddy.Answer) {
					t.Helper()
					if code := wantError(t, got, http.StatusServiceUnavailable); code != "no_memory_for_body" || got.Header.Get("Retry-After") == "" {
						t.Errorf("%s: %v", what, got)
					}
				}
				if got := post(limit - 400); got.Status != 200 {
					t.Errorf("a body of nearly the limit alone: %v", got)
				}
				s.waitNone(t)
				refused("more than the limit", post(limit+1000))
				// one is held by its pod
				hold := make(chan struct{})
				a.Next(fakepod.Reply{Hold: hold})
				n := a.Count()
				done := make(chan *testcaddy.Answer)
				go func() { done <- post(60_000) }()
				a.WaitRequests(t, n+1)
				refused("a second large one", post(60_000))
				if got := post(30_000); got.Status != 200 {
					t.Errorf("a second small one: %v", got)
				}
				close(hold)
				if got := <-done; got.Status != 200 {
					t.Error(got)
				}
				s.waitNone(t)
				if got := post(60_000); got.Status != 200 {
					t.Errorf("after the first has ended: %v", got)
				}
				s.waitNone(t)
			})
		}
		t.Run("arriving", func(t *testing.T) {
			whole := body(90_000)
			for try := 0; ; try++ {
				in, out := io.Pipe()
				done := make(chan *testcaddy.Answer)
				go func() { done <- chunked(t, cl, in) }()
				if _, err := io.WriteString(out, whole[:80_000]); err != nil {
					t.Fatal(err)
				}
				// which may still be on its way, and then is late
				if got := cl.Post(t, "/v1/completions", body(60_000)); got.Status == http.StatusOK && try < 100 {
					out.CloseWithError(io.ErrClosedPipe)
					<-done
					continue
				} else if got.Status != http.StatusServiceUnavailable {
					t.Errorf("a second large one: %v", got)
				}
				if _, err := io.WriteString(out, whole[80_000:]); err != nil {
					t.Fatal(err)
				}
				out.Close()
				if got := <-done; got.Status != 200 || string(a.Last(t).Body) != whole {
					t.Errorf("the body that arrived slowly: %v", got)
				}
				break
			}
			s.waitNone(t)
			if got := cl.Post(t, "/v1/completions", body(99_000)); got.Status != 200 {
				t.Errorf("afterwards: %v", got)
			}
			s.waitNone(t)
		})
	})
}

// TestManySmallChunkedBodies: short bodies do not take more than they need.
func TestManySmallChunkedBodies(t *testing.T) {
	ps := pods(t, "a")
	a := ps[0]
	hold := make(chan struct{})
	a.Set(fakepod.Reply{Hold: hold})
	s := serve(t, "body_memory_bytes 2000\nmax_body_bytes 1000\n"+single(ps), testcaddy.Plain())
	cl := s.Client(t, testcaddy.H1)
	done := make(chan *testcaddy.Answer)
	body := completion(strings.Repeat("x", 100-len(completion(""))))
	for n := range 18 {
		go func() { done <- chunked(t, cl, strings.NewReader(body)) }()
		a.WaitRequests(t, n+1)
	}
	close(hold)
	for range 18 {
		if got := <-done; got.Status != 200 {
			t.Errorf("100 bytes of 2000: %v", got)
		}
	}
}
