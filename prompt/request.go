package prompt

import (
	"github.com/calinix/caddy-calinix/chain"
)

// Request is what routing needs of a request. Make one, Parse into it as often
// as needed (its buffers are reused; in steady state nothing is allocated), and
// Reset it before it is put aside. It is not safe for concurrent use.
type Request struct {
	API API
	// JSON says that the body is one well-formed JSON object. If not, nothing
	// of it is used: all fields below are zero, but N, which is 1.
	JSON bool
	// OK says that the body has a prompt in the right shape for its API, that it
	// is not empty, and that it does not consist of more than a hundred thousand
	// pieces: Text and Seed name it. If not, the request is to
	// be routed by load alone.
	OK bool
	// Model and CacheSalt are the members model and cache_salt, decoded. Like
	// Session they may be parts of the body; they are valid until the next
	// Parse or Reset.
	Model, CacheSalt []byte
	// Stream and IncludeUsage are stream and stream_options.include_usage.
	Stream, IncludeUsage bool
	// N is the number of answers asked for: n, or best_of if that is more; 1
	// if absent.
	N int
	// Prompts is the number of separate prompts, 1 but for arrays of prompts;
	// 0 without a prompt.
	Prompts int
	// Generates says that this is one prompt with one answer of text, which
	// may be computed in two places: nothing of it is stored at an engine.
	Generates bool
	// Text is the rendered prompt, see the package's comment. It is valid
	// until the next Parse or Reset.
	Text []byte
	// System is the part of Text that holds the leading system and developer
	// turns; nil if there are none.
	System []byte
	// TokenIDs is the number of ids if the prompt was sent as token ids, else
	// 0. Text holds them in decimal.
	TokenIDs int
	// Seed is the chain's seed: the namespace in which equal texts share
	// blocks.
	Seed uint64
	// Session is the first of session_id, prompt_cache_key, safety_identifier
	// and user that is there and not empty, SessionSource its name.
	Session       []byte
	SessionSource string
	// Prefix is the member prefix, by which a client may say what its request
	// shares with others.
	Prefix []byte
	// Opening is what of a conversation does not change while it grows: its turns
	// up to the first of the user and with it, the system's included, without
	// tools and documents, which clients may list in another order or add to. It
	// is a part of Text, or the id of a conversation that is kept at the engine;
	// nil where the request is no conversation, or only the last turn of one.
	Opening []byte

	scan scan
}

// Parse reads body, a request of the given API. There is no error: OK and JSON
// tell. Time is linear in body. Fields may refer to body, which must stay as it
// is until the next Parse or Reset.
func (r *Request) Parse(api API, body []byte) {
	r.Reset()
	r.API = api
	s := &r.scan
	defer s.giveBack() // the request may go on for minutes
	s.api, s.body = api, body
	if !s.object() {
		return
	}
	r.JSON = true
	r.Model, r.CacheSalt = s.bytes(s.model), s.bytes(s.salt)
	r.Stream, r.IncludeUsage = s.stream, s.includeUsage
	r.N = s.n
	if s.bestOf.ok() {
		bestOf, _ := s.count(s.bestOf.lo, 0, r.N)
		r.N = max(r.N, bestOf)
	}
	for i, member := range s.session {
		if v := s.bytes(member); len(v) > 0 {
			r.Session, r.SessionSource = v, sessionNames[i]
			break
		}
	}
	r.Prefix = s.bytes(s.prefix)
	if !s.shaped || s.crowded {
		return
	}
	s.finish()
	var system, opening span
	r.Text, system, opening = s.render(r.Text)
	if len(r.Text) == 0 {
		return
	}
	r.OK = true
	if system.hi > system.lo {
		r.System = r.Text[system.lo:system.hi:system.hi]
	}
	switch {
	case s.conversation.hi > s.conversation.lo:
		r.Opening = s.bytes(s.conversation)
	case s.previous.hi == s.previous.lo && opening.hi > opening.lo:
		r.Opening = r.Text[opening.lo:opening.hi:opening.hi]
	}
	r.Prompts, r.TokenIDs = s.prompts, s.ids
	r.Generates = api.generates() && r.N == 1 && r.Prompts == 1 && !s.stored()
	r.seed()
}

func (r *Request) seed() {
	var kind []byte
	if r.TokenIDs > 0 {
		kind = idsKind
	}
	r.Seed = chain.Seed(r.Model, r.CacheSalt, r.scan.bytes(r.scan.namespace), kind)
}

// Rename makes the request one for the model of that name: the engines' name for
// the alias that it was parsed with. Both then share their prompts.
func (r *Request) Rename(model []byte) {
	r.Model = model
	if r.OK {
		r.seed()
	}
}

// idsKind keeps token ids apart from a text that spells them.
var idsKind = []byte("token ids")

// Reset makes r empty. It keeps the buffers, unless they are very large.
func (r *Request) Reset() {
	r.scan.reset()
	r.API, r.JSON, r.OK = Other, false, false
	r.Model, r.CacheSalt = nil, nil
	r.Stream, r.IncludeUsage, r.Generates = false, false, false
	r.N, r.Prompts, r.TokenIDs = 1, 0, 0
	r.Session, r.SessionSource = nil, ""
	r.System, r.Prefix, r.Opening, r.Seed = nil, nil, nil, 0
	if r.Text = r.Text[:0]; cap(r.Text) > keepBytes {
		r.Text = nil
	}
}

// Tokens is the length of the prompt in the engine's tokens: exact for token
// ids, else an estimate.
func (r *Request) Tokens() int {
	if r.TokenIDs > 0 {
		return r.TokenIDs
	}
	return chain.EstimateTokens(len(r.Text))
}
