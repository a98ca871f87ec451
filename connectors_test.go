package calinix_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// handing is a connector with simulated engines that speak its protocol strictly.
type handing struct {
	name, sim  string // in the Caddyfile: of the connector, and of the engines' kv_connector
	roles      bool   // engines serve one kind of leg
	concurrent bool
	pod        func(leg string, n, port, side int) string // keys of a pod
	engine     func(leg string, n, side int) string       // keys of its engine
	side       bool                                       // prefill engines also listen at the side port
}

func none(string, int, int, int) string { return "" }

var handings = []handing{
	{name: "nixl", sim: "nixl", pod: none},
	{
		name: "nixl_push", sim: "nixl_push", concurrent: true,
		pod: func(leg string, n, _, side int) string {
			if leg == "decode" {
				return ""
			}
			return fmt.Sprintf("engine_id engine-%d\nkv_address 127.0.0.1:%d\n", side, side)
		},
		engine: func(leg string, _, side int) string {
			return fmt.Sprintf("engine_id engine-%d\nkv_address 127.0.0.1:%d\n", side, side)
		},
	},
	{
		name: "mooncake", sim: "mooncake", concurrent: true, side: true,
		pod: func(leg string, _, _, side int) string {
			if leg == "decode" {
				return ""
			}
			return fmt.Sprintf("bootstrap_port %d\n", side)
		},
		engine: func(_ string, _, side int) string { return fmt.Sprintf("bootstrap_port %d\n", side) },
	},
	{
		name: "sglang", sim: "sglang", roles: true, concurrent: true,
		pod: func(leg string, _, _, side int) string {
			if leg == "decode" {
				return ""
			}
			return fmt.Sprintf("bootstrap_port %d\n", side)
		},
		engine: func(_ string, _, side int) string { return fmt.Sprintf("bootstrap_port %d\n", side) },
	},
	{
		name: "p2pnccl", sim: "p2pnccl", roles: true,
		pod:    func(_ string, _, _, side int) string { return fmt.Sprintf("kv_address 127.0.0.1:%d\n", side) },
		engine: func(_ string, _, side int) string { return fmt.Sprintf("kv_address 127.0.0.1:%d\n", side) },
	},
	{name: "trtllm", sim: "trtllm", pod: none},
	{name: "shared_storage", sim: "shared_storage", pod: none},
	{name: "plain", sim: "nixl", pod: none},
}

// handingSite runs two prefill and two decode engines behind one calinix site, all
// in one Caddy.
type handingSite struct {
	*testcaddy.Caddy
	cl      *testcaddy.Client
	engines map[string]*testcaddy.Client // by pod id
}

// engineKeys are the keys of an engine that speaks the connector's protocol.
func (h *handing) engineKeys(leg string, n, side int) string {
	keys := "kv_connector " + h.sim + "\n"
	if h.engine != nil {
		keys += h.engine(leg, n, side)
	}
	if h.roles {
		keys += "role " + leg + "\n"
	}
	return keys
}

func (h *handing) serve(t *testing.T, simKeys string, keys ...string) *handingSite {
	t.Helper()
	s := &handingSite{engines: map[string]*testcaddy.Client{}}
	front := testcaddy.Port(t)
	var sims strings.Builder
	lists := map[string]string{}
	for _, leg := range []string{"prefill", "decode"} {
		for n := range 2 {
			port, side := testcaddy.Port(t), testcaddy.Port(t)
			id := fmt.Sprintf("%s-%d", leg, n+1)
			at := fmt.Sprintf("http://:%d", port)
			if h.side && leg == "prefill" {
				at += fmt.Sprintf(", http://:%d", side)
			}
			fmt.Fprintf(&sims, "%s {\nbind 127.0.0.1\ninference_sim {\nname %s-%d\n%s%s}\n}\n", at, h.name, port, h.engineKeys(leg, n, side), simKeys)
			lists[leg] += fmt.Sprintf("pod %s http://127.0.0.1:%d {\n%s}\n", id, port, h.pod(leg, n, port, side))
			s.engines[id] = testcaddy.NewClient(t, testcaddy.H1, fmt.Sprintf("http://127.0.0.1:%d", port))
		}
	}
	name := fmt.Sprintf("handing-%d", balancers.Add(1))
	s.Caddy = testcaddy.Load(t, sims.String()+fmt.Sprintf("http://:%d {\nbind 127.0.0.1\nlog\ncalinix {\nname %s\nstrategy cache_aware\ntie_break pod_id\nhealth {\ninterval 1h\n}\ndispatch {\nconnector %s\n%s\nprefill {\n%s}\ndecode {\n%s}\n}\n}\n}\n",
		front, name, h.name, strings.Join(keys, "\n"), lists["prefill"], lists["decode"]))
	s.cl = testcaddy.NewClient(t, testcaddy.H1, fmt.Sprintf("http://127.0.0.1:%d", front))
	return s
}

