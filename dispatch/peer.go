package dispatch

import (
	"net"
	"strconv"
)

// Peer is what connectors know of a pod besides where its requests go. All of
// it comes from the configuration, but for the EngineID with Traits.AsksEngine.
type Peer struct {
	// BootstrapHost and BootstrapPort are where decode engines find this
	// prefill engine's bootstrap server: SGLang's, or that of vLLM's
	// MooncakeConnector.
	BootstrapHost string
	BootstrapPort int
	// KVHost and KVPort are where the engine's KV transfer listens: the side
	// channel of NIXL, the ZMQ address of P2pNccl.
	KVHost string
	KVPort int
	// EngineID is what the engine calls itself among engines.
	EngineID string
	// TPSize and PPSize are the engine's tensor and pipeline parallel sizes.
	TPSize, PPSize int
	// Rank is the data-parallel rank that the pod stands for, if HasRank.
	Rank    int
	HasRank bool
}

// bootstrap is host:port of the bootstrap server.
func (p *Peer) bootstrap() string {
	return net.JoinHostPort(p.BootstrapHost, strconv.Itoa(p.BootstrapPort))
}

// BootstrapURL is where the bootstrap server is asked for its engines.
func (p *Peer) BootstrapURL() string { return "http://" + p.bootstrap() + "/query" }
