package calinix

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
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

// routingHeaders are what a client may say about its routing.
type routingHeaders struct {
	mode      mode   // "" where the client named none
	session   string // of the session headers, "" without one
	from      keySource
	requestID string // the client's where it is usable, else a new one
}

// takeRoutingHeaders reads the client's routing headers and removes them, along
// with every other header of ours and of other routers, from h. An unknown mode
// is an error that the client gets as 400; the headers are removed all the same.
// Only their own spelling is read; whatever a server behind the pods might take
// for it is removed.
func takeRoutingHeaders(h http.Header) (routingHeaders, *apiError) {
	out := routingHeaders{requestID: h.Get(headerRequestID)}
	out.session, out.from = sessionHeader(h)
	if !usableRequestID(out.requestID) {
		out.requestID = uuid.NewString()
	}
	wanted, named := h[headerMode]
	stripRoutingHeaders(h)
	keepOwnHeaders(h)
	if !named || len(wanted) == 0 {
		return out, nil
	}
	switch strings.ToLower(strings.TrimSpace(wanted[0])) {
	case "single":
		out.mode = modeSingle
	case "disaggregated", "dispatch":
		out.mode = modeDispatch
	default:
		return out, &apiError{
			status:  http.StatusBadRequest,
			code:    "invalid_routing_mode",
			message: "x-calinix-mode: unknown mode " + strconv.Quote(cut(wanted[0], 64)) + ", want single, disaggregated or dispatch",
		}
	}
	return out, nil
}

// stripRoutingHeaders removes what no client may tell a pod: our headers, and
// those of other routers.
func stripRoutingHeaders(h http.Header) {
	for name := range h {
		if isOwnHeader(name) || slices.ContainsFunc(foreignRoutingHeaders, func(foreign string) bool {
			return len(name) == len(foreign) && spells(name, foreign)
		}) {
			delete(h, name)
		}
	}
}

// ownHeaderPrefix starts the names of every header that is ours.
const ownHeaderPrefix = "X-Calinix-"

// isOwnHeader reports whether a header of that name is one of ours.
func isOwnHeader(name string) bool {
	return len(name) >= len(ownHeaderPrefix) && spells(name, ownHeaderPrefix)
}

// stripOwnHeaders removes every x-calinix-* header.
func stripOwnHeaders(h http.Header) {
	for name := range h {
		if isOwnHeader(name) {
			delete(h, name)
		}
	}
}

// spells reports whether name, which is at least as long, begins with a header's
// name as the least strict of servers read it: without regard to case, and with
// _ or . for -, as CGI, WSGI and PHP fold them. Caddy drops such names unless it
// is told to expect them.
func spells(name, want string) bool {
	for i := range len(want) {
		if foldHeaderByte(name[i]) != foldHeaderByte(want[i]) {
			return false
		}
	}
	return true
}

func foldHeaderByte(c byte) byte {
	switch {
	case 'A' <= c && c <= 'Z':
		return c + 'a' - 'A'
	case c == '_', c == '.':
		return '-'
	}
	return c
}

// keepOwnHeaders takes our headers out of the client's list of those that end
// at the next hop: they are ours to send, and not the client's to remove.
func keepOwnHeaders(h http.Header) {
	for i, list := range h["Connection"] {
		tokens := strings.Split(list, ",")
		others := slices.DeleteFunc(slices.Clone(tokens), func(token string) bool {
			return isOwnHeader(strings.TrimSpace(token))
		})
		if len(others) < len(tokens) {
			h["Connection"][i] = strings.Join(others, ",")
		}
	}
}

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

// sessionHeader returns the session key that the headers name, "" without one.
func sessionHeader(h http.Header) (key string, from keySource) {
	for i, name := range [...]string{headerSessionKey, "X-Session-Id", "X-Conversation-Id"} {
		if key := h.Get(name); key != "" {
			return key, keyHeader + keySource(i)
		}
	}
	return "", keyNone
}

// usableRequestID reports whether id is 1 to 128 visible ASCII characters.
func usableRequestID(id string) bool {
	if id == "" || len(id) > 128 {
		return false
	}
	for i := range len(id) {
		if id[i] < '!' || id[i] > '~' {
			return false
		}
	}
	return true
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

// set writes rt's headers into h, replacing what was there. What a refused
// request has not come to, it has no headers of.
func (rt *route) set(h http.Header) {
	setOrDelete(h, headerMode, string(rt.mode))
	h[headerRequestID] = []string{rt.requestID}
	setOrDelete(h, headerTarget, rt.target)
	setOrDelete(h, headerPrefill, rt.prefill)
	setOrDelete(h, headerDecode, rt.decode)
	if rt.policy == "" {
		return
	}
	h[headerCacheHit] = []string{strconv.FormatBool(rt.hit)}
	h[headerDepth] = []string{strconv.Itoa(rt.depth)}
	h[headerNamespace] = []string{rt.namespace}
	h[headerPolicy] = []string{rt.policy + rt.mark}
}

func setOrDelete(h http.Header, name, value string) {
	if value == "" {
		delete(h, name)
		return
	}
	h[name] = []string{value}
}

// maxNamespaceModel is the length at which the model in a namespace is cut.
const maxNamespaceModel = 128

// cacheNamespace names the space in which a prompt's blocks are compared:
// openai:MODEL:whitespace-v1:block-N. Every byte of the model but letters,
// digits and -_.~ is written as %XX, so that it can neither split the header
// nor forge another namespace; the result is cut at 128 bytes, never inside an
// escape. A request without a model is of the model "unknown".
func cacheNamespace(model []byte, blockSize int) string {
	const hex = "0123456789ABCDEF"
	out := make([]byte, 0, len("openai:")+min(3*len(model), maxNamespaceModel)+len(":whitespace-v1:block-")+4)
	out = append(out, "openai:"...)
	if len(model) == 0 {
		out = append(out, "unknown"...)
	}
	room := maxNamespaceModel
	for _, c := range model {
		plain := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			c == '-' || c == '_' || c == '.' || c == '~'
		size := 3
		if plain {
			size = 1
		}
		if room -= size; room < 0 {
			break
		}
		if plain {
			out = append(out, c)
		} else {
			out = append(out, '%', hex[c>>4], hex[c&15])
		}
	}
	out = append(out, ":whitespace-v1:block-"...)
	out = strconv.AppendInt(out, int64(blockSize), 10)
	return string(out)
}
