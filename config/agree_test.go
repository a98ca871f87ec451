package config

import "testing"

const agreed = `
version: 1
gateway: {name: shared, blockSize: 32}
health: {intervalMs: 5000}
upstreams:
  single: {pods: [{id: a, url: "http://a"}, {id: b, url: "http://b"}]}
`

func TestAgree(t *testing.T) {
	for _, c := range []struct{ name, yaml, want string }{
		{"the same", agreed, ""},
		{
			"the same in other words, and what is each place's own",
			`
version: 1
gateway: {name: shared, blockSize: 32, maxTokenBytes: 16, retries: 3, strategy: random, weights: {single: {cache: 1}}}
health: {intervalMs: 5000, endpoint: /health}
upstreams:
  single: {pods: [{id: b, url: "http://b/"}, {id: a, url: "http://A:80", node: a, draining: false}]}
`, "",
		},
		{
			"block size",
			`
version: 1
gateway: {name: shared}
health: {intervalMs: 5000}
upstreams:
  single: {pods: [{id: a, url: "http://a"}, {id: b, url: "http://b"}]}
`, `block_size: 32 here, 16 in another place of balancer "shared"`,
		},
		{
			"a key of a section that is not given",
			`
version: 1
gateway: {name: shared, blockSize: 32}
upstreams:
  single: {pods: [{id: a, url: "http://a"}, {id: b, url: "http://b"}]}
`, `health.interval: 5s here, 2s in another place of balancer "shared"`,
		},
		{
			"a pod less",
			`
version: 1
gateway: {name: shared, blockSize: 32}
health: {intervalMs: 5000}
upstreams:
  single: {pods: [{id: a, url: "http://a"}]}
`, `single.pods[1] ("b"): this pod is missing in another place of balancer "shared"`,
		},
		{
			"a pod more",
			`
version: 1
gateway: {name: shared, blockSize: 32}
health: {intervalMs: 5000}
upstreams:
  single: {pods: [{id: a, url: "http://a"}, {id: b, url: "http://b"}, {id: c, url: "http://c"}]}
`, `pod "c" is missing here, but not in another place of balancer "shared"`,
		},
		{
			"a pod's address",
			`
version: 1
gateway: {name: shared, blockSize: 32}
health: {intervalMs: 5000}
upstreams:
  single: {pods: [{id: a, url: "http://a:81"}, {id: b, url: "http://b"}]}
`, `single.pods[0] ("a"): this pod is described differently in another place of balancer "shared"`,
		},
		{
			"a pod's role",
			`
version: 1
gateway: {name: shared, blockSize: 32}
health: {intervalMs: 5000}
upstreams:
  dispatch: {prefill: {pods: [{id: a, url: "http://a"}]}, decode: {pods: [{id: b, url: "http://b"}]}}
`, `single.pods[0] ("a"): this pod is described differently in another place of balancer "shared"`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := ""
			if err := Agree(mustLoad(t, agreed), mustLoad(t, c.yaml)); err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}
