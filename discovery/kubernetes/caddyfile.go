package kubernetes

import (
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// UnmarshalCaddyfile reads
//
//	kubernetes [<service>] {
//	    namespace          <name>
//	    service_selector   <labels>
//	    pod_selector       <labels>
//	    ports              <name or number...>
//	    scheme             http|https
//	    model_label        <label>
//	    routing_annotation <annotation>
//	    kubeconfig         <file>
//	    context            <name>
//	}
func (s *Source) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the source's name
	if d.NextArg() {
		s.Service = d.Val()
	}
	if d.NextArg() {
		return d.ArgErr()
	}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		key := d.Val()
		if key == "ports" {
			if s.Ports = d.RemainingArgs(); len(s.Ports) == 0 {
				return d.ArgErr()
			}
			continue
		}
		value, ok := map[string]*string{
			"namespace": &s.Namespace, "service": &s.Service, "service_selector": &s.ServiceSelector, "pod_selector": &s.PodSelector,
			"scheme": &s.Scheme, "model_label": &s.ModelLabel, "routing_annotation": &s.RoutingAnnotation,
			"kubeconfig": &s.Kubeconfig, "context": &s.Context,
		}[key]
		if !ok {
			return d.Errf("unrecognized subdirective %s", key)
		}
		if !d.AllArgs(value) {
			return d.ArgErr()
		}
	}
	return nil
}

// Interface guard.
var _ caddyfile.Unmarshaler = (*Source)(nil)
