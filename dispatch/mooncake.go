package dispatch

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// mooncake is vLLM's MooncakeConnector since about version 0.15 (before, it
// worked like nixl). Both legs are sent at once and carry the same fresh
// transfer_id; the decode leg also names the prefill pod's bootstrap server and
// the engine's id, which that server tells: GET /query on its port
// (VLLM_MOONCAKE_BOOTSTRAP_PORT, 8998) answers {"<rank>":{"engine_id":"…"}}.
//
// Blocks that nobody fetches, and decode legs that nobody serves, are given up
// after 480 s by the engines; a leg whose connection ends is aborted at once.
type mooncake struct{ together }

// Traits says that the legs are sent at once, and that the engine is asked for.
func (mooncake) Traits() Traits { return Traits{Concurrent: true, AsksEngine: true} }

// Prefill limits the client's body to one token and asks to keep the blocks.
func (mooncake) Prefill(dst []byte, t *Try) ([]byte, error) {
	params := append([]byte(nil), `{"do_remote_decode":true,"do_remote_prefill":false,"transfer_id":`...)
	return prefillWith(dst, t, kvTransferParams, append(quoted(params, transferID(t)), '}'))
}

// Decode tells the decode pod where the blocks are to be had.
func (mooncake) Decode(dst []byte, t *Try, _ Handover) ([]byte, error) {
	params := append([]byte(nil), `{"do_remote_decode":false,"do_remote_prefill":true,"remote_bootstrap_addr":`...)
	params = quoted(params, "http://"+t.Prefill.bootstrap())
	params = quoted(append(params, `,"remote_engine_id":`...), t.Prefill.EngineID)
	params = quoted(append(params, `,"transfer_id":`...), transferID(t))
	return decodeWith(dst, t, kvTransferParams, append(params, '}'))
}

// ReadEngine reads the answer of a prefill pod's bootstrap server: the id of the
// engine of that data-parallel rank.
func ReadEngine(answer []byte, rank int) (id string, err error) {
	var engines map[string]struct {
		EngineID string `json:"engine_id"`
	}
	if err := json.Unmarshal(answer, &engines); err != nil {
		return "", fmt.Errorf("answer of the bootstrap server: %w", err)
	}
	e, ok := engines[strconv.Itoa(rank)]
	switch {
	case !ok:
		return "", fmt.Errorf("the bootstrap server knows no engine of rank %d", rank)
	case e.EngineID == "":
		return "", errors.New("the bootstrap server gives no engine_id")
	}
	return e.EngineID, nil
}
