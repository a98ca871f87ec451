package calinix_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// TestLegsForeignRouting: headers that name the next hop to other routers and
// their sidecars never come from a client, on no leg.
func TestLegsForeignRouting(t *testing.T) {
	s, one, prefill, decode := bothModes(t)
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		for _, mode := range []string{"single", "dispatch"} {
			cl.Post(t, chatPath, question, "x-calinix-mode", mode, "x-prefiller-host-port", "evil:1",
				"x-encoder-hosts-ports", "evil:2", "x-data-parallel-host-port", "evil:3", "x-data-parallel-rank", "7")
		}
		for _, p := range []*fakepod.Pod{one, prefill, decode} {
			q := p.Last(t)
			if strings.Contains(q.Head, "evil") || q.Header.Get("X-Data-Parallel-Rank") != "7" {
				t.Errorf("pod %s gets %s", q.Pod, q.Head)
			}
		}
	})
}

// TestLegsEndToEndHeaders: all other end-to-end headers reach every leg as they
// were sent; X-Request-Id and traceparent are so the same on both legs.
func TestLegsEndToEndHeaders(t *testing.T) {
	s, one, prefill, decode := bothModes(t)
	sent := http.Header{
		"Authorization":   {"Bearer tok-1"},
		"Cookie":          {"a=b; c=d"},
		"User-Agent":      {"agent/1.0 (x; y)"},
		"Accept":          {"application/json", "text/event-stream;q=0.5"},
		"Accept-Encoding": {"identity"},
		"Content-Type":    {"application/json; charset=utf-8"},
		"Idempotency-Key": {"idem-1"},
		"X-Request-Id":    {"rid-1"},
		"Traceparent":     {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
		"Tracestate":      {"v=1,w=2"},
		"Baggage":         {"k=v"},
		"Openai-Beta":     {"assistants=v2"},
		"X-Empty":         {""},
		"X-Bytes":         {"caf\xc3\xa9 \xff"},
		"X-Twice":         {"one", "two"},
	}
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		for _, mode := range []string{"single", "dispatch"} {
			req := cl.Request(t.Context(), t, http.MethodPost, chatPath+"?a=1&b=%2F", question)
			maps.Copy(req.Header, sent)
			req.Header.Set("X-Calinix-Mode", mode)
			req.Host = "localhost" // of the site, without its port
			if a := cl.Send(req); a.Status != 200 {
				t.Fatal(a)
			}
			legs := []*fakepod.Pod{one}
			if mode == "dispatch" {
				legs = []*fakepod.Pod{prefill, decode}
			}
			for _, p := range legs {
				q := p.Last(t)
				for name, want := range sent {
					got := q.Header[name]
					if name == "Cookie" { // HTTP/2 and HTTP/3 may split it
						got = []string{strings.Join(got, "; ")}
					}
					if !slices.Equal(got, want) {
						t.Errorf("%s: pod %s gets %s: %q, want %q", mode, q.Pod, name, got, want)
					}
				}
				if q.Target != chatPath+"?a=1&b=%2F" || q.Host != "localhost" || q.Method != http.MethodPost {
					t.Errorf("%s: pod %s gets %s %s of %s", mode, q.Pod, q.Method, q.Target, q.Host)
				}
				if n := len(q.Body); q.ContentLength != int64(n) || len(q.TransferEncoding) > 0 {
					t.Errorf("%s: pod %s gets %d bytes with Content-Length %d, Transfer-Encoding %q", mode, q.Pod, n, q.ContentLength, q.TransferEncoding)
				}
			}
		}
	})
}

// TestLegsHeaderUp: header_up applies to both legs, and what it makes up for a
// request is the same on both.
func TestLegsHeaderUp(t *testing.T) {
	s, _, prefill, decode := bothModes(t, "header_up X-Request-Id {http.request.uuid}", "header_up -Cookie", "header_up X-Pod {http.calinix.prefill_pod}+{http.calinix.decode_pod}")
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		cl.Post(t, chatPath, question, "x-calinix-mode", "dispatch", "Cookie", "a=b", "X-Request-Id", "mine")
		p, d := prefill.Last(t).Header, decode.Last(t).Header
		if id := p.Get("X-Request-Id"); len(id) != 36 || id != d.Get("X-Request-Id") {
			t.Errorf("X-Request-Id is %q and %q", id, d.Get("X-Request-Id"))
		}
		if p.Get("X-Pod") != "p1+d1" || d.Get("X-Pod") != "p1+d1" || p.Get("Cookie")+d.Get("Cookie") != "" {
			t.Errorf("the legs have %v and %v", p, d)
		}
	})
}

