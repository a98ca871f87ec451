package fakepod_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/fakepod"
)

func TestOKNamesThePod(t *testing.T) {
	p := fakepod.New(t, fakepod.Options{Name: "a"})
	c := client(t)
	for _, tc := range []struct{ path, want string }{
		{"/v1/chat/completions", `"content":"pod a answers"`},
		{"/v1/completions", `"text":"pod a answers"`},
		{"/v1/embeddings", `"embedding":[0.25,-0.5,0.125]`},
		{"/v1/responses", `"text":"pod a answers"`},
		{"/v1/messages", `"text":"pod a answers"`},
		{"/v1/models", `"acme-chat-1"`},
		{"/any/other", `"path":"/any/other"`},
	} {
		a := send(t, c, p.URL+tc.path, `{"model":"m"}`)
		if a.err != nil || a.status != 200 || a.header.Get("Content-Type") != "application/json" || a.header.Get("X-Fake-Pod") != "a" {
			t.Errorf("%s: %+v", tc.path, a)
		}
		var m map[string]any
		if err := json.Unmarshal([]byte(a.body), &m); err != nil || m["pod"] != "a" || !strings.Contains(a.body, tc.want) {
			t.Errorf("%s: body %s (%v), want pod a and %s", tc.path, a.body, err, tc.want)
		}
		if a.header.Get("Content-Length") != fmt.Sprint(len(a.body)) {
			t.Errorf("%s: Content-Length %q of %d bytes", tc.path, a.header.Get("Content-Length"), len(a.body))
		}
	}
	if s := get(t, c, p.URL+"/health"); s != 200 {
		t.Errorf("health %d", s)
	}
	if n := p.Count(); n != 7 {
		t.Errorf("%d requests, want 7: probes do not count", n)
	}
	if n := len(p.Probes()); n != 1 {
		t.Errorf("%d probes, want 1", n)
	}
}

// events splits a stream into its events.
func events(body string) []string {
	all := strings.SplitAfter(body, "\n\n")
	return all[:len(all)-1]
}

func TestOKStream(t *testing.T) {
	p := fakepod.New(t, fakepod.Options{Name: "a"})
	a := send(t, client(t), p.URL+chat, `{"model":"m","stream":true}`)
	if a.err != nil || a.status != 200 || !strings.HasPrefix(a.header.Get("Content-Type"), "text/event-stream") {
		t.Fatalf("%+v", a)
	}
	es := events(a.body)
	if len(es) != 7 {
		t.Fatalf("%d events, want 5 chunks, a finish chunk and [DONE]:\n%s", len(es), a.body)
	}
	for k, e := range es[:5] {
		if want := fmt.Sprintf(`"content":"a%d "`, k+1); !strings.Contains(e, want) || !strings.Contains(e, `"finish_reason":null`) {
			t.Errorf("event %d is %s, want %s", k, e, want)
		}
	}
	if !strings.Contains(es[5], `"finish_reason":"stop"`) || es[6] != "data: [DONE]\n\n" {
		t.Errorf("the end is %s%s", es[5], es[6])
	}
	q := p.WaitEnded(t, 1)
	if q.End != fakepod.Whole || len(q.Sent) != 7 || q.Status != 200 {
		t.Fatalf("record %v, %d pieces", q, len(q.Sent))
	}
	for k := 1; k < 6; k++ {
		if gap := q.Sent[k].Sub(q.Sent[k-1]); gap < 20*time.Millisecond {
			t.Errorf("gap %d is %v, want at least 20 ms", k, gap)
		}
	}
	// the usage comes only if asked for
	if strings.Contains(a.body, `"usage"`) {
		t.Error("usage came without being asked for")
	}
	p.Set(fakepod.Reply{Gap: fakepod.NoGap, CachedTokens: 48})
	a = send(t, client(t), p.URL+chat, `{"stream":true,"stream_options":{"include_usage":true}}`)
	if es = events(a.body); len(es) != 8 || !strings.Contains(es[6], `"choices":[]`) || !strings.Contains(es[6], `"cached_tokens":48`) {
		t.Errorf("with usage:\n%s", a.body)
	}
	// the stream is the request's wish, unless the script says otherwise
	p.Set(fakepod.Reply{Stream: fakepod.Never})
	if a = send(t, client(t), p.URL+chat, `{"stream":true}`); !strings.HasPrefix(a.body, "{") {
		t.Errorf("Never: %s", a.body)
	}
	p.Set(fakepod.Reply{Stream: fakepod.Always, Gap: fakepod.NoGap, Chunks: fakepod.NoChunks})
	if a = send(t, client(t), p.URL+"/v1/completions", `{}`); len(events(a.body)) != 2 || !strings.Contains(a.body, "text_completion") {
		t.Errorf("Always, NoChunks: %s", a.body)
	}
}

