package config

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the expected errors of testdata anew")

// TestRefusals reads testdata/refusals.txt.
func TestRefusals(t *testing.T) {
	const file = "testdata/refusals.txt"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(text), "\n=== ")
	out := parts[0]
	for _, part := range parts[1:] {
		name, rest, _ := strings.Cut(part, "\n")
		input, want, ok := strings.Cut("\n"+rest, "\n----")
		if !ok {
			t.Fatalf("case %q has no line of dashes", name)
		}
		input = strings.TrimPrefix(input, "\n")
		_, _, err := Load("config.yaml", []byte(input))
		if err == nil {
			t.Errorf("%s: was accepted", name)
			continue
		}
		if got := err.Error(); got != strings.TrimSpace(want) {
			if !*rewrite {
				t.Errorf("%s:\ngot:\n%s\nwant:\n%s", name, got, strings.TrimSpace(want))
			}
		}
		if input != "" {
			input += "\n"
		}
		out += fmt.Sprintf("\n=== %s\n%s----\n%s\n", name, input, err)
	}
	if *rewrite {
		if err := os.WriteFile(file, []byte(strings.TrimRight(out, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLoadSeed accepts the seed's published file and takes over every value.
func TestLoadSeed(t *testing.T) {
	data, err := os.ReadFile("testdata/seed.yaml")
	if err != nil {
		t.Fatal(err)
	}
	f, warnings, err := Load("config.yaml", data)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"strategy":"cacheAware","block_size":16,` +
		`"health":{"endpoint":"/health","interval":2000000000,"timeout":500000000,"healthy_threshold":2,"unhealthy_threshold":3},` +
		`"cache_registry":{"enabled":true,"max_pods":256,"shards_count":256,"stale_ttl":30000000000},` +
		`"single":{"pods":[{"id":"single-1","url":"http://single-1:8000","healthy":true,"draining":false,"max_conns":100,"capabilities":{"single":true,"prefill":false,"decode":false}}]},` +
		`"dispatch":{"prefill":{"pods":[{"id":"prefill-1","url":"http://prefill-1:8000","healthy":true,"draining":false,"max_conns":100,"capabilities":{"single":false,"prefill":true,"decode":false}}]},` +
		`"decode":{"pods":[{"id":"decode-1","url":"http://decode-1:8000","healthy":true,"draining":false,"max_conns":100,"capabilities":{"single":false,"prefill":false,"decode":true}}]}}}`
	if got := marshal(t, f.Balancer); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if f.Port != 8080 || f.Transport != nil {
		t.Errorf("port %d, transport %v", f.Port, f.Transport)
	}
	if len(warnings) != 1 || warnings[0].Line != 16 || warnings[0].Key != "cacheRegistry.staleTtlMs" {
		t.Errorf("want one warning, about staleTtlMs on line 16, got %v", warnings)
	}
}

// TestLoadForms checks what YAML allows beyond plain keys.
func TestLoadForms(t *testing.T) {
	const pod = `"single":{"pods":[{"id":"a","url":"http://a"}]}`
	for _, c := range []struct{ name, yaml, want string }{
		{
			"null sections are no sections",
			"version: 1\ngateway:\nhealth: null\ncacheRegistry: ~\nsessions:\nengineMetrics:\ntransport:\nupstreams: {dispatch: null, single: {mode: null, pods: [{id: a, url: 'http://a', node: }]}}",
			`{"strategy":"cacheAware",` + pod + `}`,
		},
		{
			"an empty list of the other mode",
			"version: 1\nupstreams: {single: {pods: [{id: a, url: 'http://a'}]}, dispatch: {mode: dispatch, prefill: {pods: []}, decode: {pods: []}}}",
			`{"strategy":"cacheAware",` + pod + `,"dispatch":{"prefill":{},"decode":{}}}`,
		},
		{
			"snake case names are the same names",
			"version: 1\ngateway: {strategy: least_loaded, tieBreak: pod_id}\nupstreams: {single: {pods: [{id: a, url: 'http://a'}]}}",
			`{"strategy":"leastLoaded","tie_break":"podId",` + pod + `}`,
		},
		{
			"anchors, aliases and merges",
			"version: 1\nhealth: {intervalMs: &ms 700, timeoutMs: *ms}\nupstreams:\n  single:\n    pods:\n" +
				"      - &pod {id: a, url: 'http://a', maxConns: 4, node: n}\n" +
				"      - {<<: *pod, id: b, url: 'http://b'}\n" +
				"      - {<<: [{maxConns: 8}, *pod], id: c, url: 'http://c'}\n",
			`{"strategy":"cacheAware","health":{"interval":700000000,"timeout":700000000},"single":{"pods":[` +
				`{"id":"a","url":"http://a","max_conns":4,"node":"n"},` +
				`{"id":"b","url":"http://b","max_conns":4,"node":"n"},` +
				`{"id":"c","url":"http://c","max_conns":8,"node":"n"}]}}`,
		},
		{
			"zero where zero means something",
			"version: 1\ngateway: {maxTokenBytes: 0, retries: 0, retryBudget: 0, responseHeaders: false, retryStatus: []}\n" +
				"health: {headers: {}, passive: {failures: 0}}\ncacheRegistry: {enabled: false, staleTtlMs: 0, blocksPerPod: 0}\n" +
				"engineMetrics: {enabled: false}\nupstreams: {single: {pods: [{id: a, url: 'http://a'}]}}",
			`{"strategy":"cacheAware","max_token_bytes":0,"response_headers":false,"retries":0,"retry_budget":0,` +
				`"health":{"passive":{"failures":0}},"cache_registry":{"enabled":false,"stale_ttl":0,"blocks_per_pod":0},` +
				`"engine_metrics":{"enabled":false},` + pod + `}`,
		},
		{
			"a whole number as a weight, other bases",
			"version: 1\ngateway: {weights: {single: {cache: 1}}, blockSize: 0x20}\nupstreams: {single: {pods: [{id: a, url: 'http://a'}]}}",
			`{"strategy":"cacheAware","block_size":32,"weights":{"single":{"cache":1}},` + pod + `}`,
		},
		{
			"a byte order mark and carriage returns",
			"\ufeffversion: 1\r\nupstreams: {single: {pods: [{id: a, url: 'http://a'}]}}\r\n",
			`{"strategy":"cacheAware",` + pod + `}`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, _, err := Load("config.yaml", []byte(c.yaml))
			if err != nil {
				t.Fatal(err)
			}
			if got := marshal(t, f.Balancer); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// TestLoadTransport checks the section that has no place in a balancer.
func TestLoadTransport(t *testing.T) {
	f, _, err := Load("config.yaml", []byte(`
version: 1
gateway: {port: 9000}
transport:
  dialTimeoutMs: 1000
  keepaliveMs: 0
  tls: {caFile: ca.pem, insecureSkipVerify: false, serverName: engines}
  versions: ["1.1", "2"]
upstreams: {single: {pods: [{id: a, url: "http://a"}]}}
`))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"dial_timeout":1000000000,"keepalive":0,"response_header_timeout":null,` +
		`"tls":{"ca_file":"ca.pem","insecure_skip_verify":false,"server_name":"engines"},"versions":["1.1","2"]}`
	if got := marshal(t, f.Transport); got != want || f.Port != 9000 {
		t.Errorf("port %d\ngot  %s\nwant %s", f.Port, got, want)
	}
}

// TestLoadBounds refuses files that would cost more than a configuration may.
func TestLoadBounds(t *testing.T) {
	if _, _, err := Load("c.yaml", make([]byte, MaxFileBytes+1)); err == nil {
		t.Error("a file above MaxFileBytes was accepted")
	}
	// Each mapping merges the one before ten times: 10^7 keys if all were read.
	bomb := "version: 1\ngateway:\n  a0: &a0 {k: 1}\n"
	for i := range 7 {
		bomb += fmt.Sprintf("  a%d: &a%d {<<: [%s]}\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*a%d,", i), 10))
	}
	bomb += "  <<: *a7\n"
	if _, _, err := Load("c.yaml", []byte(bomb)); err == nil || !strings.Contains(err.Error(), tooManyMerges) {
		t.Errorf("want a refusal for the merges, got %v", err)
	}
	many := "version: 1\nupstreams: {single: {pods: [" + strings.Repeat("{id: a, url: 'http://a'},", 300) + "]}}"
	_, _, err := Load("c.yaml", []byte(many))
	if err == nil || !strings.HasSuffix(err.Error(), "\nand 236 more") {
		t.Errorf("want 20 faults and the number of the others, got %v", err)
	}
	var pods []string
	for i := range MaxPods + 1 {
		pods = append(pods, fmt.Sprintf("\n- {id: p%d, url: 'http://p%d'}", i, i))
	}
	at := func(n int) (err error) {
		_, _, err = Load("c.yaml", []byte("version: 1\nupstreams:\n single:\n  pods:"+strings.ReplaceAll(strings.Join(pods[:n], ""), "\n", "\n   ")))
		return err
	}
	if err := at(MaxPods); err != nil {
		t.Errorf("256 pods: %v", err)
	}
	if err := at(MaxPods + 1); err == nil || err.Error() != `c.yaml:261: upstreams.single.pods[256] ("p256"): one pod more than the 256 that are allowed` {
		t.Errorf("257 pods: %v", err)
	}
}

func marshal(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
