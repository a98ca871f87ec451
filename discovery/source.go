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
	// Watch tells sink all pods that there are, first as soon as it knows them and
	// then whenever they change, and returns soon after ctx has ended.
	Watch(ctx context.Context, sink Sink)
}

// Sink takes what a source finds. Its methods are called from one goroutine at a
// time and return when what they were told is in effect.
type Sink interface {
	// Found replaces the list's pods, and takes over the slice. The same list may
	// come twice. A pod needs an ID and a URL; Draining makes it finish its streams
	// and get nothing new. An empty list means that there are no pods. It says
	// nothing of whether the source fails.
	Found(pods []config.Pod)
	// Failing says that the source cannot find out all that it should, nil that it
	// can again. The pods known last stay until the next Found, which may come while
	// the source still fails.
	Failing(err error)
}
