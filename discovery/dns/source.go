package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/miekg/dns"

	"github.com/calinix/caddy-calinix/config"
	"github.com/calinix/caddy-calinix/discovery"
)

func init() {
	caddy.RegisterModule(new(Source))
}

// Source asks the DNS for the pods of a list.
//
// A pod's id is its address and port, or for SRV records the target's name and
// port. A name that does not exist, or has no such records, has no pods: that is
// how headless Kubernetes services without ready pods look. When no name server
// answers, or they fail, the pods known last stay.
type Source struct {
	// The name to look up. Without a dot at its end the system's search domains
	// are tried as usual.
	Name string `json:"name,omitempty"`

	// The port of the pods; SRV records bring their own.
	Port int `json:"port,omitempty"`

	// What is looked up: address (A and AAAA), a, aaaa or srv. Default: address.
	Type string `json:"type,omitempty"`

	// http or https. Default: http.
	Scheme string `json:"scheme,omitempty"`

	// Name servers as host or host:port, tried in this order. Default: the
	// system's (/etc/resolv.conf).
	Resolvers []string `json:"resolvers,omitempty"`

	// Answers are never kept for less than this. Default: 1s.
	MinTTL caddy.Duration `json:"min_ttl,omitempty"`

	// Answers are never kept for longer than this. Default: 30s.
	MaxTTL caddy.Duration `json:"max_ttl,omitempty"`

	// The time that a name server has for an answer. Default: 2s.
	Timeout caddy.Duration `json:"timeout,omitempty"`

	types  []uint16
	lookup lookup
}

// CaddyModule returns the Caddy module information.
func (*Source) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: discovery.Namespace + ".dns", New: func() caddy.Module { return new(Source) }}
}

// recordTypes are the values of Type.
var recordTypes = map[string][]uint16{
	"":        {dns.TypeA, dns.TypeAAAA},
	"address": {dns.TypeA, dns.TypeAAAA},
	"a":       {dns.TypeA},
	"aaaa":    {dns.TypeAAAA},
	"srv":     {dns.TypeSRV},
}

// Provision checks the settings and fills in their defaults.
func (s *Source) Provision(caddy.Context) error {
	var ok bool
	if s.types, ok = recordTypes[s.Type]; !ok {
		return fmt.Errorf("dns: type %q: want address, a, aaaa or srv", s.Type)
	}
	if _, ok := dns.IsDomainName(s.Name); !ok || s.Name == "" {
		return fmt.Errorf("dns: name %q: want a name to look up", s.Name)
	}
	srv := s.Type == "srv"
	switch {
	case srv && s.Port != 0:
		return errors.New("dns: port: SRV records bring their own port, leave this one out")
	case !srv && (s.Port < 1 || s.Port > 65535):
		return fmt.Errorf("dns: port %d: want the port of the pods, 1 to 65535", s.Port)
	}
	switch s.Scheme {
	case "":
		s.Scheme = "http"
	case "http", "https":
	default:
		return fmt.Errorf("dns: scheme %q: want http or https", s.Scheme)
	}
	for _, d := range []struct {
		name    string
		value   *caddy.Duration
		without time.Duration
	}{{"min_ttl", &s.MinTTL, time.Second}, {"max_ttl", &s.MaxTTL, 30 * time.Second}, {"timeout", &s.Timeout, 2 * time.Second}} {
		if *d.value < 0 {
			return fmt.Errorf("dns: %s: want no negative time", d.name)
		}
		if *d.value == 0 {
			*d.value = caddy.Duration(d.without)
		}
	}
	if s.MinTTL > s.MaxTTL {
		return fmt.Errorf("dns: min_ttl %v is longer than max_ttl %v", time.Duration(s.MinTTL), time.Duration(s.MaxTTL))
	}
	var err error
	s.lookup, err = newLookup(s.Name, s.Resolvers, time.Duration(s.Timeout))
	return err
}

// Watch implements [discovery.Source].
func (s *Source) Watch(ctx context.Context, sink discovery.Sink) {
	for {
		pods, ttl, err := s.ask(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			sink.Failing(err)
		default:
			sink.Found(pods)
			sink.Failing(nil)
		}
		timer := time.NewTimer(min(max(ttl, time.Duration(s.MinTTL)), time.Duration(s.MaxTTL)))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// ask looks all record types up. The time is that for which the answers hold.
func (s *Source) ask(ctx context.Context) ([]config.Pod, time.Duration, error) {
	ttl := time.Duration(s.MaxTTL)
	var hosts []string // host:port
	for _, qtype := range s.types {
		a, err := s.lookup.find(ctx, qtype)
		if err != nil {
			return nil, 0, err
		}
		ttl = min(ttl, a.ttl)
		for _, rr := range a.records {
			switch rr := rr.(type) {
			case *dns.A:
				hosts = append(hosts, net.JoinHostPort(rr.A.String(), strconv.Itoa(s.Port)))
			case *dns.AAAA:
				hosts = append(hosts, net.JoinHostPort(rr.AAAA.String(), strconv.Itoa(s.Port)))
			case *dns.SRV:
				if target := strings.TrimSuffix(rr.Target, "."); target != "" { // "." says that there is no such service
					hosts = append(hosts, net.JoinHostPort(target, strconv.Itoa(int(rr.Port))))
				}
			}
		}
	}
	slices.Sort(hosts) // servers rotate their answers
	hosts = slices.Compact(hosts)
	pods := make([]config.Pod, len(hosts))
	for i, h := range hosts {
		pods[i] = config.Pod{ID: h, URL: s.Scheme + "://" + h}
	}
	return pods, ttl, nil
}

// UnmarshalCaddyfile reads
//
//	dns <name> [<port>] {
//	    type      address|a|aaaa|srv
//	    scheme    http|https
//	    resolvers <host[:port]...>
//	    min_ttl   <duration>
//	    max_ttl   <duration>
//	    timeout   <duration>
//	}
func (s *Source) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the source's name
	args := d.RemainingArgs()
	switch len(args) {
	case 2:
		port, err := strconv.Atoi(args[1])
		if err != nil {
			return d.Errf("port %q is not a number", args[1])
		}
		s.Port = port
		fallthrough
	case 1:
		s.Name = args[0]
	default:
		return d.ArgErr()
	}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		key := d.Val()
		if key == "resolvers" {
			if s.Resolvers = d.RemainingArgs(); len(s.Resolvers) == 0 {
				return d.ArgErr()
			}
			continue
		}
		var value string
		if !d.AllArgs(&value) {
			return d.ArgErr()
		}
		duration := func(out *caddy.Duration) error {
			v, err := caddy.ParseDuration(value)
			if err != nil {
				return d.Errf("%s: %v", key, err)
			}
			*out = caddy.Duration(v)
			return nil
		}
		var err error
		switch key {
		case "type":
			s.Type = value
		case "scheme":
			s.Scheme = value
		case "min_ttl":
			err = duration(&s.MinTTL)
		case "max_ttl":
			err = duration(&s.MaxTTL)
		case "timeout":
			err = duration(&s.Timeout)
		default:
			return d.Errf("unrecognized subdirective %s, want type, scheme, resolvers, min_ttl, max_ttl or timeout", key)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Interface guards.
var (
	_ discovery.Source      = (*Source)(nil)
	_ caddy.Provisioner     = (*Source)(nil)
	_ caddyfile.Unmarshaler = (*Source)(nil)
)
