// Package config is the configuration of a balancer: one schema for config.yaml,
// Caddy's JSON and the Caddyfile.
//
// Before the first request a configuration goes this way:
//
//	config.yaml ── Load ──┐
//	Caddyfile ─ Fields ───┼─ Balancer (only what was said) ─ Validate ─ Defaults ─ (effective values)
//	JSON ─ encoding/json ─┘
//
// A [Balancer] holds what the user said and nothing else, so that an adapted
// configuration shows just that. [Balancer.Validate] names every fault by key
// path and pod id; the front ends add file and line. [Balancer.Defaults] fills
// in the rest. What has a name but is not built yet is listed in unavailable.go.
package config
