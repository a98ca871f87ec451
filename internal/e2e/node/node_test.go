//go:build node

package node

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	_ "github.com/calinix/caddy-calinix" // the product, as cmd/caddy has it
	"github.com/calinix/caddy-calinix/enginesim"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

func TestMain(m *testing.M) { testcaddy.Main(m) }

// parts are what client.mjs must say that it has done.
var parts = []string{
	"chat", "chat streamed", "tools", "tools streamed", "parts", "embeddings", "completions", "responses", "abort", "refusals",
}

const sim = `inference_sim {
	seed 7
	output_tokens 12
	prefill_tokens_per_second 200000
	decode_tokens_per_second 1000
}`

func TestOpenAIPackage(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatalf("%v: this test needs Node.js 20 or newer", err)
	}
	for _, name := range []string{"openai", "undici"} {
		if _, err := os.Stat("node_modules/" + name); err != nil {
			t.Fatalf("%v: run npm ci --prefix internal/e2e/node", err)
		}
	}
	engine, err := enginesim.New(enginesim.Settings{
		Seed: 7, OutputTokens: 12, PrefillTokensPerSecond: 200000, DecodeTokensPerSecond: 1000,
	}, enginesim.SystemClock(), enginesim.NewPeers())
	if err != nil {
		t.Fatal(err)
	}
	direct := httptest.NewServer(engine)
	defer direct.Close()
	cert, _ := testcaddy.CertFiles()

	for _, mode := range []string{"single", "disaggregated"} {
		for protocol, version := range map[string]string{"h1": "HTTP/1.1", "h2": "HTTP/2.0"} {
			t.Run(mode+"/"+protocol, func(t *testing.T) {
				site, base := site(t, mode)
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				cmd := exec.CommandContext(ctx, node, "client.mjs", base, direct.URL, mode, protocol)
				cmd.Env = append(os.Environ(), "NODE_EXTRA_CA_CERTS="+cert)
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				for _, part := range parts {
					if !strings.Contains("\n"+string(out), "\nok "+part+"\n") {
						t.Errorf("no word of %q:\n%s", part, out)
					}
				}
				served := site.Log.Access()
				if len(served) == 0 {
					t.Error("nothing is in the access log")
				}
				for _, e := range served {
					request, ok := e.Fields["request"].(map[string]any)
					if !ok || request["proto"] != version {
						t.Errorf("a request came over %v, want %s", request["proto"], version)
					}
				}
				site.WaitMetric(t, 0, "calinix_pod_inflight")
			})
		}
	}
}

// site serves a calinix handler over TLS, and the engines behind it.
func site(t *testing.T, mode string) (*testcaddy.Caddy, string) {
	t.Helper()
	var ports [4]int
	for k := range ports {
		ports[k] = testcaddy.Port(t)
	}
	pods := fmt.Sprintf(`single {
	pod a http://127.0.0.1:%d
	pod b http://127.0.0.1:%d
	pod c http://127.0.0.1:%d
	pod d http://127.0.0.1:%d
}`, ports[0], ports[1], ports[2], ports[3])
	if mode == "disaggregated" {
		pods = fmt.Sprintf(`dispatch {
	prefill {
		pod a http://127.0.0.1:%d
		pod b http://127.0.0.1:%d
	}
	decode {
		pod c http://127.0.0.1:%d
		pod d http://127.0.0.1:%d
	}
}`, ports[0], ports[1], ports[2], ports[3])
	}
	port := testcaddy.Port(t)
	cert, key := testcaddy.CertFiles()
	c := testcaddy.Load(t, fmt.Sprintf(`{
	auto_https disable_redirects
}
https://:%d {
	tls %s %s
	log
	calinix {
		strategy cache_aware
		health {
			timeout 20s
		}
		%s
	}
}
http://:%d, http://:%d, http://:%d, http://:%d {
	bind 127.0.0.1
	%s
}
`, port, cert, key, pods, ports[0], ports[1], ports[2], ports[3], sim))
	testcaddy.WaitTLS(t, fmt.Sprintf("localhost:%d", port))
	return c, fmt.Sprintf("https://localhost:%d", port)
}
