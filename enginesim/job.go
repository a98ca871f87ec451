package enginesim

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
)

// ask is what every generating API boils down to.
type ask struct {
	model    string
	root     uint64     // cache namespace of model and salt
	prompts  [][]uint32 // token ids
	n        int        // answers to each prompt
	sampling sampling
	maxParam string // the member that maxTokens came from

	tools        []tool
	forced       *tool  // tool that the answer must call; nil: text
	forcedReason string // why such an answer ends

	stream, includeUsage, continuousUsage bool
	embed                                 bool
	transfer                              node // kv_transfer_params
	body                                  node
}

// maxSequences bounds n × prompts of one request.
const maxSequences = 16384

// job is a request that was accepted.
type job struct {
	e       *Engine
	set     Settings
	ask     *ask
	id      string // without the API's prefix
	created int64
	leg     string // whole, prefill, decode
	seqs    []*sequence
	final   []progress // how each sequence ended; valid after follow

	requestID string // X-Request-Id as it was sent

	// expected checks what a decode leg said of its prefill engine.
	expected func(come *Engine) error
	meetings []*meeting // where the sequences meet those of the other leg; nil: nowhere
	context  *contextOf // of a TensorRT-LLM context request
}

// newJob checks an ask, claims handed-over KV and makes the sequences; nothing is
// queued yet.
func (e *Engine) newJob(ctx context.Context, set Settings, a *ask, r *http.Request) (*job, *apiError) {
	if len(set.Models) > 0 && !slices.Contains(set.Models, a.model) {
		return nil, &apiError{http.StatusNotFound, "model", fmt.Sprintf("The model `%s` does not exist.", a.model)}
	}
	if len(a.prompts)*a.n > maxSequences {
		return nil, badRequest("n", "n must be at most %d, got %d.", maxSequences/max(1, len(a.prompts)), a.n)
	}
	if m := a.sampling.maxTokens; m > 0 && a.sampling.minTokens > m {
		return nil, badRequest("min_tokens", "min_tokens must be less than or equal to max_tokens=%d, got %d.", m, a.sampling.minTokens)
	}
	j := &job{e: e, set: set, ask: a, id: r.Header.Get("X-Request-Id"), created: e.clock.Now().Unix(), leg: "whole"}
	j.requestID = j.id
	if j.id == "" {
		j.id = randomHex(16)
	}
	notify := make(chan struct{}, 1)
	for _, prompt := range a.prompts {
		room := set.MaxModelLen - len(prompt)
		if room < b2i(!a.embed) {
			return nil, badRequest("", "This model's maximum context length is %d tokens. However, your request has %d input tokens. Please reduce the length of the input messages.", set.MaxModelLen, len(prompt))
		}
		if m := a.sampling.maxTokens; m > room {
			return nil, badRequest(a.maxParam, "'%s' is too large: %d. This model's maximum context length is %d tokens and your request has %d input tokens (%d > %d - %d).",
				a.maxParam, m, set.MaxModelLen, len(prompt), m, set.MaxModelLen, len(prompt))
		}
		for choice := range a.n {
			s := &sequence{prompt: prompt, root: a.root, notify: notify, embed: a.embed, script: script{reason: "stop"}}
			if !a.embed {
				s.script = newScript(&set, prompt, &a.sampling, choice, room)
			}
			if a.forced != nil {
				s.script.call(a.forced.name, a.forced.schema, &a.sampling, room, a.forcedReason)
			}
			j.seqs = append(j.seqs, s)
		}
	}
	j.final = make([]progress, len(j.seqs))
	return j, j.handOver(ctx, r)
}

// handOver reads what the request says of hand-over, as the engine's connector has
// it, and prepares the leg.
func (j *job) handOver(ctx context.Context, r *http.Request) *apiError {
	switch j.set.KVConnector {
	case "nixl_push", "mooncake":
		return j.meetByTransfer()
	case "p2pnccl":
		return j.meetByRequestID()
	case "sglang":
		return j.meetInRoom()
	case "trtllm":
		return j.disaggregate()
	case "shared_storage":
		return nil
	default:
		return j.pull(ctx, r)
	}
}

// transferKind reads which leg kv_transfer_params ask for.
func (j *job) transferKind() (produce, consume bool, refusal *apiError) {
	const name = "kv_transfer_params"
	t := j.ask.transfer
	if t.absent() {
		return false, false, nil
	}
	if !t.isObject() {
		return false, false, badRequest(name, "kv_transfer_params: Input should be a valid dictionary")
	}
	p, c := t.get("do_remote_decode"), t.get("do_remote_prefill")
	for _, n := range []node{p, c} {
		if !n.absent() && !n.isTrue() && !n.isFalse() {
			return false, false, badRequest(name, "kv_transfer_params: do_remote_decode and do_remote_prefill should be booleans")
		}
	}
	switch produce, consume = p.isTrue(), c.isTrue(); {
	case !produce && !consume:
		return false, false, nil
	case produce && consume:
		return false, false, badRequest(name, "kv_transfer_params: do_remote_decode and do_remote_prefill exclude each other")
	case len(j.seqs) != 1:
		return false, false, badRequest(name, "kv_transfer_params cannot describe %d sequences", len(j.seqs))
	case produce && j.ask.stream:
		return false, false, badRequest("stream", "Prefill does not support streaming")
	}
	return produce, consume, nil
}