// TestLegsDepthIsThePrefillPods: in dispatch mode cache-hit and depth speak of
// the prefill pod, whatever the decode pod holds.
func TestLegsDepthIsThePrefillPods(t *testing.T) {
	prefill, decode := pods(t, "p1"), pods(t, "d1", "d2")
	s := serve(t, "strategy round_robin\n"+dispatch(prefill, decode))
	cl := s.Client(t, testcaddy.H1)
	for n, want := range []string{"false 0", "true 5", "true 5"} {
		a := cl.Post(t, chatPath, chat(words("depth", 70)))
		got := a.Header.Get("X-Calinix-Cache-Hit") + " " + a.Header.Get("X-Calinix-Cache-Prefix-Depth")
		told := decode[n%2].Last(t).Header
		if got != want || told.Get("X-Calinix-Cache-Hit")+" "+told.Get("X-Calinix-Cache-Prefix-Depth") != want || a.Pod() != decode[n%2].Name {
			t.Errorf("request %d: the answer says %q, want %q: %v", n, got, want, a)
		}
	}
}

// reserved are the body members that no client may send in dispatch mode.
var reserved = []string{"kv_transfer_params", "ec_transfer_params", "bootstrap_host", "bootstrap_port", "bootstrap_room", "disaggregated_params"}

// TestLegsReservedMembers: in dispatch mode reserved members are removed in
// every spelling from both legs, and from requests that have one leg; not a byte
// beside them changes. In single mode the body is the client's.
func TestLegsReservedMembers(t *testing.T) {
	s, one, prefill, decode := bothModes(t)
	cl := s.Client(t, testcaddy.H2)
	for _, name := range reserved {
		escaped := strings.Replace(name, "_", `\u005f`, 1)
		for _, spelled := range []string{name, escaped, strings.ToUpper(name), `\u00` + fmt.Sprintf("%02X", name[0]) + name[1:]} {
			member := fmt.Sprintf("%q : {\"do_remote_prefill\":true,\"remote_host\":\"evil\"}", spelled)
			member = strings.ReplaceAll(member, `\\u`, `\u`)
			body := `{ "model":"m", ` + member + `,"messages":[{"role":"user","content":"` + name + `"}],  "seed":1.0,` + member + `,"temperature":1e-7 }`
			cl.Post(t, chatPath, body, "x-calinix-mode", "single")
			if got := string(one.Last(t).Body); got != body {
				t.Errorf("single mode, %s: the pod gets %s", spelled, got)
			}
			if a := cl.Post(t, chatPath, body, "x-calinix-mode", "dispatch"); a.Status != 200 {
				t.Fatalf("%s: %v", spelled, a)
			}
			for _, p := range []*fakepod.Pod{prefill, decode} {
				if got := string(p.Last(t).Body); strings.Contains(got, "evil") || !strings.Contains(got, `"seed":1.0`) || !strings.Contains(got, `"temperature":1e-7`) {
					t.Errorf("dispatch mode, %s: pod %s gets %s", spelled, p.Name, got)
				}
			}
			embed := `{"model":"m",` + member + `,"input":"x"}`
			cl.Post(t, "/v1/embeddings", embed, "x-calinix-mode", "dispatch")
			if got := string(decode.Last(t).Body); got != `{"model":"m","input":"x"}` {
				t.Errorf("embeddings in dispatch mode, %s: the pod gets %s", spelled, got)
			}
		}
	}
}

