// Package calinix is a cache-aware load balancer for LLM inference, built as a
// set of Caddy modules: the handler calinix, the selection policy cache_aware for
// a stock reverse_proxy, the config adapter calinix for config.yaml, the admin
// routes below /calinix/, the simulated engine inference_sim, and the command
// `caddy calinix`.
//
// This package is Caddy's side only. The way of a request: handler.go makes an
// exchange of it (exchange.go), which reads it (exchange_prepare.go) and asks
// package fleet for its pods (exchange_pick.go); serve.go and disaggregate.go run
// legs (leg.go) through Caddy's own proxy, over a transport (transport.go) that
// notes what was seen; package outcome says what follows. State lives in a
// balancer (balancer.go) that outlives configurations (app.go).
package calinix
