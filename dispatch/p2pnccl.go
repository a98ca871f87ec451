package dispatch

import (
	"net"
	"strconv"
)

// p2pnccl is vLLM's P2pNcclConnector. The engines read each other's ZMQ address
// out of the request's id, so the same X-Request-Id goes to both, whatever the
// client's was; bodies carry nothing. The legs follow each other: the prefill pod
// pushes the blocks to the decode pod that the id names.
//
// Not verified: from vLLM 0.14 on the engines append random digits to request
// ids, which breaks this unless VLLM_DISABLE_REQUEST_ID_RANDOMIZATION=1 is set on
// all of them; the flag may go in a later version.
type p2pnccl struct{}

// Traits says that what is handed over is for one decode pod.
func (p2pnccl) Traits() Traits { return Traits{Bound: true} }

// RequestID names the addresses of both pods.
func (p2pnccl) RequestID(t *Try) string {
	at := func(p *Peer) string { return net.JoinHostPort(p.KVHost, strconv.Itoa(p.KVPort)) }
	return "___prefill_addr_" + at(t.Prefill) + "___decode_addr_" + at(t.Decode) + "_" + t.ID.hex()
}

// Prefill limits the client's body to one token.
func (p2pnccl) Prefill(dst []byte, t *Try) ([]byte, error) { return plain{}.Prefill(dst, t) }

// ReadPrefill takes any reply: its status has said all.
func (p2pnccl) ReadPrefill([]byte) (Handover, error) { return Handover{}, nil }

// Decode returns the client's body.
func (p2pnccl) Decode(dst []byte, t *Try, _ Handover) ([]byte, error) { return asIs(dst, t.Body) }
