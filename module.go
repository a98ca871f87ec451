// Package calinix is a cache-aware load balancer for LLM inference, built as a
// set of Caddy modules.
package calinix
