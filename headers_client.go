package calinix

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
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
func takeRoutingHeaders(h http.Header) (out routingHeaders, refused *apiError) {
	out.requestID = first(h[headerRequestID])
	if !usableRequestID(out.requestID) {
		out.requestID = newRequestID()
	}
	out.session, out.from = sessionHeader(h)
	if wanted := h[headerMode]; len(wanted) > 0 {
		out.mode, refused = readMode(wanted[0])
	}
	stripRoutingHeaders(h)
	keepOwnHeaders(h)
	return out, refused
}

// sessionHeader returns the session key that the headers name, "" without one.
func sessionHeader(h http.Header) (key string, from keySource) {
	for i, name := range [...]string{headerSessionKey, "X-Session-Id", "X-Conversation-Id"} {
		if key := first(h[name]); key != "" {
			return key, keyHeader + keySource(i)
		}
	}
	return "", keyNone
}

// first is the value that counts of a header that is there, perhaps without one.
func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// readMode reads the value of x-calinix-mode.
func readMode(wanted string) (mode, *apiError) {
	switch strings.ToLower(strings.TrimSpace(wanted)) {
	case "single":
		return modeSingle, nil
	case "disaggregated", "dispatch":
		return modeDispatch, nil
	}
	return "", &apiError{
		status:  http.StatusBadRequest,
		code:    "invalid_routing_mode",
		message: "x-calinix-mode: unknown mode " + strconv.Quote(cut(wanted, 64)) + ", want single, disaggregated or dispatch",
	}
}

// stripRoutingHeaders removes what no client may tell a pod: our headers, and
// those of other routers.
func stripRoutingHeaders(h http.Header) {
	for name := range h {
		if beginsLikeRouting(name) && isRoutingHeader(name) {
			delete(h, name)
		}
	}
}

// stripOwnHeaders removes every x-calinix-* header.
func stripOwnHeaders(h http.Header) {
	for name := range h {
		if beginsLikeRouting(name) && isOwnHeader(name) {
			delete(h, name)
		}
	}
}

// beginsLikeRouting tells nearly all headers apart from those that say something
// of routing: these all begin with X, and are no shorter.
func beginsLikeRouting(name string) bool {
	return len(name) >= len(ownHeaderPrefix) && name[0]|0x20 == 'x'
}

// isRoutingHeader reports whether a header of that name is one of ours, or one
// by which other routers name the next hop.
func isRoutingHeader(name string) bool {
	return isOwnHeader(name) || slices.ContainsFunc(foreignRoutingHeaders, func(foreign string) bool {
		return len(name) == len(foreign) && spells(name, foreign)
	})
}

// ownHeaderPrefix starts the names of every header that is ours.
const ownHeaderPrefix = "X-Calinix-"

// isOwnHeader reports whether a header of that name is one of ours.
func isOwnHeader(name string) bool {
	return len(name) >= len(ownHeaderPrefix) && spells(name, ownHeaderPrefix)
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
	lists := h["Connection"]
	for i, list := range lists {
		if strings.IndexByte(list, 'x') < 0 && strings.IndexByte(list, 'X') < 0 { // keep-alive, close, Upgrade, TE
			continue
		}
		tokens := strings.Split(list, ",")
		others := slices.DeleteFunc(slices.Clone(tokens), func(token string) bool {
			return isOwnHeader(strings.TrimSpace(token))
		})
		if len(others) < len(tokens) {
			lists[i] = strings.Join(others, ",")
		}
	}
}