// idle waits until no engine has anything left to do.
func (s *handingSite) idle(t *testing.T) {
	t.Helper()
	s.WaitMetrics(t, "idle engines", func(testcaddy.Metrics) bool {
		for _, e := range s.engines {
			st := e.Get(t, "/inference_sim/state").JSON(t)
			if fmt.Sprintf("%v %v", st["running"], st["waiting"]) != "0 0" {
				return false
			}
		}
		return true
	})
}

// transferred is how many tokens have been handed over.
func (s *handingSite) transferred(t *testing.T) (n int64) {
	t.Helper()
	for _, e := range s.engines {
		tokens, err := e.Get(t, "/inference_sim/state").JSON(t)["transferred_tokens"].(json.Number).Int64()
		if err != nil {
			t.Fatal(err)
		}
		n += tokens
	}
	return n
}

// TestConnectors: each connector against engines that speak its protocol strictly:
// the first request of a fresh process is answered as well as the next, and each time
// the decode engine has got the prompt.
func TestConnectors(t *testing.T) {
	for i := range handings {
		h := &handings[i]
		t.Run(h.name, func(t *testing.T) {
			s := h.serve(t, quickSim)
			for _, c := range []struct{ name, path, body string }{
				{"completions", "/v1/completions", `{"model":"m","prompt":%q,"max_tokens":5,"seed":9007199254740993%s}`},
				{"chat", "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":%q}],"max_tokens":5%s}`},
			} {
				for _, stream := range []bool{false, true} {
					more := ""
					if stream {
						more = `,"stream":true,"stream_options":{"include_usage":true}`
					}
					before := s.transferred(t)
					a := s.cl.Post(t, c.path, fmt.Sprintf(c.body, words(fmt.Sprint(c.name, stream), 60), more))
					if a.Status != 200 || a.Err != nil || a.Header.Get("X-Calinix-Prefill-Pod-Id") == "" {
						t.Fatalf("%s, stream %v: %v", c.name, stream, a)
					}
					if !strings.HasPrefix(a.Header.Get("X-Calinix-Decode-Pod-Id"), "decode-") || stream != strings.Contains(string(a.Body), "[DONE]") {
						t.Errorf("%s, stream %v: %v", c.name, stream, a)
					}
					if n := s.transferred(t) - before; (n > 0) != h.handsOver() {
						t.Errorf("%s, stream %v: %d tokens were handed over: %s", c.name, stream, n, a.Body)
					}
				}
			}
			s.idle(t)
		})
	}
}

// TestConnectorsRefused: a 4xx is the client's, and nothing of it is left behind.
func TestConnectorsRefused(t *testing.T) {
	for i := range handings {
		h := &handings[i]
		t.Run(h.name, func(t *testing.T) {
			s := h.serve(t, quickSim+"models m\n")
			a := s.cl.Post(t, chatPath, strings.Replace(chat("x"), `"m"`, `"other"`, 1))
			if a.Status != http.StatusNotFound {
				t.Errorf("a 4xx is the client's: %v", a)
			}
			if a := s.cl.Post(t, chatPath, chat("x", `"max_tokens":3`)); a.Status != 200 {
				t.Errorf("afterwards: %v", a)
			}
			s.idle(t)
		})
	}
}

// TestConnectorsClientLeaves: a client that leaves, while the prompt is computed or
// in the stream, leaves nothing running at any engine.
func TestConnectorsClientLeaves(t *testing.T) {
	for i := range handings {
		h := &handings[i]
		t.Run(h.name, func(t *testing.T) {
			s := h.serve(t, "prefill_tokens_per_second 2000\ndecode_tokens_per_second 50\n")
			ctx, leave := testContext(t)
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				s.cl.Send(s.cl.Request(ctx, t, http.MethodPost, chatPath, chat(words("leave", 4000), `"stream":true`)))
			}()
			s.WaitMetrics(t, "a prompt that is computed", func(testcaddy.Metrics) bool {
				for _, id := range []string{"prefill-1", "prefill-2"} {
					if n := s.engines[id].Get(t, "/inference_sim/state").JSON(t)["running"]; fmt.Sprint(n) != "0" {
						return true
					}
				}
				return false
			})
			leave()
			<-gone
			s.idle(t)
			st := s.cl.Stream(t, chatPath, chat("stay", `"stream":true,"max_tokens":4000,"ignore_eos":true`))
			st.Take(t, 2)
			st.Leave()
			s.idle(t)
		})
	}
}
