package cases_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// TestBR01: a reset in mid-stream must not look like success.
func TestBR01(t *testing.T) {
	c := begin(t)
	s := serveOnly(t, "a", ab)
	a, b := s.pods.Pod("a"), s.pods.Pod("b")
	cut := c.One(t, "cut")
	if warm := s.Client(t, testcaddy.H1).SendCase(t, cut); warm.Pod() != "a" {
		t.Fatal(warm) // a knows the prompt from now on
	}
	s.all(t)
	chunks := make([]string, 6)
	for k := range chunks {
		chunks[k] = fmt.Sprintf("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"%d \"}}]}\n\n", k)
	}
	a.Set(fakepod.Reply{Events: chunks, Cut: fakepod.Reset, At: fakepod.AfterChunks(3)})
	s.pods.Forget()
	cuts := 0.0
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		s.pods.Forget()
		mark := s.Log.Mark()
		stream := cl.StreamCase(t, cut)
		events, err := stream.All()
		cuts++
		var got strings.Builder
		for _, e := range events {
			got.WriteString(e.Raw)
		}
		c.expect(t, 1, "the client receives exactly the 3 chunks", func(t *testing.T) {
			sent := strings.Join(chunks[:3], "")
			if cl.Protocol == testcaddy.H3 { // the reset of a stream overtakes data on its way there
				if !strings.HasPrefix(sent, got.String()+stream.Rest) {
					t.Errorf("got %q and %q", got.String(), stream.Rest)
				}
			} else if got.String() != sent || stream.Rest != "" {
				t.Errorf("got %q and %q", got.String(), stream.Rest)
			}
		})
		c.expect(t, 2, "then the client can tell", func(t *testing.T) {
			if err == nil {
				t.Errorf("the answer ends as if it were whole: %q", got.String())
			}
		})
		c.expect(t, 3, "no finish_reason and no [DONE]", func(t *testing.T) {
			if text := got.String() + stream.Rest; strings.Contains(text, "finish_reason") || strings.Contains(text, "[DONE]") {
				t.Errorf("got %q", text)
			}
		})
		c.expect(t, 4, "pod b receives no copy", func(t *testing.T) {
			if a.Count() != 1 || b.Count() != 0 {
				t.Errorf("received: %v", s.pods.Counts())
			}
			s.wantCount(t, 0, "calinix_retries_total")
		})
		c.expect(t, 5, "the failure is logged and counted", func(t *testing.T) {
			s.Log.Wait(t, mark, "the failed leg of pod a", func(e testcaddy.Entry) bool {
				return e.Level == "warn" && e.Has("pod", "a") && e.Has("outcome", "cut")
			})
			s.Log.Wait(t, mark, "a line of the access log", func(e testcaddy.Entry) bool {
				return e.Has("calinix_outcome", "cut") && e.Has("calinix_pod", "a")
			})
			s.waitCount(t, cuts, "calinix_requests_total", "pod", "a", "code", "cut")
		})
	})
}

// TestBR11: an upstream error on a streaming request keeps its status.
func TestBR11(t *testing.T) {
	c := begin(t)
	s := serveSingle(t, ab)
	s.all(t)
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		for r := range c.Requests() {
			var status int
			if _, err := fmt.Sscanf(r.Name, "e%d", &status); err != nil {
				t.Fatal(err)
			}
			want := fakepod.Reply{
				Status: status,
				Body:   fmt.Appendf(nil, `{"error": {"message":"scripted %d: ü","type":"x","code":%d},"n":1.0 }`, status, status),
				Header: http.Header{
					"Content-Type": {"application/json; charset=utf-8"}, "Retry-After": {"30"},
					"X-Ratelimit-Limit-Requests": {"60"}, "X-Ratelimit-Remaining-Tokens": {"0"}, "X-Ratelimit-Reset-Tokens": {"6m0s"},
				},
			}
			s.pods.Set(want)
			a := cl.SendCase(t, r)
			c.expect(t, 1, "status, Content-Type, body bytes", func(t *testing.T) {
				if a.Err != nil || a.Status != status || !bytes.Equal(a.Body, want.Body) {
					t.Errorf("%s: %v", r.Name, a)
				}
				for name, v := range want.Header {
					if got := a.Header.Values(name); len(got) != 1 || got[0] != v[0] {
						t.Errorf("%s: %s is %q, want %q", r.Name, name, got, v)
					}
				}
			})
			c.expect(t, 2, "nothing is answered 200", func(t *testing.T) {
				if a.Status < 400 || strings.Contains(a.Header.Get("Content-Type"), "event-stream") {
					t.Errorf("%s: %v", r.Name, a)
				}
			})
			c.expect(t, 3, "no HTML error page", func(t *testing.T) {
				if strings.Contains(strings.ToLower(string(a.Body)), "<html") || strings.Contains(a.Header.Get("Content-Type"), "html") {
					t.Errorf("%s: %v", r.Name, a)
				}
			})
		}
	})
}

