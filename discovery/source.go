// Package discovery is how pods are found while Calinix runs.
//
// A source is a Caddy module below calinix.discovery. It belongs to one list of
// pods of one balancer (single, or the prefill or the decode leg) and reports all
// pods that the list should have, again and again; Calinix works out what came and
// what went. Those that went finish the streams that they have.
//
// Sources in this tree: dns and file. discovery/kubernetes is a Go module of its
// own, so that its client library is only in binaries that want it.
package discovery

import (
	"context"

	"github.com/calinix/caddy-calinix/config"
)

// Namespace is where Caddy looks for sources: the module of the source dns is
// calinix.discovery.dns.
const Namespace = "calinix.discovery"

// Source finds pods. It is provisioned by Caddy before it is watched.
type Source interface {
	// Watch calls report with all pods that there are, first as soon as it knows
	// them and then whenever they change, and returns when ctx ends. The same
	// list may be reported twice. report takes over the slice, may be called from
	// one goroutine at a time, and returns when the fleet has the pods.
	//
	// A pod needs an ID and a URL; Draining makes it finish its streams and get
	// nothing new. A source that cannot reach what it asks reports nothing, so
	// that the pods known last stay, and says so in the log; an empty list means
	// that there are none.
	Watch(ctx context.Context, report func([]config.Pod))
}