func TestStreamShape(t *testing.T) {
	p := fakepod.New(t, fakepod.Options{Name: "a"})
	c := client(t)
	for _, size := range []int{40, 250, 4000} {
		p.Set(fakepod.Reply{Chunks: 10, ChunkBytes: size, Gap: fakepod.NoGap})
		es := events(send(t, c, p.URL+chat, `{"stream":true}`).body)
		if len(es) != 12 {
			t.Fatalf("%d events", len(es))
		}
		for k, e := range es[:10] {
			if len(e) != size || !json.Valid([]byte(strings.TrimPrefix(strings.TrimSpace(e), "data: "))) {
				t.Errorf("chunk %d has %d bytes, want %d: %s", k, len(e), size, e)
			}
		}
	}
	want := []string{": comment\n\n", "event: x\ndata: 1\n\n"}
	p.Set(fakepod.Reply{Events: want, Gap: fakepod.NoGap})
	if a := send(t, c, p.URL+chat, `{}`); a.body != strings.Join(want, "") {
		t.Errorf("events %q, want %q", a.body, want)
	}
	p.Forget()
	p.Set(fakepod.Reply{
		Chunks: 3, Gap: fakepod.NoGap, FirstChunk: 30 * time.Millisecond, Pause: 60 * time.Millisecond, PauseAfter: 2,
		LateEnd: 40 * time.Millisecond,
	})
	if a := send(t, c, p.URL+chat, `{"stream":true}`); a.err != nil {
		t.Fatal(a.err)
	}
	q := p.WaitEnded(t, 1)
	for _, g := range []struct {
		what string
		got  time.Duration
		want time.Duration
	}{
		{"from headers to the first chunk", q.Sent[0].Sub(q.FirstByte), 30 * time.Millisecond},
		{"pause after two chunks", q.Sent[2].Sub(q.Sent[1]), 60 * time.Millisecond},
		{"late end", q.Ended.Sub(q.Sent[len(q.Sent)-1]), 40 * time.Millisecond},
	} {
		if g.got < g.want {
			t.Errorf("%s: %v, want at least %v", g.what, g.got, g.want)
		}
	}
}

func TestFixedStatus(t *testing.T) {
	p := fakepod.New(t, fakepod.Options{Name: "a"})
	c := client(t)
	p.Set(fakepod.Reply{
		Status: 429, Body: []byte(`{"error":{"message":"slow down"}}`),
		Header: http.Header{"Retry-After": {"30"}, "X-Ratelimit-Remaining": {"0"}, "Content-Type": {"application/problem+json"}},
	})
	a := send(t, c, p.URL+chat, `{"stream":true}`)
	if a.status != 429 || a.body != `{"error":{"message":"slow down"}}` || a.header.Get("Retry-After") != "30" ||
		a.header.Get("X-Ratelimit-Remaining") != "0" || a.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%+v", a)
	}
	p.Set(fakepod.Reply{Status: 503})
	a = send(t, c, p.URL+chat, `{"stream":true}`)
	if a.status != 503 || !strings.Contains(a.body, `"message":"pod a answers Service Unavailable"`) || !strings.Contains(a.body, `"code":503`) {
		t.Errorf("%+v", a)
	}
	p.Set(fakepod.Reply{Status: 204})
	if a = send(t, c, p.URL+chat, `{}`); a.status != 204 || a.err != nil || a.body != "" {
		t.Errorf("%+v", a)
	}
	if a = send(t, c, p.URL+chat, `{}`); a.status != 204 || p.Last(t).OnConn != 4 {
		t.Errorf("the connection did not survive an answer without a body: %+v, %v", a, p.Last(t))
	}
}

