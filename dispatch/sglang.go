package dispatch

import (
	"strconv"

	"github.com/calinix/caddy-calinix/jsonedit"
)

// sglang is SGLang's disaggregation. Both legs are sent at once and carry where
// the prefill pod's bootstrap server is (bootstrap_host, bootstrap_port, default
// 8998) and a room, a fresh number of 63 bits, in which the engines meet. For
// several answers (n, or several prompts) all three are lists of that length.
//
// SGLang's own gateway sends the same body to both pods; as AIBrix does, the
// prefill leg is cut to one token and not streamed here, so that its status says
// how it ended. Servers that run in one of the two modes take no request without
// a room: neither can a decode pod do without a prefill pod.
//
// A pod that stands for a data-parallel rank gets routed_dp_rank, and the decode
// pod disagg_prefill_dp_rank. Not verified: that older versions, which know
// neither and derive the prefill rank from the room (room modulo the number of
// ranks), do the same; that lists longer than the number of prompts are taken if
// n and the number of prompts both exceed 1; that every version passes the
// members on from responses and messages to its scheduler (some do not: the
// decode leg then says 400).
type sglang struct{ together }

// Traits says that the legs are sent at once, may be batches, and end together.
func (sglang) Traits() Traits { return Traits{Concurrent: true, Batches: true, Waits: true} }

// Prefill limits the client's body to one token and names the room.
func (c sglang) Prefill(dst []byte, t *Try) ([]byte, error) {
	var room [maxEdits]jsonedit.Edit
	edits, err := firstToken(room[:0], t.API, t.Body)
	if err != nil {
		return nil, err
	}
	return jsonedit.Apply(dst, t.Body, c.meet(edits, t, t.Prefill)...)
}

// Decode names the room.
func (c sglang) Decode(dst []byte, t *Try, _ Handover) ([]byte, error) {
	var room [maxEdits]jsonedit.Edit
	edits := c.meet(withoutReserved(room[:0]), t, t.Decode)
	if t.Prefill.HasRank {
		edits = put(edits, "disagg_prefill_dp_rank", strconv.AppendInt(nil, int64(t.Prefill.Rank), 10))
	}
	return jsonedit.Apply(dst, t.Body, edits...)
}

// meet sets what both legs carry; own is the pod of the leg.
func (sglang) meet(edits []jsonedit.Edit, t *Try, own *Peer) []jsonedit.Edit {
	host := quoted(nil, t.Prefill.BootstrapHost)
	port := strconv.AppendInt(nil, int64(t.Prefill.BootstrapPort), 10)
	room := strconv.AppendInt(nil, t.ID.room(), 10)
	if n := t.Sequences; n > 1 {
		host, port = repeated(host, n), repeated(port, n)
		room = append(room[:0], '[')
		for i := range n {
			room = append(strconv.AppendInt(room, t.ID.room()+int64(i), 10), ',')
		}
		room[len(room)-1] = ']'
	}
	edits = put(edits, "bootstrap_host", host)
	edits = put(edits, "bootstrap_port", port)
	edits = put(edits, "bootstrap_room", room)
	if own.HasRank {
		edits = put(edits, "routed_dp_rank", strconv.AppendInt(nil, int64(own.Rank), 10))
	}
	return edits
}

// repeated is a JSON array that holds the value n times.
func repeated(value []byte, n int) []byte {
	out := []byte{'['}
	for range n {
		out = append(append(out, value...), ',')
	}
	out[len(out)-1] = ']'
	return out
}