// notGenerating are requests that a dispatch-only site gives to one decode pod.
var notGenerating = map[string]struct{ method, path, contentType, body string }{
	"GET":                {"GET", "/v1/models", "", ""},
	"HEAD":               {"HEAD", "/v1/models", "", ""},
	"OPTIONS":            {"OPTIONS", chatPath, "", ""},
	"DELETE":             {"DELETE", "/v1/responses/r-1", "", ""},
	"embeddings":         {"POST", "/v1/embeddings", "application/json", `{"model":"m","input":["a","b"]}`},
	"multipart":          {"POST", "/v1/audio/transcriptions", "multipart/form-data; boundary=b", "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nw\r\n--b--\r\n"},
	"unknown path":       {"POST", "/tokenize", "application/json", `{"model":"m","prompt":"x"}`},
	"not JSON":           {"POST", chatPath, "application/json", `{"model":`},
	"wrong shape":        {"POST", chatPath, "application/json", `{"model":"m","messages":"hello"}`},
	"no body":            {"POST", chatPath, "application/json", ""},
	"binary":             {"POST", chatPath, "application/octet-stream", "\x00\xff\xfe"},
	"n > 1":              {"POST", chatPath, "application/json", chat("choose", `"n":2`)},
	"several prompts":    {"POST", "/v1/completions", "application/json", `{"model":"m","prompt":["one","two"]}`},
	"several id prompts": {"POST", "/v1/completions", "application/json", `{"model":"m","prompt":[[1,2],[3]]}`},
	"gzip, not JSON":     {"POST", chatPath, "gzip", `{"model":`},
}

// TestLegsDispatchOnlyWithoutGeneration: requests that do not generate one text
// go to one decode pod, whole and by load; no prefill pod is asked.
func TestLegsDispatchOnlyWithoutGeneration(t *testing.T) {
	prefill, decode := pods(t, "p1"), pods(t, "d1", "d2")
	s := serve(t, dispatch(prefill, decode))
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		for name, c := range notGenerating {
			body, headers := c.body, []string{"Content-Type", c.contentType}
			switch c.contentType {
			case "":
				headers = nil
			case "gzip":
				body, headers = string(gzipped(c.body)), []string{"Content-Type", "application/json", "Content-Encoding", "gzip"}
			}
			decode.Forget()
			a := cl.Send(cl.Request(t.Context(), t, c.method, c.path, body, headers...))
			if a.Status != 200 || a.Err != nil {
				t.Errorf("%s: %v", name, a)
				continue
			}
			got := decode.Received()
			if len(got) != 1 {
				t.Errorf("%s: %d requests at the decode pods", name, len(got))
				continue
			}
			if q := got[0]; string(q.Body) != c.body || q.Header.Get("Content-Encoding") != "" || q.Method != c.method || q.Path != c.path {
				t.Errorf("%s: the pod gets %v with %q", name, q, q.Body)
			}
			told := routing(t, a.Header)
			delete(told, "X-Calinix-Request-Id")
			delete(told, "X-Calinix-Cache-Namespace")
			want := map[string]string{
				"X-Calinix-Mode": "disaggregated", "X-Calinix-Decode-Pod-Id": a.Pod(), "X-Calinix-Cache-Hit": "false",
				"X-Calinix-Cache-Prefix-Depth": "0", "X-Calinix-Route-Policy": "cacheAware",
			}
			if !maps.Equal(told, want) {
				t.Errorf("%s: the answer says %v, want %v", name, told, want)
			}
		}
	})
	if n := prefill.Total(); n != 0 {
		t.Errorf("%d requests at the prefill pod", n)
	}

	// By load: with one pod busy, the other gets them all.
	hold := make(chan struct{})
	decode.Set(fakepod.Reply{Hold: hold})
	cl := s.Client(t, testcaddy.H2)
	decode.Forget()
	stream := make(chan *testcaddy.Answer, 1)
	go func() { stream <- cl.Get(t, "/v1/models") }()
	s.waitCount(t, 1, "calinix_pod_inflight")
	busy := "d1"
	if s.count(t, "calinix_pod_inflight", "pod", "d2") > 0 {
		busy = "d2"
	}
	decode.Pod(busy).WaitHead(t, 1) // it has its script
	decode.Set(fakepod.Reply{})
	for name, c := range notGenerating {
		if c.contentType != "" && c.contentType != "application/json" {
			continue
		}
		if a := cl.Send(cl.Request(t.Context(), t, c.method, c.path, c.body)); a.Pod() == busy {
			t.Errorf("%s: went to the busy pod: %v", name, a)
		}
	}
	close(hold)
	if a := <-stream; a.Status != 200 {
		t.Error(a)
	}
}
