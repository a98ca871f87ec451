package enginesim

import (
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
)

// This file reads what each connector puts into a request: strictly, for a member
// that a real engine would pass over may be one that its next version reads.

// meetByTransfer prepares a leg of NixlPushConnector or MooncakeConnector: both
// legs carry one transfer_id.
func (j *job) meetByTransfer() *apiError {
	produce, consume, refusal := j.transferKind()
	if refusal != nil || !produce && !consume {
		return refusal
	}
	t, push := j.ask.transfer, j.set.KVConnector == "nixl_push"
	want := "do_remote_decode do_remote_prefill transfer_id"
	j.leg = "prefill"
	if push && produce {
		want += " remote_engine_id remote_block_ids remote_host remote_port"
	}
	if consume {
		j.leg = "decode"
		want += " remote_engine_id"
		if push {
			want += " remote_host remote_port tp_size pp_size remote_request_id"
		} else {
			want += " remote_bootstrap_addr"
		}
	}
	if refusal := onlyMembers("kv_transfer_params", t, want); refusal != nil {
		return refusal
	}
	id := t.get("transfer_id")
	if !id.isString() || id.str() == "" {
		return badRequest("kv_transfer_params", "kv_transfer_params: transfer_id should be a valid string")
	}
	if consume {
		j.expected = j.expectMooncake
		if push {
			j.expected = j.expectPush
		}
		if err := j.expected(nil); err != nil {
			return j.loadFailure(err)
		}
	}
	if err := j.meet([]string{"transfer_id " + id.str()}, produce); err != nil {
		return &apiError{http.StatusInternalServerError, "", err.Error()}
	}
	return nil
}

// expectMooncake checks what a decode leg says of its prefill engine, and that the
// engine which has come is that one; nil: none has come yet.
func (j *job) expectMooncake(come *Engine) error {
	t := j.ask.transfer
	at, err := url.Parse(t.get("remote_bootstrap_addr").str())
	if err != nil || at.Scheme != "http" || at.Port() == "" {
		return fmt.Errorf("remote_bootstrap_addr: want http://host:port, got %q", t.get("remote_bootstrap_addr").raw)
	}
	e, err := j.named(t.get("remote_engine_id"), come)
	if err != nil {
		return err
	}
	if port := strconv.Itoa(e.Settings().BootstrapPort); at.Port() != port {
		return fmt.Errorf("the bootstrap server at %s does not know engine %q", at.Host, e.id)
	}
	return nil
}

// expectPush is expectMooncake for NixlPushConnector.
func (j *job) expectPush(come *Engine) error {
	t := j.ask.transfer
	e, err := j.named(t.get("remote_engine_id"), come)
	if err != nil {
		return err
	}
	port, ok := t.get("remote_port").integer()
	if !ok || !t.get("remote_host").isString() {
		return fmt.Errorf("remote_host, remote_port: want a string and an integer, got %q and %q", t.get("remote_host").raw, t.get("remote_port").raw)
	}
	if at := net.JoinHostPort(t.get("remote_host").str(), strconv.FormatInt(port, 10)); at != e.Settings().KVAddress {
		return fmt.Errorf("handshake with %s failed: engine %q is not there", at, e.id)
	}
	for _, name := range []string{"tp_size", "pp_size"} {
		if v, ok := t.get(name).integer(); !ok || v != 1 {
			return fmt.Errorf("%s: want 1, got %q", name, t.get(name).raw)
		}
	}
	if id := t.get("remote_request_id"); !id.isString() || id.str() != j.requestID {
		return fmt.Errorf("remote_request_id: want the request's X-Request-Id %q, got %q", j.requestID, id.raw)
	}
	return nil
}

// named finds the engine of that id, which must be the one that has come.
func (j *job) named(id node, come *Engine) (*Engine, error) {
	if !id.isString() {
		return nil, fmt.Errorf("remote_engine_id: want a string, got %q", id.raw)
	}
	e := j.e.peers.find(id.str())
	switch {
	case e == nil:
		return nil, fmt.Errorf("engine %q is unknown", id.str())
	case come != nil && come != e:
		return nil, fmt.Errorf("engine %q was expected, %q has come", e.id, come.id)
	}
	return e, nil
}

var p2pID = regexp.MustCompile(`^___prefill_addr_(.+):(\d+)___decode_addr_(.+):(\d+)_[0-9a-f]+$`)

