// Package house holds the rules of the house as tests: which room may import
// which, that only the root knows Caddy, and that no room but the root reads the
// clock. docs/architecture.md says why.
package house
