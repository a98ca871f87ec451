package calinix_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// stages are the tokens that were counted for the pods, by stage.
func (s *site) stages(t testing.TB, pod string) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	for _, stage := range []string{"prompt", "available", "captured", "expected", "delivered"} {
		if n := s.count(t, "calinix_cache_tokens_total", "stage", stage, "pod", pod); n > 0 {
			out[stage] = n
		}
	}
	return out
}

// TestCacheTokens: what some pod held, what the picked pod held and what its
// engine has found, in the engine's tokens; in every API, whole and streamed. Of
// streams without usage, and of answers that are compressed, only what was
// expected is known.
func TestCacheTokens(t *testing.T) {
	for path, body := range map[string]string{
		chatPath:          `"messages":[{"role":"user","content":%q}]`,
		"/v1/completions": `"prompt":%q`,
		"/v1/responses":   `"input":%q`,
		"/v1/messages":    `"max_tokens":5,"messages":[{"role":"user","content":%q}]`,
	} {
		for name, c := range map[string]struct {
			more  string
			heard bool
		}{
			"whole":                   {``, true},
			"streamed with usage":     {`,"stream":true,"stream_options":{"include_usage":true}`, true},
			"streamed":                {`,"stream":true`, false},
			"whole, with other words": {`,"temperature":0.5`, true},
		} {
			t.Run(strings.TrimPrefix(path, "/v1/")+"/"+name, func(t *testing.T) {
				ps := pods(t, "a", "b")
				s := serve(t, single(ps))
				cl := s.Client(t, testcaddy.H2)
				send := func(cached int) {
					ps.Set(fakepod.Reply{CachedTokens: cached})
					request := `{"model":"m",` + fmt.Sprintf(body, words("w", 400)) + c.more + "}"
					if a := cl.Post(t, path, request); a.Status != 200 || a.Err != nil {
						t.Fatal(a)
					}
				}
				send(0)
				home := ""
				for _, p := range s.pods(t) {
					if p.Blocks > 0 {
						home = p.ID
					}
				}
				first := s.stages(t, home)
				if first["prompt"] == 0 || len(first) != 1 {
					t.Errorf("the first prompt: %v", first)
				}
				send(3)
				second := s.stages(t, home)
				length := second["prompt"] - first["prompt"] // in messages, what is cached comes on top
				if length != first["prompt"] && length != first["prompt"]+3 || second["available"] != second["captured"] || second["captured"] < 0.9*length || second["captured"] > length {
					t.Errorf("the second prompt, of %v tokens: %v", length, second)
				}
				if c.heard && (second["delivered"] != 3 || second["expected"] < 0.9*length || second["expected"] > length) ||
					!c.heard && second["delivered"]+second["expected"] != 0 {
					t.Errorf("heard %v: %v", c.heard, second)
				}
			})
		}
	}
}

// TestAvailable: what a pod holds that was not picked is available, and not
// captured.
func TestAvailable(t *testing.T) {
	ps := pods(t, "a", "b")
	s := serve(t, "strategy round_robin\n"+single(ps))
	cl := s.Client(t, testcaddy.H1)
	for range 2 {
		cl.Post(t, chatPath, chat(words("w", 400)))
	}
	if b := s.stages(t, "b"); b["available"] < 0.9*b["prompt"] || b["captured"] != 0 || b["expected"] != 0 {
		t.Errorf("of the pod whose turn it was: %v", b)
	}
}

// TestPrefillTruth: in dispatch mode the prefill pod's cache counts. To a decode
// pod what was handed over is cached.
func TestPrefillTruth(t *testing.T) {
	prefill, decode := pods(t, "p"), pods(t, "d")
	s := serve(t, dispatch(prefill, decode))
	cl := s.Client(t, testcaddy.H1)
	prefill.Set(fakepod.Reply{CachedTokens: 2})
	decode.Set(fakepod.Reply{CachedTokens: 3})
	for range 2 {
		if a := cl.Post(t, chatPath, chat(words("w", 400), `"max_tokens":3`)); a.Status != 200 {
			t.Fatal(a)
		}
	}
	if p := s.stages(t, "p"); p["delivered"] != 4 || p["expected"] == 0 {
		t.Errorf("the prefill pod: %v", p)
	}
	if d := s.stages(t, "d"); len(d) != 0 {
		t.Errorf("the decode pod: %v", d)
	}
}

// stale says what the admin route says of a pod.
func (s *site) stale(t testing.TB, id string) (stale bool, room, blocks int) {
	t.Helper()
	var all []struct {
		ID     string
		Stale  bool
		Room   int
		Blocks int
	}
	if err := json.Unmarshal(s.AdminGet(t, "/calinix/pods?balancer="+s.balancer).Body, &all); err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if p.ID == id {
			return p.Stale, p.Room, p.Blocks
		}
	}
	t.Fatalf("no pod %q", id)
	return
}

// TestStalePod: an engine whose cache is much smaller than the index believes is
// stale, in log, admin and metrics, and no more when it delivers.
func TestStalePod(t *testing.T) {
	port := testcaddy.Port(t)
	engine := func(blocks int) string {
		return fmt.Sprintf("\n}\nhttp://:%d {\nbind 127.0.0.1\ninference_sim {\nname stale-%d\nnum_gpu_blocks %d\nmax_model_len 1000\noutput_tokens 1\nprefill_tokens_per_second 1000000\n}\n", port, port, blocks)
	}
	s := &site{balancer: "stale"}
	keys := fmt.Sprintf("health {\ninterval 1h\n}\nsingle {\npod a http://127.0.0.1:%d\n}\n", port)
	// A cache of 80 blocks, for 12 conversations of 40 blocks each in turn.
	s.Caddy = testcaddy.Serve(t, s.body(keys)+engine(80), testcaddy.Plain())
	cl := s.Client(t, testcaddy.H1)
	talk := func(chats int, done func() bool) {
		t.Helper()
		for end := time.Now().Add(testcaddy.Patience); !done(); {
			for k := range chats {
				if a := cl.Post(t, chatPath, chat(words(fmt.Sprintf("c%d-", k), 600), `"max_tokens":1`)); a.Status != 200 {
					t.Fatal(a)
				}
			}
			if time.Now().After(end) {
				t.Fatal("timed out: ", s.stages(t, "a"))
			}
		}
	}
	mark := s.Log.Mark()
	talk(12, func() bool { stale, _, _ := s.stale(t, "a"); return stale })
	if _, room, blocks := s.stale(t, "a"); room >= 1000 || blocks > room {
		t.Errorf("room for %d blocks, %d are known", room, blocks)
	}
	if n := s.count(t, "calinix_pod_stale", "pod", "a"); n != 1 {
		t.Errorf("calinix_pod_stale is %v", n)
	}
	s.Log.Wait(t, mark, "the warning", func(e testcaddy.Entry) bool { return e.Level == "warn" && e.Msg == "pod is stale" && e.Has("pod", "a") })

	mark = s.Log.Mark()
	talk(1, func() bool { stale, _, _ := s.stale(t, "a"); return !stale })
	s.Log.Wait(t, mark, "the good news", func(e testcaddy.Entry) bool { return e.Msg == "pod is not stale any more" && e.Has("pod", "a") })
	if _, room, _ := s.stale(t, "a"); room < 1000 {
		t.Errorf("room for %d blocks", room)
	}
	if n := s.count(t, "calinix_pod_stale", "pod", "a"); n != 0 {
		t.Errorf("calinix_pod_stale is %v", n)
	}
}