// meetByRequestID prepares a leg of P2pNcclConnector: the addresses of both engines
// lie in the request's id.
func (j *job) meetByRequestID() *apiError {
	if j.set.Role == "" {
		return nil
	}
	produce := j.set.Role == "prefill"
	j.leg = j.set.Role
	at := p2pID.FindStringSubmatch(j.requestID)
	if at == nil || len(j.seqs) != 1 {
		return &apiError{http.StatusInternalServerError, "", fmt.Sprintf("Request id %s does not contain hostname and port", j.requestID)}
	}
	mine := at[3] + ":" + at[4]
	if produce {
		mine = at[1] + ":" + at[2]
	}
	if mine != j.set.KVAddress {
		return &apiError{http.StatusInternalServerError, "", fmt.Sprintf("Request id %s names %s, this engine is at %s", j.requestID, mine, j.set.KVAddress)}
	}
	j.expected = func(come *Engine) error {
		if theirs := at[1] + ":" + at[2]; come.Settings().KVAddress != theirs {
			return fmt.Errorf("no engine sends from %s", theirs)
		}
		return nil
	}
	if err := j.meet([]string{"request id " + j.requestID}, produce); err != nil {
		return &apiError{http.StatusInternalServerError, "", err.Error()}
	}
	return nil
}

// meetInRoom prepares a leg of SGLang: both legs name the prefill engine's bootstrap
// server and a room, or lists of them for several sequences.
func (j *job) meetInRoom() *apiError {
	if j.set.Role == "" {
		return nil
	}
	j.leg = j.set.Role
	room := j.ask.body.get("bootstrap_room")
	if room.absent() {
		return badRequest("bootstrap_room", "Invalid request: Disaggregated request received without bootstrap room id.")
	}
	n := len(j.seqs)
	var keys []string
	for i := range n {
		r, host, port := element(room, i, n), element(j.ask.body.get("bootstrap_host"), i, n), element(j.ask.body.get("bootstrap_port"), i, n)
		id, err := strconv.ParseUint(string(r.raw), 10, 63)
		if err != nil {
			return badRequest("bootstrap_room", "bootstrap_room: want an integer of 63 bits for each of %d sequences, got %s", n, room.raw)
		}
		if !host.isString() || host.str() == "" {
			return badRequest("bootstrap_host", "bootstrap_host: want a string for each of %d sequences, got %s", n, j.ask.body.get("bootstrap_host").raw)
		}
		p, ok := port.integer()
		if !ok {
			return badRequest("bootstrap_port", "bootstrap_port: want an integer for each of %d sequences, got %s", n, j.ask.body.get("bootstrap_port").raw)
		}
		e := j.e.peers.bootstrap(int(p))
		if e == nil || j.leg == "prefill" && e != j.e {
			return &apiError{http.StatusInternalServerError, "", fmt.Sprintf("Could not fetch prefill parallel info from bootstrap_addr: %s:%d", host.str(), p)}
		}
		j.expected = func(come *Engine) error {
			if come != e {
				return fmt.Errorf("bootstrap_room %d is of another prefill engine", id)
			}
			return nil
		}
		keys = append(keys, fmt.Sprintf("bootstrap_room %d", id))
	}
	if err := j.meet(keys, j.leg == "prefill"); err != nil {
		return &apiError{http.StatusInternalServerError, "", err.Error()}
	}
	return nil
}

// element is the i-th of a list of n, or the value itself if n is 1.
func element(v node, i, n int) node {
	switch {
	case n == 1 && !v.isArray():
		return v
	case v.isArray() && len(v.kids) == n:
		return v.kids[i]
	default:
		return node{}
	}
}

// bootstrap finds the prefill engine whose bootstrap server is at that port.
func (p *Peers) bootstrap(port int) *Engine {
	p.mu.Lock()
	all := make([]*Engine, 0, len(p.byID))
	for _, e := range p.byID {
		all = append(all, e)
	}
	p.mu.Unlock()
	for _, e := range all {
		if s := e.Settings(); s.KVConnector == "sglang" && s.Role == "prefill" && s.BootstrapPort == port {
			return e
		}
	}
	return nil
}

// contextOf is the disaggregated_params object of TensorRT-LLM, as a context request
// gets it back.
type contextOf struct {
	RequestType string   `json:"request_type"`
	FirstTokens []uint32 `json:"first_gen_tokens"`
	ContextID   int64    `json:"ctx_request_id"`
	State       string   `json:"encoded_opaque_state"`
	DisaggID    int64    `json:"disagg_request_id"`

	prompt []uint32
}

// leastDisaggID is the least disagg_request_id that comes from outside.
const leastDisaggID = 1 << 42

