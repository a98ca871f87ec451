package calinix

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/calinix/caddy-calinix/config"
)

// newPodTransport loads Caddy's HTTP transport from raw (JSON of
// http.reverse_proxy.transport.http, may be empty) twice. withTLS makes https
// pods possible where raw has no tls settings of its own.
func newPodTransport(ctx caddy.Context, raw json.RawMessage, withTLS bool) (*podTransport, error) {
	settings, err := transportSettings(raw, withTLS)
	if err != nil {
		return nil, err
	}
	pooled, err := loadTransport(ctx, settings)
	if err != nil {
		return nil, err
	}
	settings["keep_alive"] = map[string]any{"enabled": false}
	fresh, err := loadTransport(ctx, settings)
	if err != nil {
		return nil, err
	}
	return &podTransport{pooled: pooled, fresh: fresh}, nil
}

// idleConnsPerPod is how many idle connections are kept: one stream a connection
// makes Caddy's 32 too few for a pod.
const idleConnsPerPod = 1024

// transportSettings merges our defaults below the user's settings. A transport that
// adds Accept-Encoding would change the pod's answer, so there is no compression.
func transportSettings(raw json.RawMessage, withTLS bool) (map[string]any, error) {
	settings := map[string]any{}
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &settings); err != nil {
			return nil, fmt.Errorf("decoding transport: %w", err)
		}
	}
	if p, ok := settings["protocol"]; ok && p != "http" {
		return nil, fmt.Errorf("transport %q: pods speak HTTP, want transport http", p)
	}
	delete(settings, "protocol")
	if _, ok := settings["proxy_protocol"]; ok {
		return nil, errors.New("transport: proxy_protocol is not supported: probes have no client to tell of; X-Forwarded-For has the client's address")
	}
	setDefault(settings, "compression", false)
	setDefault(settings, "versions", []string{"1.1"})
	if withTLS {
		setDefault(settings, "tls", map[string]any{})
	}
	if tls, ok := settings["tls"].(map[string]any); ok {
		// A pod that accepts and never shakes hands is as gone as one that
		// never accepts; without a limit its requests would wait for ever.
		setDefault(settings, "dial_timeout", int64(config.DefaultDialTimeout))
		setDefault(tls, "handshake_timeout", settings["dial_timeout"])
	}
	keep, ok := settings["keep_alive"].(map[string]any)
	if !ok {
		keep = map[string]any{}
		settings["keep_alive"] = keep
	}
	setDefault(keep, "idle_timeout", int64(config.DefaultKeepAlive))
	setDefault(keep, "max_idle_conns_per_host", idleConnsPerPod)
	return settings, nil
}

func setDefault(m map[string]any, key string, value any) {
	if _, ok := m[key]; !ok {
		m[key] = value
	}
}

func loadTransport(ctx caddy.Context, settings map[string]any) (*reverseproxy.HTTPTransport, error) {
	raw, err := json.Marshal(settings)
	if err != nil {
		return nil, fmt.Errorf("encoding transport: %w", err)
	}
	mod, err := ctx.LoadModuleByID("http.reverse_proxy.transport.http", raw)
	if err != nil {
		return nil, fmt.Errorf("loading transport: %w", err)
	}
	return mod.(*reverseproxy.HTTPTransport), nil
}