func TestRecord(t *testing.T) {
	p := fakepod.New(t, fakepod.Options{Name: "a"})
	c := client(t)
	before := time.Now()
	body := strings.Repeat("x", 70_000)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, p.URL+"/some/path%20x?q=1&q=2", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "llm.example.test"
	req.Header["X-Custom"] = []string{"a, b", "c"}
	if a := do(c, req); a.status != 200 {
		t.Fatalf("%+v", a)
	}
	q := p.WaitEnded(t, 1)
	digest := sha256.Sum256([]byte(body))
	switch {
	case q.Pod != "a" || q.N != 1 || q.Conn != 1 || q.OnConn != 1 || q.Probe:
		t.Errorf("place %+v", q)
	case q.Method != "PUT" || q.Target != "/some/path%20x?q=1&q=2" || q.Path != "/some/path x" || q.Proto != "HTTP/1.1":
		t.Errorf("request line %+v", q)
	case q.Host != "llm.example.test" || !slices.Equal(q.Header["X-Custom"], []string{"a, b", "c"}) || q.Header["Host"] != nil:
		t.Errorf("headers %v, host %s", q.Header, q.Host)
	case q.ContentLength != 70_000 || q.Header.Get("Content-Length") != "70000" || q.TransferEncoding != nil:
		t.Errorf("framing %d %v", q.ContentLength, q.TransferEncoding)
	case string(q.Body) != body || q.SHA256 != hex.EncodeToString(digest[:]) || !q.BodyRead || q.BodyErr != nil:
		t.Errorf("body of %d bytes, %s, %v", len(q.Body), q.SHA256, q.BodyErr)
	case !strings.HasPrefix(q.Head, "PUT /some/path%20x?q=1&q=2 HTTP/1.1\r\nHost: llm.example.test\r\n") || !strings.HasSuffix(q.Head, "\r\n\r\n"):
		t.Errorf("head %q", q.Head)
	case q.Time.Before(before) || q.BodyDone.Before(q.Time) || q.FirstByte.Before(q.BodyDone) || q.Ended.Before(q.FirstByte):
		t.Errorf("times %v %v %v %v", q.Time, q.BodyDone, q.FirstByte, q.Ended)
	case q.ClosedEarly || q.End != fakepod.Whole || q.Remote == "":
		t.Errorf("end %v", q)
	}
	// a body of unknown length, with a trailer, on the same connection
	req, err = http.NewRequestWithContext(t.Context(), http.MethodPost, p.URL+"/x", io.NopCloser(strings.NewReader("hello")))
	if err != nil {
		t.Fatal(err)
	}
	req.Trailer = http.Header{"X-Sum": {"1"}}
	if a := do(c, req); a.status != 200 {
		t.Fatalf("%+v", a)
	}
	q = p.WaitEnded(t, 2)
	if q.ContentLength != -1 || !slices.Equal(q.TransferEncoding, []string{"chunked"}) || string(q.Body) != "hello" ||
		q.Trailer.Get("X-Sum") != "1" || q.Conn != 1 || q.OnConn != 2 {
		t.Errorf("chunked: %+v", q)
	}
	if !strings.Contains(q.Head, "Transfer-Encoding: chunked\r\n") {
		t.Errorf("head %q", q.Head)
	}
	if cs := p.Conns(); len(cs) != 1 || cs[0].Requests != 2 || !cs[0].Closed.IsZero() {
		t.Errorf("connections %+v", cs)
	}
	p.Forget()
	if p.Count() != 0 || len(p.Requests()) != 0 {
		t.Error("Forget left records")
	}
	if send(t, c, p.URL+"/x", "y"); p.Last(t).N != 1 {
		t.Errorf("the first request after Forget is %v", p.Last(t))
	}
}

