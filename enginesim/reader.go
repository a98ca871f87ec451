package enginesim

import "math"

// reader takes members out of a request body and keeps the first fault, so that a
// list of members reads as a list.
type reader struct {
	body node
	err  *apiError
}

func (r *reader) fail(param, format string, args ...any) {
	if r.err == nil {
		r.err = badRequest(param, format, args...)
	}
}

// integer returns a member, or def if it is absent.
func (r *reader) integer(name string, least, def int) int {
	n := r.body.get(name)
	if n.absent() {
		return def
	}
	v, ok := n.integer()
	switch {
	case !ok || v > math.MaxInt32 || v < math.MinInt32:
		r.fail(name, "%s: Input should be a valid integer", name)
	case v < int64(least):
		r.fail(name, "%s must be at least %d, got %d.", name, least, v)
	default:
		return int(v)
	}
	return def
}

func (r *reader) boolean(from node, name string) bool {
	n := from.get(name)
	if !n.absent() && !n.isTrue() && !n.isFalse() {
		r.fail(name, "%s: Input should be a valid boolean", name)
	}
	return n.isTrue()
}

func (r *reader) text(name string) string {
	n := r.body.get(name)
	if !n.absent() && !n.isString() {
		r.fail(name, "%s: Input should be a valid string", name)
	}
	return n.str()
}

// common reads what all generating APIs share.
func (r *reader) common(set *Settings) *ask {
	a := &ask{n: 1, model: r.text("model"), stream: r.boolean(r.body, "stream"), transfer: r.body.get("kv_transfer_params"), body: r.body}
	if a.model == "" {
		a.model = set.defaultModel()
	}
	salt := r.body.get("cache_salt")
	if !salt.absent() && salt.str() == "" {
		r.fail("cache_salt", "Parameter 'cache_salt' must be a non-empty string if provided.")
	}
	a.root = namespace(a.model, salt.str())
	if seed, ok := r.body.get("seed").integer(); ok {
		a.sampling.seed = uint64(seed)
	} else if !r.body.get("seed").absent() {
		r.fail("seed", "seed: Input should be a valid integer")
	}
	a.sampling.minTokens = r.integer("min_tokens", 0, 0)
	a.sampling.ignoreEOS = r.boolean(r.body, "ignore_eos")
	return a
}

// openAI reads what chat and text completions share beyond that.
func (r *reader) openAI(a *ask) {
	a.n = r.integer("n", 1, 1)
	a.sampling.stop = r.stops("stop")
	options := r.body.get("stream_options")
	if !options.absent() && !a.stream {
		r.fail("stream_options", "Stream options can only be defined when `stream=True`.")
	}
	a.includeUsage = r.boolean(options, "include_usage")
	a.continuousUsage = a.includeUsage && r.boolean(options, "continuous_usage_stats")
}

// stops reads a stop string or a list of them.
func (r *reader) stops(name string) (stops []string) {
	n := r.body.get(name)
	list := n.kids
	if n.isString() {
		list = []node{n}
	} else if !n.absent() && !n.isArray() {
		r.fail(name, "%s: Input should be a valid string or list", name)
	}
	for _, s := range list {
		switch {
		case !s.isString():
			r.fail(name, "%s: Input should be a valid string", name)
		case s.str() == "":
			r.fail(name, "stop cannot contain an empty string.")
		default:
			stops = append(stops, s.str())
		}
	}
	return stops
}

// promptForms reads a prompt or an input in its four forms: a string, strings, token
// ids, lists of token ids.
func (r *reader) promptForms(name string, t tokenizer) (prompts [][]uint32) {
	n := r.body.get(name)
	one := func(p node) {
		var ids []uint32
		switch {
		case p.isString():
			ids = t.append(nil, p.str())
		case p.isArray():
			ids = r.ids(name, p)
		default:
			r.fail(name, "%s: Input should be a string, token ids, or a list of those", name)
			return
		}
		if len(ids) == 0 {
			r.fail(name, "The decoder prompt cannot be empty")
		}
		prompts = append(prompts, ids)
	}
	if n.isArray() && len(n.kids) > 0 && (n.kids[0].isString() || n.kids[0].isArray()) {
		for _, p := range n.kids {
			one(p)
		}
		return prompts
	}
	one(n)
	return prompts
}

func (r *reader) ids(name string, list node) []uint32 {
	ids := make([]uint32, 0, len(list.kids))
	for _, k := range list.kids {
		v, ok := k.integer()
		if !ok || v < 0 || v > math.MaxInt32 {
			r.fail(name, "%s: Token id %s is out of vocabulary", name, k.raw)
			return nil
		}
		ids = append(ids, uint32(v))
	}
	return ids
}
