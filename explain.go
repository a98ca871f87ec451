package calinix

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/calinix/caddy-calinix/fleet"
	"github.com/calinix/caddy-calinix/index"
	"github.com/calinix/caddy-calinix/prompt"
)

// explanation is the answer of POST /calinix/explain: how the request in the
// body would be routed now.
type explanation struct {
	Mode       mode            `json:"mode"`
	Unread     string          `json:"unread,omitempty"` // why there is no chain
	Chain      []string        `json:"chain"`            // block hashes in hex
	Candidates []candidateJSON `json:"candidates"`
	Pick       pickJSON        `json:"pick"`
	Held       string          `json:"held,omitempty"` // why it would not be sent at once
}

// candidateJSON is one pod of a needed role, with its four factors before their
// weights.
type candidateJSON struct {
	Pod      string  `json:"pod"`
	Role     string  `json:"role"`
	Depth    int     `json:"depth"`
	Cache    float64 `json:"cache"`
	Load     float64 `json:"load"`
	Sticky   float64 `json:"sticky"`
	Locality float64 `json:"locality"`
	Score    float64 `json:"score"`
	Filtered string  `json:"filtered"` // why the pod is no candidate, "" if it is one
}

// pickJSON names the pod or pods; empty where none can be picked.
type pickJSON struct {
	Pod     string `json:"pod,omitempty"`
	Prefill string `json:"prefill,omitempty"`
	Decode  string `json:"decode,omitempty"`
}

// explain answers with what Prepare, Filter, Score and Pick make of a request.
// Nothing is sent and nothing is learned. The request's headers count as a
// client's, ?path= is its API path.
func (adminAPI) explain(w http.ResponseWriter, r *http.Request, b *balancer) error {
	h := b.handler()
	if h == nil {
		return adminError(http.StatusServiceUnavailable, "balancer %q has not started yet", b.name)
	}
	path := r.URL.Query().Get("path")
	if path == "" {
		path = "/v1/chat/completions"
	}
	client := r.Clone(r.Context())
	client.URL = &url.URL{Path: path}
	x := &exchange{h: h, r: client}
	defer x.release()
	if refused := x.prepare(); refused != nil {
		return adminError(refused.status, "%s", refused.message)
	}
	out := explanation{Mode: x.route.mode, Unread: x.unread(), Chain: []string{}, Candidates: []candidateJSON{}}
	if x.prompt {
		x.chain.Complete()
		for _, hash := range x.chain.Hashes() {
			out.Chain = append(out.Chain, hex64(hash))
		}
	}
	switch {
	case x.route.mode == modeSingle:
		ask := x.ask(fleet.Single, index.Bitmap{})
		out.Pick.Pod, _ = x.explainRole(&out, &ask)
	case x.asked.sequences == 0:
		x.prompt = false
		ask := x.ask(fleet.Decode, index.Bitmap{})
		out.Pick.Decode, _ = x.explainRole(&out, &ask)
	default:
		asks := x.askPair(index.Bitmap{}, index.Bitmap{})
		prefill, ref := x.explainRole(&out, &asks.prefill)
		asks.decode.Near, asks.decode.HasNear, asks.decode.AssumeNear = ref, prefill != "", prefill != ""
		decode, _ := x.explainRole(&out, &asks.decode)
		// Without one of the two nothing is sent to the other, but for a
		// decode pod that may do without.
		if decode != "" && (prefill != "" || h.decodeOnly) {
			out.Pick.Prefill, out.Pick.Decode = prefill, decode
		}
	}
	return writeJSON(w, out)
}

// unread says why the request is routed by load alone, "" if its prompt was read.
func (x *exchange) unread() string {
	switch {
	case x.prompt:
		return ""
	case x.body.coded != nil:
		return "the body cannot be decoded: " + x.body.coded.Error()
	case x.request.API == prompt.Other:
		return "requests to " + x.r.URL.Path + " have no prompt that is read"
	case !x.request.JSON:
		return "the body is no JSON object"
	default:
		return "the body has no prompt of the shape that " + x.r.URL.Path + " wants, or one of too many pieces"
	}
}

// explainRole adds the pods of the role that is asked for, and returns the one that
// would be picked.
func (x *exchange) explainRole(out *explanation, ask *fleet.Ask) (pick string, ref fleet.Ref) {
	candidates, picked := x.h.state.fleet.Explain(x.h.now(), ask)
	for i := range candidates {
		c := &candidates[i]
		out.Candidates = append(out.Candidates, candidateJSON{
			Pod: c.ID, Role: ask.Role.String(), Depth: c.Depth, Cache: c.Cache, Load: c.Load,
			Sticky: c.Sticky, Locality: c.Locality, Score: c.Score, Filtered: c.Filtered,
		})
		if i == picked {
			pick, ref = c.ID, c.Ref
			if x.mayHold(ask) && c.Wait > time.Duration(*x.h.overload.Hold) {
				out.Held = fmt.Sprintf("pod %s is busy for %v, more than %v", c.ID, c.Wait.Round(time.Millisecond), *x.h.overload.Hold)
			}
		}
	}
	return pick, ref
}

// hex64 writes a hash as 16 hexadecimal digits.
func hex64(v uint64) string {
	s := strconv.FormatUint(v, 16)
	return "0000000000000000"[len(s):] + s
}
