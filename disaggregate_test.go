package calinix_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// dispatchSite is a calinix directive with these prefill and decode pods.
func dispatchSite(prefill, decode fakepod.Pods, more ...string) string {
	list := func(pods fakepod.Pods) string {
		var b strings.Builder
		for _, p := range pods {
			fmt.Fprintf(&b, "pod %s %s\n", p.Name, p.URL)
		}
		return b.String()
	}
	return "calinix {\n" + strings.Join(more, "\n") + "\ndispatch {\nprefill {\n" + list(prefill) + "}\ndecode {\n" + list(decode) + "}\n}\n}\n"
}

const question = `{"model":"m","messages":[{"role":"user","content":"What is the answer?"}],"max_tokens":9}`

func TestDispatchRunsBothLegs(t *testing.T) {
	prefill, decode := fakepod.NewPods(t, fakepod.Options{}, "p1"), fakepod.NewPods(t, fakepod.Options{}, "d1")
	prefill.Pod("p1").Set(fakepod.Reply{KV: []byte(`{"remote_engine_id":"e-1","remote_block_ids":[1,9007199254740993]}`)})
	c := testcaddy.Serve(t, dispatchSite(prefill, decode))
	c.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		a := cl.Post(t, "/v1/chat/completions", question)
		if a.Status != 200 || a.Pod() != "d1" {
			t.Fatalf("got %s", a)
		}
		p, d := prefill.Pod("p1").Last(t), decode.Pod("d1").Last(t)
		if got, want := string(d.Body), strings.TrimSuffix(question, "}")+`,"kv_transfer_params":{"remote_engine_id":"e-1","remote_block_ids":[1,9007199254740993]}}`; got != want {
			t.Errorf("decode leg:\n%s\nwant\n%s", got, want)
		}
		for _, want := range []string{`"max_tokens":1`, `"max_completion_tokens":1`, `"stream":false`, `"do_remote_decode":true`} {
			if !strings.Contains(string(p.Body), want) {
				t.Errorf("prefill leg lacks %s: %s", want, p.Body)
			}
		}
	})
}
