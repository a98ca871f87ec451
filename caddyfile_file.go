package calinix

import (
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"github.com/caddyserver/caddy/v2/modules/caddytls"

	"github.com/calinix/caddy-calinix/config"
)

// readFile fills the handler from the config.yaml that the Caddyfile names.
// Caddy's own subdirectives may stand beside it, calinix's may not.
func (h *Handler) readFile(arg caddyfile.Token, keys *keyParser) error {
	d := caddyfile.NewDispenser([]caddyfile.Token{arg})
	d.Next()
	for _, f := range config.Fields(&h.Balancer) {
		if place, ok := keys.places[f.JSON]; ok {
			return d.Errf("%s (line %d) cannot stand beside config: it belongs into %s", f.JSON, place.Line, arg.Text)
		}
	}
	path := arg.Text
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(arg.File), path)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return d.Errf("reading the configuration: %w", err)
	}
	file, _, err := config.Load(path, data)
	if err != nil {
		return d.WrapErr(err)
	}
	if h.Proxy != nil && h.Proxy.TransportRaw != nil && file.Transport != nil {
		return d.Errf("transport is given here and in %s, want one", path)
	}
	h.take(file)
	return nil
}

// take takes over what a config.yaml says; what Proxy already has stays.
func (h *Handler) take(file *config.File) {
	h.Balancer = file.Balancer
	raw := transportJSON(file.Transport)
	if raw == nil {
		return
	}
	if h.Proxy == nil {
		h.Proxy = new(reverseproxy.Handler)
	}
	h.Proxy.TransportRaw = raw
}

// transportJSON turns config.yaml's transport into the JSON of Caddy's, the same
// that `transport http { … }` in a Caddyfile gives; nil if it says nothing.
func transportJSON(t *config.Transport) json.RawMessage {
	if t == nil {
		return nil
	}
	out := reverseproxy.HTTPTransport{
		DialTimeout:           durationOf(t.DialTimeout),
		ResponseHeaderTimeout: durationOf(t.ResponseHeaderTimeout),
		Versions:              t.Versions,
	}
	said := t.DialTimeout != nil || len(t.Versions) > 0 || out.ResponseHeaderTimeout != 0
	if k := t.KeepAlive; k != nil {
		said = true
		out.KeepAlive = &reverseproxy.KeepAlive{IdleConnTimeout: durationOf(k)}
		if *k == 0 {
			out.KeepAlive.Enabled = new(false)
		}
	}
	if s := t.TLS; s != nil {
		tls := reverseproxy.TLSConfig{ServerName: s.ServerName, InsecureSkipVerify: s.InsecureSkipVerify != nil && *s.InsecureSkipVerify}
		if s.CAFile != "" {
			pool := caddytls.FileCAPool{TrustedCACertPEMFiles: []string{s.CAFile}}
			tls.CARaw = caddyconfig.JSONModuleObject(pool, "provider", "file", nil)
		}
		// An empty section asks for nothing; Caddy would take it for a wish for TLS.
		if tls.ServerName != "" || tls.InsecureSkipVerify || tls.CARaw != nil {
			said = true
			out.TLS = &tls
		}
	}
	if !said {
		return nil
	}
	return caddyconfig.JSONModuleObject(&out, "protocol", "http", nil)
}

func durationOf(d *config.Duration) caddy.Duration {
	if d == nil {
		return 0
	}
	return caddy.Duration(time.Duration(*d))
}
