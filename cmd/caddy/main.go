// Command caddy is the stock Caddy server with the Calinix modules built in.
//
// It exists so that the checkout can be run and debugged without xcaddy:
//
//	go run ./cmd/caddy run --config Caddyfile.example
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/calinix/caddy-calinix"
)

func main() {
	caddycmd.Main()
}
