package dispatch

import "strconv"

// nixlPush is the push form of vLLM's NIXL connector, NixlPushConnector. Both
// legs are sent at once and carry the same fresh transfer_id: the decode pod
// allocates its blocks and registers them with the prefill pod, whose
// coordinates it is told, and the prefill pod writes them.
//
// remote_request_id is the X-Request-Id of both legs, which is set if the client
// sent none: engines from before the transfer_id match by it. Blocks that are
// not fetched are freed when their lease runs out; a decode leg that is never
// served gives up after decoder_kv_blocks_ttl.
type nixlPush struct{ together }

// together is what connectors with concurrent legs have in common.
type together struct{}

// Traits says that the legs are sent at once.
func (together) Traits() Traits { return Traits{Concurrent: true} }

// RequestID is none: bodies say all.
func (together) RequestID(*Try) string { return "" }

// ReadPrefill takes any reply: the decode leg needs nothing of it.
func (together) ReadPrefill([]byte) (Handover, error) { return Handover{}, nil }

// RequestID is a fresh one if the client sent none.
func (nixlPush) RequestID(t *Try) string {
	if t.RequestID != "" {
		return ""
	}
	return t.ID.String()
}

// Prefill limits the client's body to one token and asks to keep the blocks.
func (nixlPush) Prefill(dst []byte, t *Try) ([]byte, error) {
	params := append([]byte(nil), keepBlocks[:len(keepBlocks)-1]...)
	params = append(params, `,"transfer_id":`...)
	params = append(quoted(params, transferID(t)), '}')
	return prefillWith(dst, t, kvTransferParams, params)
}

// Decode tells the decode pod who will write the blocks.
func (c nixlPush) Decode(dst []byte, t *Try, _ Handover) ([]byte, error) {
	p, id := t.Prefill, t.RequestID
	if id == "" {
		id = c.RequestID(t)
	}
	params := append([]byte(nil), `{"do_remote_decode":false,"do_remote_prefill":true,"remote_engine_id":`...)
	params = quoted(params, p.EngineID)
	params = quoted(append(params, `,"remote_host":`...), p.KVHost)
	params = strconv.AppendInt(append(params, `,"remote_port":`...), int64(p.KVPort), 10)
	params = strconv.AppendInt(append(params, `,"tp_size":`...), int64(p.TPSize), 10)
	params = strconv.AppendInt(append(params, `,"pp_size":`...), int64(p.PPSize), 10)
	params = quoted(append(params, `,"remote_request_id":`...), id)
	params = quoted(append(params, `,"transfer_id":`...), transferID(t))
	return decodeWith(dst, t, kvTransferParams, append(params, '}'))
}

// transferID is how vLLM's proxies spell it.
func transferID(t *Try) string { return "xfer-" + t.ID.String() }
