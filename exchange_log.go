package calinix

import (
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
)

// log adds what was decided to the access log's line. Never a prompt, never a
// session key, never a credential.
func (x *exchange) log() {
	extra, ok := x.r.Context().Value(caddyhttp.ExtraLogFieldsCtxKey).(*caddyhttp.ExtraLogFields)
	if !ok {
		return
	}
	extra.Add(zap.String("calinix_outcome", x.ended.LogName()))
	extra.Add(zap.String("calinix_mode", string(x.route.mode)))
	extra.Add(zap.String("calinix_request_id", x.route.requestID))
	for _, pod := range []struct{ field, id string }{
		{"calinix_pod", x.route.target},
		{"calinix_prefill_pod", x.route.prefill},
		{"calinix_decode_pod", x.route.decode},
	} {
		if pod.id != "" {
			extra.Add(zap.String(pod.field, pod.id))
		}
	}
	extra.Add(zap.Int("calinix_depth", x.route.depth))
	if x.held > 0 {
		extra.Add(zap.Int64("calinix_held_ms", x.held.Milliseconds()))
	}
	if x.heard {
		extra.Add(zap.Int64("calinix_prompt_tokens", x.said.Prompt))
		extra.Add(zap.Int64("calinix_cached_tokens", x.said.Cached))
	}
	if x.traced != nil {
		x.traced.Output = x.output
		extra.Add(zap.Any("calinix_trace", x.traced))
	}
}

// shown is what the answer says of the decision, nil for nothing.
func (x *exchange) shown() *route {
	if x.h.showHeaders {
		return &x.route
	}
	return nil
}

// show writes the routing headers to the client, if it is to see them.
func (x *exchange) show() {
	if rt := x.shown(); rt != nil {
		rt.set(x.w.Header())
	}
}