func TestDecodedAndMember(t *testing.T) {
	p := fakepod.New(t, fakepod.Options{})
	c := client(t)
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	io.WriteString(w, `{"k":1,"\u006b":9007199254740993,"stream":true}`)
	w.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.URL+chat, bytes.NewReader(z.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Encoding", "gzip")
	if a := do(c, req); len(events(a.body)) != 7 {
		t.Errorf("the pod did not see the stream wish in the gzip body: %s", a.body)
	}
	q := p.Last(t)
	if v, ok := q.Member("k"); !ok || string(v) != "9007199254740993" {
		t.Errorf("member k is %s", v)
	}
	if _, ok := q.Member("absent"); ok {
		t.Error("a member that is not there was found")
	}
	if !bytes.Equal(q.Body, z.Bytes()) {
		t.Error("Body is not what came")
	}
	q.Header = http.Header{"Content-Encoding": {"br"}}
	if _, err := q.Decoded(); err == nil {
		t.Error("an unknown encoding was undone")
	}
}

func TestKeep(t *testing.T) {
	p := fakepod.New(t, fakepod.Options{Keep: 2})
	c := client(t)
	for range 5 {
		send(t, c, p.URL+"/x", "y")
	}
	all := p.WaitRequests(t, 5)
	if len(all) != 2 || all[0].N != 4 || all[1].N != 5 || p.Count() != 5 {
		t.Errorf("%v, count %d", all, p.Count())
	}
	if q := p.WaitEnded(t, 4); q.N != 4 {
		t.Errorf("request 4 is %v", q)
	}
}

func TestExpectContinue(t *testing.T) {
	p := fakepod.New(t, fakepod.Options{})
	c := dial(t, p)
	io.WriteString(c, "POST /x HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
	r := bufio.NewReader(c)
	line, err := r.ReadString('\n')
	if err != nil || line != "HTTP/1.1 100 Continue\r\n" {
		t.Fatalf("%q, %v", line, err)
	}
	io.WriteString(c, "hi")
	if q := p.WaitRequests(t, 1)[0]; string(q.Body) != "hi" {
		t.Errorf("body %q", q.Body)
	}
}

func TestPipelinedRequests(t *testing.T) {
	p := fakepod.New(t, fakepod.Options{})
	c := dial(t, p)
	io.WriteString(c, "POST /1 HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhiGET /2 HTTP/1.1\r\nHost: h\r\n\r\n")
	r := bufio.NewReader(c)
	for k := range 2 {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		if want := fmt.Sprintf(`"path":"/%d"`, k+1); !strings.Contains(string(b), want) {
			t.Errorf("answer %d is %s", k, b)
		}
	}
	if all := p.WaitRequests(t, 2); all[1].OnConn != 2 || all[1].ClosedEarly {
		t.Errorf("%v", all)
	}
}

func TestBadRequestEndsTheConnection(t *testing.T) {
	p := fakepod.New(t, fakepod.Options{})
	c := dial(t, p)
	io.WriteString(c, "NONSENSE\r\n\r\n")
	if n, err := c.Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes came back", n)
	}
	p.WaitOpen(t, 0)
	if cs := p.Conns(); cs[0].Err == nil {
		t.Errorf("%+v", cs[0])
	}
	if p.Count() != 0 {
		t.Error("a request was recorded")
	}
}
