package calinix_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// podsOf are the keys of pods in single mode, each with what its name is given.
func podsOf(all fakepod.Pods, keys map[string]string) string {
	var b strings.Builder
	b.WriteString("single {\n")
	for _, p := range all {
		fmt.Fprintf(&b, "pod %s %s {\n%s\n}\n", p.Name, p.URL, keys[p.Name])
	}
	return b.String() + "}\n"
}

// forModel is a chat request for a model.
func forModel(model, text string, members ...string) string {
	return strings.Replace(chat(text, members...), `"m"`, `"`+model+`"`, 1)
}

// servedBy returns the pods that n requests come to, sorted.
func (s *site) servedBy(t testing.TB, n int, body func(i int) string) []string {
	t.Helper()
	cl := s.Client(t, testcaddy.H1) // a new one: after a reload it is another server
	got := tally(order(t, n, func(i int) *testcaddy.Answer { return cl.Post(t, chatPath, body(i)) }))
	var names []string
	for name := range got {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// TestModelsChoosePods: a request goes to pods that serve its model, adapters
// included, or that name none; a model that nobody serves is answered with 404.
func TestModelsChoosePods(t *testing.T) {
	ps := pods(t, "a", "b", "c")
	keys := podsOf(ps, map[string]string{"a": "models big", "b": "models big big-sql", "c": "models small"})
	s := serve(t, "strategy round_robin\n"+keys)
	cl := s.Client(t, testcaddy.H1)
	want := func(model string, names ...string) {
		t.Helper()
		if got := s.servedBy(t, 6, func(i int) string { return forModel(model, fmt.Sprint(i)) }); !slices.Equal(got, names) {
			t.Errorf("model %s is served by %v, want %v", model, got, names)
		}
	}
	want("big", "a", "b")
	want("big-sql", "b")
	want("small", "c")
	got := tally(order(t, 6, func(int) *testcaddy.Answer { return cl.Post(t, chatPath, `{"messages":[]}`) }))
	if len(got) != 3 {
		t.Errorf("requests without a model are served by %v", got)
	}

	before := ps.Total()
	a := cl.Post(t, chatPath, forModel("nobody's", "x"))
	if code := wantError(t, a, http.StatusNotFound); code != "model_not_found" || !strings.Contains(string(a.Body), `"type":"invalid_request_error"`) || !strings.Contains(string(a.Body), "nobody's") {
		t.Errorf("%s", a.Body)
	}
	if ps.Total() != before {
		t.Error("a pod was asked for a model that none serves")
	}
	s.waitCount(t, 1, "calinix_requests_total", "code", "404", "pod", "")
	e := s.explain(t, "", forModel("small", "x"))
	if e.Pick.Pod != "c" || e.of(t, "a").Filtered != "other model" {
		t.Errorf("explained as %+v", e)
	}

	// No pod of the model is up: 503, for it may come back.
	s.reload(t, "strategy round_robin\n"+strings.Replace(keys, "models small", "models small\ndraining", 1))
	wantError(t, s.Client(t, testcaddy.H1).Post(t, chatPath, forModel("small", "x")), http.StatusServiceUnavailable)
	// Passed on, if that is asked for.
	s.reload(t, "unknown_model pass\nstrategy round_robin\n"+keys)
	want("nobody's", "a", "b", "c")
	want("small", "c")
	// A pod without models takes any.
	s.reload(t, "strategy round_robin\n"+podsOf(ps, map[string]string{"a": "models big", "c": "models small"}))
	want("nobody's", "b")
	want("small", "b", "c")
}

// TestModelsShareNoPrefix: the same prompt for two models is two prompts; an alias
// is the model.
func TestModelsShareNoPrefix(t *testing.T) {
	ps := pods(t, "a")
	s := serve(t, "models {\none {\naliases uno\n}\n}\n"+single(ps))
	cl := s.Client(t, testcaddy.H1)
	prompt := words("same", 100)
	for i, step := range []struct {
		model string
		hit   string
	}{{"one", "false"}, {"one", "true"}, {"two", "false"}, {"uno", "true"}, {"two", "true"}, {"One", "false"}} {
		a := cl.Post(t, chatPath, forModel(step.model, prompt))
		if got := a.Header.Get("X-Calinix-Cache-Hit"); a.Status != 200 || got != step.hit {
			t.Errorf("request %d, model %s: hit %s, want %s: %v", i, step.model, got, step.hit, a)
		}
	}
}

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

// TestModelRules: strategy, weights and limit of a model hold for it and its
// aliases alone.
func TestModelRules(t *testing.T) {
	ps := pods(t, "a", "b", "c", "d")
	s := serve(t, "strategy round_robin\nmodels {\nchat {\nstrategy session_affinity\naliases talk\n}\ndraft {\nstrategy cache_aware\nweights {\nsingle cache 0 load 0 sticky 1\n}\n}\nsmall {\nmax_conns 2\naliases tiny\n}\n}\n"+single(ps))
	cl := s.Client(t, testcaddy.H1)
	for _, tt := range []struct {
		model, policy string
		pods          int
	}{{"chat", "sessionAffinity", 1}, {"talk", "sessionAffinity", 1}, {"draft", "cacheAware", 1}, {"small", "roundRobin", 4}, {"any", "roundRobin", 4}} {
		got := map[string]bool{}
		for i := range 8 {
			a := cl.Post(t, chatPath, forModel(tt.model, words(fmt.Sprint(i), 50)), "X-Session-ID", "one")
			if a.Status != 200 || a.Header.Get("X-Calinix-Route-Policy") != tt.policy {
				t.Fatalf("model %s: %v by %s", tt.model, a, a.Header.Get("X-Calinix-Route-Policy"))
			}
			got[a.Pod()] = true
		}
		if len(got) != tt.pods {
			t.Errorf("model %s went to %v, want %d pods", tt.model, got, tt.pods)
		}
	}
	h := s.hold(t, ps)
	h.send(t, ps, http.MethodPost, chatPath, forModel("small", "x"))
	h.send(t, ps, http.MethodPost, chatPath, forModel("tiny", "x"))
	a := cl.Post(t, chatPath, forModel("small", "x"))
	if code := wantError(t, a, http.StatusServiceUnavailable); code != "model_at_max_conns" || a.Header.Get("Retry-After") == "" {
		t.Errorf("%v %s", a, code)
	}
	h.send(t, ps, http.MethodPost, chatPath, forModel("any", "x"))
	h.release(t, ps)
	if a := cl.Post(t, chatPath, forModel("tiny", "x")); a.Status != 200 {
		t.Errorf("after the others have ended: %v", a)
	}
}

// TestModelChoosesTheMode: a mode for which the model has no pods is ignored.
func TestModelChoosesTheMode(t *testing.T) {
	ps, pre, dec := pods(t, "a"), pods(t, "p"), pods(t, "d")
	s := serve(t, podsOf(ps, map[string]string{"a": "models one"})+
		"dispatch {\nconnector plain\nprefill {\n"+podList(pre, "models two")+"}\ndecode {\n"+podList(dec, "models two")+"}\n}\n")
	cl := s.Client(t, testcaddy.H1)
	for model, want := range map[string]string{"one": "single", "two": "disaggregated"} {
		for _, asked := range []string{"", "single", "dispatch"} {
			var headers []string
			if asked != "" {
				headers = []string{"x-calinix-mode", asked}
			}
			a := cl.Post(t, chatPath, forModel(model, "x", `"max_tokens":3`), headers...)
			if got := a.Header.Get("X-Calinix-Mode"); a.Status != 200 || got != want {
				t.Errorf("model %s, mode %q asked for: %s, want %s: %v", model, asked, got, want, a)
			}
		}
	}
}

// list is what a pod says of its models.
func list(names ...string) fakepod.Reply {
	var items []string
	for i, name := range names {
		items = append(items, fmt.Sprintf(`{"id":%q,"object":"model","created":%d,"owned_by":"vllm","max_model_len":9007199254740993}`, name, i))
	}
	return fakepod.Reply{Body: []byte(`{"object":"list","data":[` + strings.Join(items, ",") + `]}`)}
}

// ids are the models in an answer's list.
func ids(t testing.TB, a *testcaddy.Answer) (ids []string) {
	t.Helper()
	var got struct {
		Object string
		Data   []struct{ ID string }
	}
	if err := json.Unmarshal(a.Body, &got); err != nil || a.Status != 200 || got.Object != "list" {
		t.Fatalf("no list: %v", a)
	}
	for _, m := range got.Data {
		ids = append(ids, m.ID)
	}
	return ids
}

// TestModelList: GET /v1/models is that of all pods, each model once, and the
// aliases; a single one is looked up in it.
func TestModelList(t *testing.T) {
	ps := pods(t, "a", "b", "c")
	s := serve(t, "models {\nbig {\naliases gpt\n}\nabsent {\naliases nothing\n}\n}\n"+podsOf(ps, map[string]string{"a": "models big sql", "b": "models big silent"}))
	cl := s.Client(t, testcaddy.H2)
	ps[0].SetPath("/v1/models", list("big", "sql", "hidden"))
	ps[1].SetPath("/v1/models", list("big"))
	ps[2].SetPath("/v1/models", list("small", "sql"))
	a := cl.Get(t, "/v1/models?x=1", "Authorization", "Bearer k")
	if got, want := ids(t, a), []string{"big", "sql", "small", "silent", "gpt"}; !slices.Equal(got, want) {
		t.Errorf("models %v, want %v", got, want)
	}
	if !strings.Contains(string(a.Body), "9007199254740993") {
		t.Errorf("entries have changed: %s", a.Body)
	}
	for _, p := range ps {
		if q := p.Last(t); q.Header.Get("Authorization") != "Bearer k" || q.Target != "/v1/models?x=1" {
			t.Errorf("%s was asked %s with %v", p.Name, q.Target, q.Header)
		}
		s.waitCount(t, 1, "calinix_requests_total", "pod", p.Name, "code", "200")
	}
	for name, want := range map[string]int{"sql": 200, "gpt": 200, "small": 200, "hidden": 404, "nothing": 404, "x%2Fy": 404} {
		a := cl.Get(t, "/v1/models/"+name)
		if a.Status != want {
			t.Errorf("model %s: %v, want %d", name, a, want)
		} else if want == 200 && a.JSON(t)["id"] != name {
			t.Errorf("model %s: %s", name, a.Body)
		} else if want == 404 && wantError(t, a, want) != "model_not_found" {
			t.Errorf("model %s: %s", name, a.Body)
		}
	}
	// Pods that fail, lie or hang are left out.
	ps[0].SetPath("/v1/models", fakepod.Reply{Status: 500})
	ps[2].SetPath("/v1/models", fakepod.Reply{Body: []byte(`{"data":"small"}`)})
	if got, want := ids(t, cl.Get(t, "/v1/models")), []string{"big", "sql", "silent", "gpt"}; !slices.Equal(got, want) {
		t.Errorf("models %v, want %v", got, want)
	}
	ps[1].Refuse()
	if a := cl.Get(t, "/v1/models"); a.Status != 500 {
		t.Errorf("all fail: %v", a)
	}
	for _, p := range ps {
		p.SetPath("/v1/models", fakepod.Reply{Status: 401, Body: []byte(`{"error":"key"}`)})
	}
	if a := cl.Get(t, "/v1/models"); a.Status != 401 || string(a.Body) != `{"error":"key"}` {
		t.Errorf("refused by all: %v", a)
	}
	s.waitIdle(t, ps)
}

// TestModelListOfOne: where models are not told apart, one pod's list goes on byte
// by byte.
func TestModelListOfOne(t *testing.T) {
	ps := pods(t, "a", "b")
	s := serve(t, single(ps))
	ps.Set(list("x"))
	a := s.Client(t, testcaddy.H1).Get(t, "/v1/models")
	if want := list("x").Body; !bytes.Equal(a.Body, want) || ps.Total() != 1 {
		t.Errorf("%v after %d requests", a, ps.Total())
	}
}

// TestLearnedModelsOfPods: pods are asked what they serve; an adapter that is
// loaded later is found, and what the configuration says counts more.
func TestLearnedModelsOfPods(t *testing.T) {
	ps := pods(t, "a", "b", "c")
	ps[0].SetPath("/v1/models", list("base"))
	ps[1].SetPath("/v1/models", list("base", "adapter"))
	ps[2].SetPath("/v1/models", list("what it says"))
	// The slash at the end of a pod's URL is not doubled.
	keys := strings.Replace(podsOf(ps, map[string]string{"c": "models small"}), ps[1].URL, ps[1].URL+"/", 1)
	s := serve(t, "strategy round_robin\nhealth {\ninterval 1h\nheaders {\nAuthorization \"Bearer probe\"\n}\n}\nlearn_models {\nenabled\ninterval 50ms\n}\n"+keys)
	knows := func(want map[string]string) {
		t.Helper()
		s.WaitMetrics(t, fmt.Sprintf("pods to serve %v", want), func(testcaddy.Metrics) bool {
			for _, p := range entries(t, s.Caddy, "?balancer="+s.balancer) {
				if strings.Join(p.Models, " ") != want[p.ID] {
					return false
				}
			}
			return true
		})
	}
	cl := s.Client(t, testcaddy.H1)
	served := func(model string, names ...string) {
		t.Helper()
		if got := s.servedBy(t, 6, func(i int) string { return forModel(model, fmt.Sprint(i)) }); !slices.Equal(got, names) {
			t.Errorf("model %s is served by %v, want %v", model, got, names)
		}
	}
	knows(map[string]string{"a": "base", "b": "base adapter", "c": "small"})
	served("adapter", "b")
	served("base", "a", "b")
	served("small", "c")
	if code := wantError(t, cl.Post(t, chatPath, forModel("what it says", "x")), http.StatusNotFound); code != "model_not_found" {
		t.Error(code)
	}
	if got := ps[0].Requests()[0].Header.Get("Authorization"); got != "Bearer probe" {
		t.Errorf("asked with Authorization %q", got)
	}
	ps[0].SetPath("/v1/models", list("base", "adapter"))
	knows(map[string]string{"a": "base adapter", "b": "base adapter", "c": "small"})
	served("adapter", "a", "b")
	// One that does not answer keeps what it had; a reload keeps it too.
	ps[0].SetPath("/v1/models", fakepod.Reply{Status: 500})
	s.reload(t, "strategy round_robin\n"+keys)
	served("adapter", "a", "b")
}