// slowly is one stream of BR-25 as its client saw it.
type slowly struct {
	name      string // of the request and the site
	encoded   bool   // gzip was asked for and is expected
	headers   time.Duration
	events    []testcaddy.Event
	err       error
	requestID string
}

// TestBR25: tokens arrive when they are made.
func TestBR25(t *testing.T) {
	c := begin(t)
	ps := pods(t, ab[:1])
	a := ps.Pod("a")
	s := newSite(ps)
	keys := probes + single(ps)
	s.run(t, "@encodes header X-Site encodes\nhandle @encodes {\nencode gzip zstd\n"+s.calinix(keys)+"}\nhandle {\n"+s.calinix(keys)+"}\n")
	s.all(t)
	script := fakepod.Reply{FirstChunk: time.Second, Chunks: 11, ChunkBytes: 40, Gap: 200 * time.Millisecond}
	anyType := script
	anyType.Header = http.Header{"Content-Type": {"application/x-ndjson"}}
	a.Set(script)
	a.When(func(r fakepod.Request) bool { return r.Header.Get("X-Type") == "ndjson" }, anyType)

	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		a.Forget()
		var wg sync.WaitGroup
		var all []*slowly
		for r := range c.Requests() {
			for _, where := range []string{"plain", "encodes"} {
				got := &slowly{name: r.Name + " on the site that " + where, requestID: r.Name + "-" + where + "-" + cl.Protocol.String()}
				got.encoded = where == "encodes" && r.Headers["Accept-Encoding"] == "gzip"
				all = append(all, got)
				req, err := r.HTTP(t.Context(), cl.Base)
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("X-Site", where)
				req.Header.Set("X-Calinix-Request-Id", got.requestID)
				if r.Name == "sse-any-type" {
					req.Header.Set("X-Type", "ndjson")
				}
				wg.Go(func() { got.read(cl, req) })
			}
		}
		wg.Wait()
		sent := map[string]fakepod.Request{}
		for _, q := range a.Requests() {
			sent[q.Header.Get("X-Calinix-Request-Id")] = q
		}
		for _, got := range all {
			if got.err != nil {
				t.Errorf("%s: %v", got.name, got.err)
				continue
			}
			q := sent[got.requestID]
			if !strings.Contains(got.name, "encodes") {
				c.expect(t, 1, "client sees response headers before 300 ms", func(t *testing.T) {
					if got.headers >= 300*time.Millisecond {
						t.Errorf("%s: headers after %v", got.name, got.headers)
					}
				})
			}
			c.expect(t, 3, "bytes and order are as sent", func(t *testing.T) {
				if len(got.events) != 13 || len(q.Sent) != 13 { // 11 chunks, the finish, [DONE]
					t.Fatalf("%s: %d events of %d", got.name, len(got.events), len(q.Sent))
				}
				for k, e := range got.events[:11] {
					if want := fmt.Sprintf(`data: {"k":%d,`, k+1); len(e.Raw) != 40 || !strings.HasPrefix(e.Raw, want) {
						t.Errorf("%s: event %d is %q", got.name, k+1, e.Raw)
					}
				}
				if got.events[12].Raw != "data: [DONE]\n\n" {
					t.Errorf("%s: ends with %q", got.name, got.events[12].Raw)
				}
			})
			c.expect(t, 2, "each chunk reaches the client within 150 ms", func(t *testing.T) {
				for k, e := range got.events {
					if took := e.At.Sub(q.Sent[k]); took >= 150*time.Millisecond {
						t.Errorf("%s: event %d took %v", got.name, k+1, took)
					}
				}
			})
		}
	})
}

// read reads the stream to its end.
func (got *slowly) read(cl *testcaddy.Client, req *http.Request) {
	began := time.Now()
	resp, err := cl.HTTP.Do(req)
	if err != nil {
		got.err = err
		return
	}
	defer resp.Body.Close()
	got.headers = time.Since(began)
	var body io.Reader = resp.Body
	if encoding := resp.Header.Get("Content-Encoding"); (encoding == "gzip") != got.encoded {
		got.err = fmt.Errorf("Content-Encoding is %q", encoding)
		return
	}
	if got.encoded {
		if body, err = gzip.NewReader(body); err != nil {
			got.err = err
			return
		}
	}
	got.events, got.err = testcaddy.NewStream(body).All()
}
