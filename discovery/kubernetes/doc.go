// Package kubernetes finds pods through the API of a Kubernetes cluster: the
// endpoints of Services, watched by the informers of client-go, so that a change is
// seen within milliseconds and nothing is polled.
//
// It is a Go module of its own, because its client library is larger than all of
// Calinix. A binary that wants it is built with
//
//	xcaddy build --with github.com/calinix/caddy-calinix --with github.com/calinix/caddy-calinix/discovery/kubernetes
//
// and then has the Caddy module calinix.discovery.kubernetes.
package kubernetes
