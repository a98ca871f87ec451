package calinix_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// TestAlias: the pods get the model's own name, and every other byte as it came;
// the answer names the alias again only if asked.
func TestAlias(t *testing.T) {
	ps, pre, dec := pods(t, "a"), pods(t, "p"), pods(t, "d")
	s := serve(t, "models {\n\"Qwen/Qwen2.5\" {\naliases \"gpt \\\"4\\\"\" plain\nrestore_alias\n}\nother {\naliases kept\n}\n}\n"+single(ps)+dispatch(pre, dec, "connector plain"))
	cl := s.Client(t, testcaddy.H1)
	body := func(model string) string {
		return ` {"seed":9007199254740993 , "model" :` + model + `,"messages":[{"content":"h\u0069","role":"user"}],"model":` + model + "}\n"
	}
	a := cl.Post(t, chatPath, body(`"gpt \u0022\u0034\""`))
	if a.Status != 200 {
		t.Fatal(a)
	}
	if got, want := string(ps[0].Last(t).Body), ` {"seed":9007199254740993 ,"messages":[{"content":"h\u0069","role":"user"}],"model":"Qwen/Qwen2.5"}`+"\n"; got != want {
		t.Errorf("the pod got\n%s\nwant\n%s", got, want)
	}
	if got := a.JSON(t)["model"]; got != `gpt "4"` {
		t.Errorf("the answer is of model %v", got)
	}
	if got := a.Header.Get("X-Calinix-Cache-Namespace"); got != "openai:Qwen%2FQwen2.5:whitespace-v1:block-16" {
		t.Errorf("namespace %q", got)
	}
	if got := cl.Post(t, chatPath, forModel("kept", "x")).JSON(t)["model"]; got != "other" {
		t.Errorf("an answer that is not to be restored is of model %v", got)
	}
	// The model's own name is left alone, bytes and all.
	cl.Post(t, chatPath, body(`"Qwen/Qwen2.5"`), "Accept-Encoding", "br")
	if q := ps[0].Last(t); string(q.Body) != body(`"Qwen/Qwen2.5"`) || q.Header.Get("Accept-Encoding") != "br" {
		t.Errorf("the pod got %s, %v", q.Body, q.Header)
	}
	// A compressed body reaches the pod decoded.
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	_, _ = zip.Write([]byte(body(`"plain"`)))
	_ = zip.Close()
	if a := cl.Post(t, chatPath, packed.String(), "Content-Encoding", "gzip"); a.JSON(t)["model"] != "plain" {
		t.Error(a)
	}
	if q := ps[0].Last(t); q.Header.Get("Content-Encoding") != "" || !strings.HasSuffix(string(q.Body), `"model":"Qwen/Qwen2.5"}`+"\n") {
		t.Errorf("the pod got %q, %v", q.Body, q.Header)
	}
	// Both legs of dispatch mode.
	a = cl.Post(t, chatPath, forModel("plain", "x", `"max_tokens":5`), "x-calinix-mode", "dispatch")
	if a.JSON(t)["model"] != "plain" {
		t.Errorf("%v", a)
	}
	for _, p := range []*fakepod.Pod{pre[0], dec[0]} {
		var got struct{ Model string }
		if err := json.Unmarshal(p.Last(t).Body, &got); err != nil || got.Model != "Qwen/Qwen2.5" {
			t.Errorf("%s got %s", p.Name, p.Last(t).Body)
		}
	}
}

// TestAliasInStreams: the alias is put back into the events of every API, and
// nothing else of a stream changes, however it is cut into writes.
func TestAliasInStreams(t *testing.T) {
	ps := pods(t, "a")
	s := serve(t, "models {\nengine {\naliases alias\nrestore_alias\n}\n}\n"+single(ps))
	const stream = ": comment about \"model\":\"engine\"\n\n" +
		"data: {\"id\":1,\"model\":\"engine\",\"choices\":[{\"delta\":{\"content\":\"my model: engine\"}}],\"x\":{\"model\":\"engine\"}}\n\n" +
		"event: response.created\r\ndata:{\"response\":{\"id\":2,\"model\" : \"engine\"},\"type\":\"response.created\"}\r\n\r\n" +
		"data: {\"type\":\"message_start\",\"message\":{\"model\":\"eng\\u0069ne\"}}\n\n" +
		"data: {\"model\":\"another\"}\n\ndata: not JSON \"model\":\"engine\"\n\ndata: [DONE]\n\ndata: {\"model\":\"engine\"}"
	want := strings.NewReplacer(
		`{"id":1,"model":"engine"`, `{"id":1,"model":"alias"`, `"model" : "engine"`, `"model" : "alias"`,
		`eng\u0069ne`, `alias`, "[DONE]\n\ndata: {\"model\":\"engine\"}", "[DONE]\n\ndata: {\"model\":\"alias\"}",
	).Replace(stream)
	for _, size := range []int{1, 7, len(stream)} {
		var pieces []string
		for rest := stream; rest != ""; {
			n := min(size, len(rest))
			pieces, rest = append(pieces, rest[:n]), rest[n:]
		}
		ps[0].Set(fakepod.Reply{Stream: fakepod.Always, Events: pieces, Gap: fakepod.NoGap})
		a := s.Client(t, testcaddy.H2).Post(t, chatPath, forModel("alias", "x", `"stream":true`))
		if a.Err != nil || string(a.Body) != want {
			t.Errorf("pieces of %d: %v\n%q\nwant\n%q", size, a.Err, a.Body, want)
		}
	}
	// An event goes on when it is complete, not when the next one comes.
	ps[0].Set(fakepod.Reply{Gap: fakepod.NoGap, PauseAfter: 1, Pause: time.Hour})
	st := s.Client(t, testcaddy.H1).Stream(t, chatPath, forModel("alias", "x", `"stream":true`))
	if events := st.Take(t, 1); !strings.Contains(events[0].Data, `"model":"alias"`) {
		t.Errorf("%v", events)
	}
	st.Leave()
	// A stream that breaks off stays broken, and what came before is delivered.
	ps[0].Set(fakepod.Reply{Cut: fakepod.Reset, At: fakepod.AfterChunks(2)})
	st = s.Client(t, testcaddy.H1).Stream(t, chatPath, forModel("alias", "x", `"stream":true`))
	if events, err := st.All(); err == nil || len(events) != 2 {
		t.Errorf("a broken stream: %d events, %v", len(events), err)
	}
	// What is no JSON, or is compressed, stays as it is.
	ps[0].Set(fakepod.Reply{Gzip: true})
	if a := s.Client(t, testcaddy.H1).Post(t, chatPath, forModel("alias", "x")); a.Status != 200 || a.Header.Get("Content-Encoding") != "gzip" {
		t.Errorf("%v", a)
	}
	ps[0].Set(fakepod.Reply{Body: []byte(`{"model":"engine"}`), Header: http.Header{"Content-Type": {"text/plain"}}})
	if a := s.Client(t, testcaddy.H1).Post(t, chatPath, forModel("alias", "x")); string(a.Body) != `{"model":"engine"}` {
		t.Errorf("%v", a)
	}
}
