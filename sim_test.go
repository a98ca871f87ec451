package calinix_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/calinix/caddy-calinix/enginesim"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// quickSim makes a simulated engine answer at once.
const quickSim = "prefill_tokens_per_second 1e8\ndecode_tokens_per_second 1e5\n"

// simSites is a Caddyfile of plain sites on loopback ports, each a simulated engine
// with this block.
func simSites(block string, ports ...int) string {
	var b strings.Builder
	for _, port := range ports {
		fmt.Fprintf(&b, "http://:%d {\nbind 127.0.0.1\n%s}\n", port, sim(block))
	}
	return b.String()
}

// sim is the directive of a simulated engine with this block.
func sim(block string) string { return "inference_sim {\n" + block + "\n}\n" }

func simClient(t *testing.T, port int) *testcaddy.Client {
	t.Helper()
	return testcaddy.NewClient(t, testcaddy.H1, fmt.Sprintf("http://127.0.0.1:%d", port))
}

// A prompt of three blocks and a bit.
var simPrompt = strings.Repeat("a prompt that fills some blocks ", 9)

// askSim returns what the engine says of its cache.
func askSim(t *testing.T, c *testcaddy.Client, more string) (cached, engine string, answer map[string]any) {
	t.Helper()
	a := c.Post(t, "/v1/completions", `{"model":"m","prompt":"`+simPrompt+`","max_tokens":5`+more+`}`)
	if a.Status != 200 || a.Err != nil {
		t.Fatalf("got %s", a)
	}
	answer = a.JSON(t)
	details := answer["usage"].(map[string]any)["prompt_tokens_details"].(map[string]any)
	return fmt.Sprint(details["cached_tokens"]), a.Header.Get("X-Sim-Engine"), answer
}

func TestSimEngineForEachAddress(t *testing.T) {
	one, two := testcaddy.Port(t), testcaddy.Port(t)
	both := fmt.Sprintf("http://:%d, http://:%d {\nbind 127.0.0.1\ninference_sim {\n%s}\n}\n", one, two, quickSim)
	json := fmt.Sprintf(`{"apps":{"http":{"servers":{"s":{"listen":["127.0.0.1:%d","127.0.0.1:%d"],"routes":[{"handle":[{
		"handler":"inference_sim","prefill_tokens_per_second":1e8,"decode_tokens_per_second":1e5}]}]}}}}}`, one, two)
	for name, load := range map[string]func() *testcaddy.Caddy{
		"a site of two addresses":   func() *testcaddy.Caddy { return testcaddy.Load(t, both) },
		"a server of two listeners": func() *testcaddy.Caddy { return testcaddy.Load(t, json, testcaddy.Adapter("json")) },
	} {
		t.Run(name, func(t *testing.T) {
			c := load()
			defer c.Stop()
			for _, port := range []int{one, two} {
				client := simClient(t, port)
				for _, want := range []string{"0", "48"} {
					cached, engine, _ := askSim(t, client, "")
					if cached != want || engine != fmt.Sprintf("127.0.0.1:%d", port) {
						t.Errorf("engine %s at port %d had %s tokens, want %s", engine, port, cached, want)
					}
				}
			}
		})
	}
}

func TestSimOfOneName(t *testing.T) {
	one, two := testcaddy.Port(t), testcaddy.Port(t)
	testcaddy.Load(t, simSites("name shared\n"+quickSim, one, two))
	askSim(t, simClient(t, one), "")
	if cached, engine, _ := askSim(t, simClient(t, two), ""); cached != "48" || engine != "shared" {
		t.Errorf("engine %s had %s tokens, want 48 of engine shared", engine, cached)
	}
}

func TestSimSurvivesReload(t *testing.T) {
	c := testcaddy.Serve(t, sim(quickSim), testcaddy.Plain())
	client := c.Client(t, testcaddy.H1)
	askSim(t, client, "")
	for _, step := range []struct{ block, cached, health string }{
		{quickSim + "seed 1", "48", "200"},
		{quickSim + "health_status 503", "48", "503"},
		{quickSim + "block_size 32", "0", "200"},
		{quickSim + "block_size 32", "32", "200"},
		{quickSim, "0", "200"}, // nobody held the engine of blocks of 16 meanwhile
	} {
		c.ReloadSite(t, sim(step.block))
		if got := client.Get(t, "/health"); fmt.Sprint(got.Status) != step.health {
			t.Errorf("after %q: health %d, want %s", step.block, got.Status, step.health)
		}
		if cached, _, _ := askSim(t, client, ""); cached != step.cached {
			t.Errorf("after %q: %s tokens cached, want %s", step.block, cached, step.cached)
		}
	}
	// A configuration that fails changes nothing.
	broken := sim(quickSim+"health_status 503") + "reverse_proxy {\ntransport http {\ntls_client_auth missing.crt missing.key\n}\nto localhost:1\n}\n"
	if err := c.TryReloadSite(broken); err == nil {
		t.Fatal("the broken configuration was loaded")
	}
	if got := client.Get(t, "/health"); got.Status != 200 {
		t.Errorf("after a failed reload: health %d, want 200", got.Status)
	}
	if cached, _, _ := askSim(t, client, ""); cached != "48" {
		t.Errorf("after a failed reload: %s tokens cached, want 48", cached)
	}
}

func TestSimStreamOutlivesReload(t *testing.T) {
	slow := "prefill_tokens_per_second 1e8\ndecode_tokens_per_second 200\n"
	c := testcaddy.Serve(t, sim(slow), testcaddy.Plain())
	s := c.Client(t, testcaddy.H1).Stream(t, "/v1/completions", `{"model":"m","prompt":"x","max_tokens":60,"ignore_eos":true,"stream":true}`)
	s.Take(t, 3)
	c.ReloadSite(t, sim(slow+"output_tokens 9"))
	rest, err := s.All()
	if err != nil || len(rest) != 60-3+1 { // [DONE] is an event
		t.Errorf("%d events after the reload, want 58; error %v", len(rest), err)
	}
}

