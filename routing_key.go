package calinix

import (
	"github.com/cespare/xxhash/v2"

	"github.com/calinix/caddy-calinix/prompt"
	"github.com/calinix/caddy-calinix/selection"
)

// keySource is where the key of a decision comes from.
type keySource uint8

const (
	keyNone   keySource = iota // there is none
	keyHeader                  // our own header
	_                          // X-Session-ID
	_                          // X-Conversation-ID
	keySessionID
	keyPromptCacheKey
	keySafetyIdentifier
	keyUser
	keyOpening // what of a conversation does not change while it grows
	keyPrefix  // the body's member prefix
	keySystem  // the system or developer message
	keySources
)

// keySourceNames are the values of the metric's label source.
var keySourceNames = [keySources]string{
	"none", "x-calinix-session-key", "x-session-id", "x-conversation-id",
	"session_id", "prompt_cache_key", "safety_identifier", "user", "opening", "prefix", "system",
}

// routingKey is what a request is recognised by: a hash of its session's key, or
// of what else a strategy hashes.
type routingKey struct {
	hash uint64 // 0 without a key
	from keySource
}

// sessionOf is the session of a request: the headers' key, else the body's.
func sessionOf(h routingHeaders, req *prompt.Request) routingKey {
	if h.session != "" {
		return routingKey{max(1, xxhash.Sum64String(h.session)), h.from}
	}
	if len(req.Session) == 0 {
		return routingKey{}
	}
	for from := keySessionID; from <= keyUser; from++ {
		if keySourceNames[from] == req.SessionSource {
			return routingKey{hashOf(req.Session), from}
		}
	}
	return routingKey{}
}

// hashOf is the hash of a key's text; 0 is that of none.
func hashOf(text []byte) uint64 { return max(1, xxhash.Sum64(text)) }

// keyFor is the key by which a strategy decides. Those that hash nothing still
// know sessions.
func keyFor(s selection.Strategy, session routingKey, req *prompt.Request) routingKey {
	switch {
	case s == selection.Prefix && len(req.Prefix) > 0:
		return routingKey{hashOf(req.Prefix), keyPrefix}
	case s == selection.Prefix && len(req.System) > 0:
		return routingKey{hashOf(req.System), keySystem}
	case s == selection.Prefix:
		return routingKey{}
	case s == selection.SessionAffinity && session.from == keyNone && len(req.Opening) > 0:
		return routingKey{hashOf(req.Opening), keyOpening}
	default:
		return session
	}
}
