package calinix_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

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