// pull prepares a leg of vLLM's NixlConnector.
func (j *job) pull(ctx context.Context, r *http.Request) *apiError {
	produce, consume, refusal := j.transferKind()
	switch {
	case refusal != nil || !produce && !consume:
		return refusal
	case produce:
		j.leg = "prefill"
		h := &handout{RemoteRequestID: j.id + "-" + randomHex(4)}
		h.RemoteHost, h.RemotePort = localAddress(r)
		j.seqs[0].hold = h
		return nil
	}
	j.leg = "decode"
	return j.loadFailure(j.claimKV(ctx, j.ask.transfer))
}

// loadFailure is what becomes of a decode leg whose KV cannot be had.
func (j *job) loadFailure(err error) *apiError {
	if err == nil {
		return nil
	}
	j.e.mu.Lock()
	j.e.count.ClaimsRefused++
	j.e.mu.Unlock()
	if j.set.KVLoadFailurePolicy == "recompute" {
		return nil
	}
	return &apiError{http.StatusInternalServerError, "", "KV cache load failure: " + err.Error()}
}

func (j *job) claimKV(ctx context.Context, t node) error {
	h, err := readHandout(t)
	if err != nil {
		return err
	}
	s := j.seqs[0]
	c, err := j.e.peers.takeClaim(ctx, h, promptHash(s.root, s.prompt))
	if err != nil {
		return err
	}
	s.claim = c
	return nil
}

// readHandout reads a decode leg's parameters; none may be missing or of another type.
func readHandout(t node) (*handout, error) {
	h := &handout{DoRemotePrefill: true}
	for _, f := range []struct {
		name string
		to   *string
	}{{"remote_engine_id", &h.RemoteEngineID}, {"remote_request_id", &h.RemoteRequestID}, {"remote_host", &h.RemoteHost}} {
		n := t.get(f.name)
		if !n.isString() {
			return nil, fmt.Errorf("%s: want a string, got %q", f.name, n.raw)
		}
		*f.to = n.str()
	}
	for _, f := range []struct {
		name string
		to   *int
	}{{"remote_port", &h.RemotePort}, {"tp_size", &h.TPSize}, {"remote_num_tokens", &h.RemoteNumTokens}} {
		v, ok := t.get(f.name).integer()
		if !ok {
			return nil, fmt.Errorf("%s: want an integer, got %q", f.name, t.get(f.name).raw)
		}
		*f.to = int(v)
	}
	ids := t.get("remote_block_ids")
	if !ids.isArray() {
		return nil, fmt.Errorf("remote_block_ids: want a list, got %q", ids.raw)
	}
	for _, k := range ids.kids {
		v, err := strconv.ParseInt(string(k.raw), 10, 32)
		if err != nil {
			return nil, fmt.Errorf("remote_block_ids: want block numbers, got %s", k.raw)
		}
		h.RemoteBlockIDs = append(h.RemoteBlockIDs, int32(v))
	}
	return h, nil
}

// localAddress is where the request reached this process.
func localAddress(r *http.Request) (host string, port int) {
	at := r.Host
	if addr, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		at = addr.String()
	}
	host, p, err := net.SplitHostPort(at)
	if err != nil {
		return at, 80
	}
	port, _ = strconv.Atoi(p)
	return host, port
}

// run queues the job and calls each for every piece of progress until the end.
func (j *job) run(ctx context.Context, each func(i int, p progress) error) error {
	j.e.submit(j.seqs)
	return j.e.follow(ctx, j.seqs, func(i int, p progress) error {
		j.final[i] = p
		if each == nil {
			return nil
		}
		return each(i, p)
	})
}

// handout is what the prefill leg gets back; nil otherwise. Only after run.
func (j *job) handout() *handout {
	if len(j.seqs) == 1 && j.final[0].lease != "" && j.set.KVConnector == "nixl" {
		return j.seqs[0].hold
	}
	return nil
}

// usage sums up what has been done so far.
func (j *job) usage() usage {
	var u usage
	cached := 0
	for i, s := range j.seqs {
		if i%j.ask.n == 0 {
			u.PromptTokens += len(s.prompt)
			cached += j.final[i].cached
		}
		u.CompletionTokens += j.final[i].out
	}
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
	u.cached = cached
	if d := j.set.PromptTokensDetails; d == "always" || (d == "nonzero" && cached > 0) {
		u.PromptTokensDetails = &promptTokensDetails{CachedTokens: cached}
	}
	return u
}

// usage is what OpenAI's answers report.
type usage struct {
	PromptTokens        int                  `json:"prompt_tokens"`
	TotalTokens         int                  `json:"total_tokens"`
	CompletionTokens    int                  `json:"completion_tokens"`
	PromptTokensDetails *promptTokensDetails `json:"prompt_tokens_details"`

	cached int
}

type promptTokensDetails struct {
	CachedTokens int `json:"cached_tokens"`
}

func (s *Settings) defaultModel() string {
	if len(s.Models) > 0 {
		return s.Models[0]
	}
	return "sim"
}
