package calinix_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// TestEngineMetrics: the size of a pod's cache is what its metrics say, if they
// say it and the configuration wants to know.
func TestEngineMetrics(t *testing.T) {
	port := testcaddy.Port(t)
	silent := fakepod.New(t, fakepod.Options{Name: "silent"})
	failing := fakepod.New(t, fakepod.Options{Name: "failing"})
	failing.SetPath("/stats", fakepod.Reply{Status: 404})
	s := &site{balancer: "engine-metrics"}
	body := func(keys string) string {
		return s.body(fmt.Sprintf("%s\nhealth {\ninterval 1h\n}\nsingle {\npod told http://127.0.0.1:%d\npod silent %s\npod failing %s\n}", keys, port, silent.URL, failing.URL)) +
			fmt.Sprintf("\n}\nhttp://:%d {\nbind 127.0.0.1\nrewrite /stats /metrics\ninference_sim {\nname metrics-%d\nblock_size 32\nnum_gpu_blocks 200\n}\n", port, port)
	}
	const on = "engine_metrics {\nenabled on\npath /stats\ninterval 50ms\n}"
	s.Caddy = testcaddy.Serve(t, body(on), testcaddy.Plain())
	tokens := func() string {
		var all []struct {
			CacheTokens *int64
			Room        *int
		}
		if err := json.Unmarshal(s.AdminGet(t, "/calinix/pods?balancer="+s.balancer).Body, &all); err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, p := range all {
			text, _ := json.Marshal([]any{p.CacheTokens, p.Room})
			out = append(out, string(text))
		}
		return strings.Join(out, " ")
	}
	wait := func(want string) {
		t.Helper()
		got := ""
		s.WaitMetrics(t, "caches "+want, func(testcaddy.Metrics) bool { got = tokens(); return got == want })
	}
	const assumed = "[460800,28800]"
	wait("[6400,400] " + assumed + " " + assumed)
	s.Log.Wait(t, 0, "the size", func(e testcaddy.Entry) bool { return e.Msg == "size of a pod's cache" && e.Has("tokens", "6400") })
	for _, pod := range []string{"silent", "failing"} {
		s.Log.Wait(t, 0, "a warning about "+pod, func(e testcaddy.Entry) bool {
			return e.Level == "warn" && e.Msg == "the metrics of a pod do not tell the size of its cache" && e.Has("pod", pod)
		})
	}
	s.Log.AssertAbsent(t, `cache","balancer":"engine-metrics","pod":"told","error"`)

	s.ReloadSite(t, body(on+"\ncache_registry {\nblocks_per_pod 10\n}"))
	wait("[160,10] [160,10] [160,10]")
	s.ReloadSite(t, body(""))
	wait(assumed + " " + assumed + " " + assumed)
}
