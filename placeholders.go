package calinix

import (
	"strings"
	"sync"

	"github.com/caddyserver/caddy/v2"
)

// placeholders makes the decision available to the rest of a Caddy
// configuration, for instance to log_append or header.
func (x *exchange) placeholders() {
	if !x.offered {
		repl := x.replacer()
		if repl == nil {
			return
		}
		x.offered = true
		repl.Map(x.known.value)
	}
	x.known.set(&x.route)
}

// replacer is that of the request, nil if it does not come through Caddy's server.
func (x *exchange) replacer() *caddy.Replacer {
	repl, _ := x.r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	return repl
}

// placeholders are the values of the placeholders of one request. They are made
// only when somebody asks, which is seldom. The request's replacer may ask when the
// exchange is over, for the access log for instance, and from other goroutines.
type placeholders struct {
	mu    sync.Mutex // guards all below
	pods  [3]string  // in the order of podPlaceholders
	depth int
	mode  mode
}

// podPlaceholders are those that name a pod.
var podPlaceholders = [...]string{"pod", "prefill_pod", "decode_pod"}

func (p *placeholders) set(rt *route) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pods = [...]string{rt.target, rt.prefill, rt.decode}
	p.depth, p.mode = rt.depth, rt.mode
}

// value is the provider of the replacer.
func (p *placeholders) value(key string) (any, bool) {
	name, ours := strings.CutPrefix(key, "http.calinix.")
	if !ours {
		return nil, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, pod := range podPlaceholders {
		if name == pod {
			return p.pods[i], true
		}
	}
	switch name {
	case "mode":
		return string(p.mode), true
	case "depth":
		return p.depth, true
	}
	return nil, false
}