// disaggregate prepares a leg of TensorRT-LLM.
func (j *job) disaggregate() *apiError {
	const name = "disaggregated_params"
	t := j.ask.body.get(name)
	if t.absent() {
		return nil
	}
	if !t.isObject() || len(j.seqs) != 1 {
		return badRequest(name, "disaggregated_params: want an object, for one sequence")
	}
	id, err := strconv.ParseInt(string(t.get("disagg_request_id").raw), 10, 64)
	if err != nil || id < leastDisaggID {
		return badRequest(name, "disagg_request_id: want an integer of 64 bits, %d or above, got %s", int64(leastDisaggID), t.get("disagg_request_id").raw)
	}
	s := j.seqs[0]
	switch kind := t.get("request_type").str(); kind {
	case "context_only":
		if refusal := onlyMembers(name, t, "request_type disagg_request_id"); refusal != nil {
			return refusal
		}
		if j.ask.stream {
			return badRequest("stream", "context only requests do not stream")
		}
		j.leg = "prefill"
		ctxID := id ^ 0x2a5a5a5a5a5a5a5b // beyond what a float64 holds, and not the other id
		key := "ctx_request_id " + strconv.FormatInt(ctxID, 10)
		j.context = &contextOf{
			RequestType: kind, ContextID: ctxID, DisaggID: id, prompt: s.prompt,
			FirstTokens: []uint32{tokenID(s.script.piece(0))}, State: base64.StdEncoding.EncodeToString([]byte(j.e.id)),
		}
		if _, err := j.e.peers.join(key, j.e, true); err != nil {
			return &apiError{http.StatusInternalServerError, "", err.Error()}
		}
		s.hold = &handout{RemoteRequestID: key}
		return nil
	case "generation_only":
		j.leg = "decode"
		return j.loadFailure(j.claimContext(t, id))
	default:
		return badRequest(name, "request_type: unknown type %s", t.get("request_type").raw)
	}
}

// claimContext claims the KV of a context request. Every member must be as it was
// handed out.
func (j *job) claimContext(t node, id int64) error {
	ctxID, err := strconv.ParseInt(string(t.get("ctx_request_id").raw), 10, 64)
	if err != nil {
		return fmt.Errorf("ctx_request_id: want an integer of 64 bits, got %q", t.get("ctx_request_id").raw)
	}
	engine, err := base64.StdEncoding.DecodeString(t.get("encoded_opaque_state").str())
	if err != nil {
		return fmt.Errorf("encoded_opaque_state: %w", err)
	}
	e := j.e.peers.find(string(engine))
	if e == nil {
		return fmt.Errorf("encoded_opaque_state: no such context server")
	}
	s := j.seqs[0]
	if ctxID^0x2a5a5a5a5a5a5a5b != id {
		return fmt.Errorf("ctx_request_id %d is not of disagg_request_id %d", ctxID, id)
	}
	first := t.get("first_gen_tokens")
	if !first.isArray() || len(first.kids) != 1 || string(first.kids[0].raw) != strconv.FormatUint(uint64(tokenID(s.script.piece(0))), 10) {
		return fmt.Errorf("first_gen_tokens %s are not of this prompt", first.raw)
	}
	key := "ctx_request_id " + strconv.FormatInt(ctxID, 10)
	if err := e.grantMeeting(key, promptHash(s.root, s.prompt)); err != nil {
		return err
	}
	s.claim = &claim{h: &handout{RemoteRequestID: key}, peer: e}
	return nil
}

// onlyMembers refuses an object that lacks one of the members, or has another one.
func onlyMembers(param string, t node, names string) *apiError {
	want := map[string]bool{}
	for _, name := range regexp.MustCompile(`\S+`).FindAllString(names, -1) {
		want[name] = true
	}
	for _, k := range t.kids {
		if !want[k.key] {
			return badRequest(param, "%s: unexpected member %q", param, k.key)
		}
		delete(want, k.key)
	}
	for name := range want {
		return badRequest(param, "%s: %s is missing", param, name)
	}
	return nil
}

// engines answers GET /query as the bootstrap server of MooncakeConnector does.
func (e *Engine) engines(w http.ResponseWriter) {
	writeJSON(w, http.StatusOK, map[string]map[string]string{"0": {"engine_id": e.id}})
}

// ids is the prompt of a context request as its answer repeats it; c may be nil.
func (c *contextOf) ids() []uint32 {
	if c == nil {
		return nil
	}
	return c.prompt
}
