package calinix

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/calinix/caddy-calinix/config"
)

// Cures that several subdirectives share.
const (
	cureUpstreams = "pods are listed in a block, lines `pod <id> <url>` in `single`"
	cureRetries   = "use retries, retry_budget and retry_status"
	cureProbe     = "probes are plain GET requests, answered with a status from 200 to 299; see health"
	curePassive   = "use health { passive { failures <number> } }"
)

// refusedSubdirectives are those of reverse_proxy that would do what Calinix does
// itself, each with what to use instead.
var refusedSubdirectives = map[string]string{
	"to":                      cureUpstreams,
	"dynamic":                 cureUpstreams,
	"lb_policy":               "use strategy",
	"lb_retries":              cureRetries,
	"lb_try_duration":         cureRetries,
	"lb_try_interval":         cureRetries,
	"lb_retry_match":          cureRetries,
	"health_uri":              "use health { endpoint <path> }",
	"health_path":             "use health { endpoint <path> }",
	"health_interval":         "use health { interval <duration> }",
	"health_timeout":          "use health { timeout <duration> }",
	"health_passes":           "use health { healthy_threshold <number> }",
	"health_fails":            "use health { unhealthy_threshold <number> }",
	"health_headers":          "use health { headers { ... } }",
	"health_port":             cureProbe,
	"health_upstream":         cureProbe,
	"health_status":           cureProbe,
	"health_body":             cureProbe,
	"health_method":           cureProbe,
	"health_request_body":     cureProbe,
	"health_follow_redirects": cureProbe,
	"fail_duration":           "use health { passive { window <duration> } }",
	"max_fails":               curePassive,
	"unhealthy_status":        curePassive,
	"unhealthy_latency":       curePassive,
	"unhealthy_request_count": "use max_conns of a pod",
	"request_buffers":         "bodies are read before the pod is chosen; see max_body_bytes and body_memory_bytes",
	"method":                  "pods get the client's method",
}

// proxyParser collects the subdirectives that are Caddy's reverse_proxy's, blocks
// and all, so that reverse_proxy itself can read them.
type proxyParser struct {
	directive, open, close caddyfile.Token
	names                  []caddyfile.Token
	body                   []caddyfile.Token
}

// openAt remembers the brace that opens the directive's block; d stands behind it.
func (p *proxyParser) openAt(d *caddyfile.Dispenser) {
	if p.open.Text == "" {
		d.Prev()
		p.open = d.Token()
		d.Next()
	}
}

// take takes over the subdirective at which d stands.
func (p *proxyParser) take(d *caddyfile.Dispenser) {
	p.names = append(p.names, d.Token())
	p.body = append(p.body, d.NextSegment()...)
}

// parse reads what was collected; nil if that says nothing.
func (p *proxyParser) parse(h httpcaddyfile.Helper) (*reverseproxy.Handler, error) {
	if len(p.body) == 0 {
		return nil, nil
	}
	tokens := append([]caddyfile.Token{p.directive, p.open}, p.body...)
	tokens = append(tokens, p.close)
	proxy := new(reverseproxy.Handler)
	if err := proxy.UnmarshalCaddyfile(caddyfile.NewDispenser(tokens)); err != nil {
		return nil, p.explain(err)
	}
	if err := proxy.FinalizeUnmarshalCaddyfile(h); err != nil {
		return nil, err
	}
	if said, err := json.Marshal(proxy); err != nil || bytes.Equal(said, []byte("{}")) {
		return nil, err
	}
	return proxy, nil
}

// explain improves on an error about a subdirective that neither side knows.
func (p *proxyParser) explain(err error) error {
	for _, token := range p.names {
		if !unrecognized(err, token.Text) {
			continue
		}
		d := caddyfile.NewDispenser([]caddyfile.Token{token})
		d.Next()
		if near, ok := config.Nearest(token.Text, ownSubdirectives()); ok {
			return d.Errf("unrecognized subdirective %s, did you mean %s?", token.Text, near)
		}
		if sections := sectionsOf(token.Text); sections != nil {
			return d.Errf("unrecognized subdirective %s here: it stands in %s", token.Text, strings.Join(sections, " or in "))
		}
	}
	return err
}

// sectionsOf names the sections of the directive that have a key of that name.
func sectionsOf(name string) (sections []string) {
	var search func(section any, path string)
	search = func(section any, path string) {
		for _, f := range config.Fields(section) {
			_, pods := f.Ptr.(*[]config.Pod)
			if path != "" && (f.JSON == name || pods && name == "pod") {
				sections = append(sections, strings.ReplaceAll(path, ".", " > "))
			}
			if deeper, ok := f.Section(); ok {
				search(deeper, join(path, f.JSON))
			}
		}
	}
	search(new(config.Balancer), "")
	return sections
}