func TestSimOverEveryProtocol(t *testing.T) {
	c := testcaddy.Serve(t, "inference_sim tls-sim {\n"+quickSim+"}")
	c.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		events, err := cl.Stream(t, "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":4,"stream":true}`).All()
		if err != nil || len(events) != 6 {
			t.Errorf("%d events, want 6; error %v", len(events), err)
		}
	})
	client := c.Client(t, testcaddy.H2)
	sdk := openai.NewClient(option.WithBaseURL(c.URL+"/v1"), option.WithAPIKey("none"), option.WithHTTPClient(client.HTTP))
	answer, err := sdk.Chat.Completions.New(t.Context(), openai.ChatCompletionNewParams{
		Model: "any", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hi")},
	})
	if err != nil || answer.Choices[0].Message.Content == "" {
		t.Errorf("the official client: %v", err)
	}
}

// KV goes from one engine to another within this Caddy, and to an engine of another
// process (here: with a registry of its own) over the private path.
func TestSimHandOver(t *testing.T) {
	prefill, decode := testcaddy.Port(t), testcaddy.Port(t)
	testcaddy.Load(t, simSites(quickSim, prefill, decode))
	elsewhere, err := enginesim.New(enginesim.Settings{PrefillTokensPerSecond: 1e8, DecodeTokensPerSecond: 1e5}, enginesim.SystemClock(), enginesim.NewPeers())
	if err != nil {
		t.Fatal(err)
	}
	far := httptest.NewServer(elsewhere)
	defer far.Close()
	_, _, whole := askSim(t, simClient(t, prefill), "")
	for name, to := range map[string]*testcaddy.Client{
		"in this process": simClient(t, decode), "in another process": testcaddy.NewClient(t, testcaddy.H1, far.URL),
	} {
		a := simClient(t, prefill).Post(t, "/v1/completions", `{"model":"m","prompt":"`+simPrompt+`","max_tokens":1,"kv_transfer_params":{"do_remote_decode":true}}`)
		params := string(a.Body[strings.Index(string(a.Body), `"kv_transfer_params":`):])
		params = strings.TrimSuffix(strings.TrimSpace(params), "}")
		if a.Status != 200 || !strings.Contains(params, fmt.Sprintf(`"remote_host":"127.0.0.1","remote_port":%d`, prefill)) {
			t.Fatalf("%s: prefill leg: %s", name, a)
		}
		cached, _, got := askSim(t, to, ","+params)
		if cached != "53" || fmt.Sprint(got["choices"]) != fmt.Sprint(whole["choices"]) {
			t.Errorf("%s: %s tokens came over, want 53; %v, want %v", name, cached, got["choices"], whole["choices"])
		}
		again := to.Post(t, "/v1/completions", `{"model":"m","prompt":"`+simPrompt+`","max_tokens":5,`+params+`}`)
		if again.Status != 500 || !strings.Contains(string(again.Body), "already used") {
			t.Errorf("%s: used twice: %s", name, again)
		}
	}
}

func TestSimClientLeaves(t *testing.T) {
	port := testcaddy.Port(t)
	testcaddy.Load(t, simSites("decode_tokens_per_second 20", port))
	client := simClient(t, port)
	s := client.Stream(t, "/v1/completions", `{"model":"m","prompt":"x","max_tokens":5000,"ignore_eos":true,"stream":true}`)
	s.Take(t, 1)
	if m := client.Get(t, "/metrics"); !strings.Contains(string(m.Body), `vllm:num_requests_running{engine="0",model_name="sim"} 1`) {
		t.Errorf("metrics while a stream runs: %s", m.Body)
	}
	s.Leave()
	for range 1000 {
		if m := client.Get(t, "/metrics"); strings.Contains(string(m.Body), `vllm:num_requests_running{engine="0",model_name="sim"} 0`) {
			return
		}
	}
	t.Error("the sequence still runs after its client has left")
}

func TestSimCaddyfileErrors(t *testing.T) {
	for block, want := range map[string]string{
		"speed 5":                             "unrecognized subdirective speed, at Caddyfile:3",
		"seed":                                "wrong argument count or unexpected line ending after 'seed', at Caddyfile:3",
		"seed 1 2":                            "wrong argument count or unexpected line ending after '2', at Caddyfile:3",
		"models":                              "wrong argument count or unexpected line ending after 'models', at Caddyfile:3",
		"seed -1":                             `seed "-1": want a number: invalid syntax, at Caddyfile:3`,
		"seed 1\nseed 2":                      "seed: given twice, at Caddyfile:4",
		"name x":                              "name: given twice, at Caddyfile:3",
		"cache_output yes":                    `cache_output "yes": want on or off, at Caddyfile:3`,
		"kv_lease_duration soon":              `kv_lease_duration "soon": `,
		"block_size -4":                       "inference_sim: block_size -4: want 1 to 65536, at Caddyfile:2",
		"stream_headers never":                `inference_sim: stream_headers "never": want one of ["at_once" "first_token"], at Caddyfile:2`,
		"num_gpu_blocks 4\nmax_model_len 100": "inference_sim: max_model_len 100: want 2 to 64, which is num_gpu_blocks × block_size, at Caddyfile:2",
	} {
		_, _, err := testcaddy.Adapt(":80 {\ninference_sim me {\n" + block + "\n}\n}\n")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %s", block, err, want)
		}
	}
	if _, _, err := testcaddy.Adapt(":80 {\ninference_sim a b\n}\n"); err == nil {
		t.Error("two names were accepted")
	}
}
