package calinix

import (
	"github.com/caddyserver/caddy/v2"
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

// placeholders makes the decision available to the rest of a Caddy
// configuration, for instance to log_append or header.
func (x *exchange) placeholders() {
	repl, ok := x.r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	if !ok {
		return
	}
	repl.Set("http.calinix.pod", x.route.target)
	repl.Set("http.calinix.prefill_pod", x.route.prefill)
	repl.Set("http.calinix.decode_pod", x.route.decode)
	repl.Set("http.calinix.mode", string(x.route.mode))
	repl.Set("http.calinix.depth", x.route.depth)
}
