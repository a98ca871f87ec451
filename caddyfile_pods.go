package calinix

import (
	"encoding/json"
	"fmt"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/calinix/caddy-calinix/config"
	"github.com/calinix/caddy-calinix/discovery"
)

// podLine reads a pod: its id, its URL and what else is said of it.
func (p *keyParser) podLine(pods *[]config.Pod, list string) error {
	path := fmt.Sprintf("%s[%d]", list, len(*pods))
	var pod config.Pod
	if err := p.note(path); err != nil {
		return err
	}
	if !p.d.AllArgs(&pod.ID, &pod.URL) {
		return p.errorf(path, "want pod <id> <url>")
	}
	p.pod = pod.ID
	defer func() { p.pod = "" }()
	// id and url have their place in the line and are no keys.
	var keys []config.Field
	for _, f := range config.Fields(&pod) {
		if f.JSON != "id" && f.JSON != "url" {
			keys = append(keys, f)
		}
	}
	if err := p.block(keys, path); err != nil {
		return err
	}
	*pods = append(*pods, pod)
	return nil
}

// sourceLine reads what finds pods: discover, the name of the source, and what
// that source's module reads itself.
func (p *keyParser) sourceLine(sources *[]json.RawMessage, list string) error {
	path := fmt.Sprintf("%s[%d]", list, len(*sources))
	if err := p.note(path); err != nil {
		return err
	}
	if !p.d.NextArg() {
		return p.errorf(path, "want discover <source> ..., with the name of a source such as dns or file")
	}
	name := p.d.Val()
	id := discovery.Namespace + "." + name
	if _, err := caddy.GetModule(id); err != nil {
		return p.errorf(path, noSource, name)
	}
	module, err := caddyfile.UnmarshalModule(p.d, id)
	if err != nil {
		return err
	}
	*sources = append(*sources, caddyconfig.JSONModuleObject(module, "source", name, nil))
	return nil
}
