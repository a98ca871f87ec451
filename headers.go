package calinix

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/calinix/caddy-calinix/dispatch"
)

// The names of Calinix's headers, in canonical form.
const (
	headerMode       = "X-Calinix-Mode"
	headerSessionKey = "X-Calinix-Session-Key"
	headerRequestID  = "X-Calinix-Request-Id"
	headerTarget     = "X-Calinix-Target-Pod-Id"
	headerPrefill    = "X-Calinix-Prefill-Pod-Id"
	headerDecode     = "X-Calinix-Decode-Pod-Id"
	headerCacheHit   = "X-Calinix-Cache-Hit"
	headerDepth      = "X-Calinix-Cache-Prefix-Depth"
	headerNamespace  = "X-Calinix-Cache-Namespace"
	headerPolicy     = "X-Calinix-Route-Policy"
)

// foreignRoutingHeaders name the next hop in other routers; an engine's sidecar
// would obey them, so no client may send them through.
var foreignRoutingHeaders = []string{
	"X-Prefiller-Host-Port",
	"X-Encoder-Hosts-Ports",
	"X-Data-Parallel-Host-Port",
}

// mode is how a request is served.
type mode string

const (
	modeSingle   mode = "single"
	modeDispatch mode = "disaggregated" // the word on the wire; "dispatch" is accepted for it
)

// dropEngineAddresses removes a request id that names engines: vLLM's
// P2pNcclConnector reads out of it whom to send blocks to, and from whom to expect
// them. Calinix writes one itself where that connector is in use.
func dropEngineAddresses(h http.Header) {
	const name = "X-Request-Id"
	if slices.ContainsFunc(h[name], func(id string) bool { return strings.Contains(id, dispatch.AddressMark) }) {
		delete(h, name)
	}
}

// dropHTTP2Upgrade removes the offer to go on in HTTP/2 over the same connection
// (h2c). It is obsolete (RFC 9113), every server may ignore it, and a pod that took
// it up would give the client a tunnel through which requests reach it that nobody
// has looked at.
func dropHTTP2Upgrade(h http.Header) {
	h.Del("Http2-Settings")
	if httpguts.HeaderValuesContainsToken(h["Upgrade"], "h2c") {
		h.Del("Upgrade")
	}
}

// cut shortens s to at most n bytes.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n]
}

// route is what the routing headers of a request and its answer say.
type route struct {
	mode      mode
	requestID string
	target    string // pod id, mode single
	prefill   string // pod ids, mode dispatch; prefill is "" without that leg
	decode    string
	hit       bool
	depth     int // blocks
	namespace string
	policy    string
	mark      string // what is added to policy
}

// routeHeaders is how many headers a route has, one more with two pods.
const routeHeaders = 7

// set writes rt's headers into h, replacing what was there. What a refused
// request has not come to, it has no headers of.
func (rt *route) set(h http.Header) {
	n := routeHeaders
	if rt.prefill != "" && rt.decode != "" {
		n++
	}
	values := make([]string, 0, n) // one allocation for all; whoever rewrites a value has it alone
	put := func(name, value string) {
		if value == "" {
			delete(h, name)
			return
		}
		n = len(values)
		values = append(values, value)
		h[name] = values[n : n+1 : n+1]
	}
	put(headerMode, string(rt.mode))
	put(headerRequestID, rt.requestID)
	put(headerTarget, rt.target)
	put(headerPrefill, rt.prefill)
	put(headerDecode, rt.decode)
	if rt.policy == "" {
		return
	}
	put(headerCacheHit, strconv.FormatBool(rt.hit))
	put(headerDepth, strconv.Itoa(rt.depth))
	put(headerNamespace, rt.namespace)
	put(headerPolicy, rt.policy+rt.mark)
}
