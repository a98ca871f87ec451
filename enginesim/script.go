package enginesim

import "strings"

// words are what answers are made of. They hold no white space and no over-long
// run, so each is one token also when it comes back in a later prompt.
var words = strings.Fields(`
	a about above across after again all also always and another any around as
	ask at away back balance basic batch be because become before begin below best
	better between block both branch bridge brief bring broad build but by cache
	call can careful carry cause certain chain change check choose clear close
	cloud code cold come common compare complete context copy cost count course
	cover create current data deal decide deep depth detail differ direct divide
	do does down draw drive each early easy edge effect either else empty end
	engine enough equal even every exact example expect fact fall far fast few
	field figure fill final find first fit fixed follow for force form free fresh
	from full further gather general get give go good great ground group grow half
	hand hard have head heavy held help here high hold how if in inner into is it
	item join just keep key kind know large last late layer lead learn least leave
	left length less level light like limit line list little load long look low
	main make many mark matter mean measure memory might more most move much must
	name near need never new next no node not note now number of offer often old
	on once one only open or order other out over own page pair part pass path per
	place plain plan point pool prefix present press proof quick quite range rate
	rather reach read real reason record repeat rest result return right ring road
	room root rough round route run same save scale second seem select send serve
	set several shape share shift short show side simple since single size slot
	small so some soon sort space spread stage start state stay steady step still
	store strong such sum sure table take task tell term test than that the their
	then there these they thin thing this those through time to together token top
	total track true try turn two under until up upon use value vary very view
	wait walk warm was watch way well were what when where which while whole why
	wide will with within without word work would write yes yet you zone`)

// mix is the finaliser of SplitMix64: every bit of x moves every bit of the result.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// sampling is what a request says about the length and variety of its answer.
type sampling struct {
	maxTokens int // bound on generated tokens; 0 = none given
	minTokens int
	seed      uint64
	stop      []string
	ignoreEOS bool
}

// script is an answer as it will be said, fixed before the first token is computed.
type script struct {
	root   uint64   // of the words
	pieces []string // text of the tokens of a tool call or of a cut answer; nil: words
	n      int      // tokens
	reason string   // "stop" or "length"
	stop   string   // the stop string that ended it
	tool   string   // name of the function called; "" for text
}

// newScript decides the answer of sequence choice of a prompt. room is how many
// tokens may follow the prompt.
func newScript(set *Settings, prompt []uint32, s *sampling, choice, room int) script {
	sc := script{root: mix(mix(mix(hashTokens(prompt)^mix(set.Seed))^s.seed) + uint64(choice))}
	limit := room
	if s.maxTokens > 0 {
		limit = min(limit, s.maxTokens)
	}
	mean := uint64(set.OutputTokens)
	natural := max(2, int(mean/2+mix(sc.root)%(mean+1)), s.minTokens)
	sc.n, sc.reason = natural, "stop"
	if natural > limit || s.ignoreEOS {
		sc.n, sc.reason = limit, "length"
	}
	if len(s.stop) > 0 {
		sc.cutAtStop(s)
	}
	return sc
}

// cutAtStop ends the answer just before the first stop string in its text.
func (sc *script) cutAtStop(s *sampling) {
	var text []byte
	for i := range sc.n {
		from := len(text)
		text = append(text, sc.piece(i)...)
		if i+1 < s.minTokens {
			continue
		}
		at, found := -1, ""
		for _, stop := range s.stop {
			// A match may have begun in earlier tokens.
			start := max(0, from-len(stop)+1)
			if j := strings.Index(string(text[start:]), stop); j >= 0 && (at < 0 || start+j < at) {
				at, found = start+j, stop
			}
		}
		if at < 0 {
			continue
		}
		pieces := make([]string, i+1)
		left := at
		for k := range pieces {
			pieces[k] = sc.piece(k)
			pieces[k] = pieces[k][:min(left, len(pieces[k]))]
			left -= len(pieces[k])
		}
		sc.pieces, sc.n, sc.reason, sc.stop = pieces, i+1, "stop", found
		return
	}
}

// piece is the text of token i.
func (sc *script) piece(i int) string {
	if sc.pieces != nil {
		return sc.pieces[i]
	}
	w := words[mix(sc.root^uint64(i)<<1)%uint64(len(words))]
	if i == 0 {
		return w
	}
	return " " + w
}

// text is the answer in whole.
func (sc *script) text() string {
	var b strings.Builder
	for i := range sc.n {
		b.WriteString(sc.piece(i))
	}
	return b.String()
}

// call turns the answer into a call of a function with made-up arguments that fit
// its schema. reason is what ends an answer that was not cut.
func (sc *script) call(name string, schema node, s *sampling, room int, reason string) {
	args := string(appendExample(nil, schema, sc.root, 0))
	sc.tool, sc.pieces, sc.stop = name, []string{""}, "" // the name is a token of its own
	for len(args) > 0 {
		n := min(8, len(args))
		for n < len(args) && args[n]&0xc0 == 0x80 { // never within a rune
			n++
		}
		sc.pieces = append(sc.pieces, args[:n])
		args = args[n:]
	}
	limit := room
	if s.maxTokens > 0 {
		limit = min(limit, s.maxTokens)
	}
	sc.n, sc.reason = len(sc.pieces), reason
	if sc.n > limit {
		sc.n, sc.reason = limit, "length"
	}
}

// appendExample adds a value that fits the JSON schema, its choices drawn from root.
func appendExample(dst []byte, schema node, root uint64, depth int) []byte {
	root = mix(root)
	if c := schema.get("const"); !c.absent() {
		return append(dst, c.raw...)
	}
	if e := schema.get("enum"); e.isArray() && len(e.kids) > 0 {
		return append(dst, e.kids[root%uint64(len(e.kids))].raw...)
	}
	kind := schema.get("type")
	if kind.isArray() && len(kind.kids) > 0 {
		kind = kind.kids[0]
	}
	name := kind.str()
	if name == "" && (depth == 0 || schema.get("properties").isObject()) {
		name = "object"
	}
	switch name {
	case "object":
		dst = append(dst, '{')
		for i, p := range schema.get("properties").kids {
			if depth >= 8 {
				break
			}
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(appendJSON(dst, p.key), ':')
			dst = appendExample(dst, p, root+uint64(i), depth+1)
		}
		return append(dst, '}')
	case "array":
		if items := schema.get("items"); items.isObject() && depth < 8 {
			return append(appendExample(append(dst, '['), items, root, depth+1), ']')
		}
		return append(dst, "[]"...)
	case "integer", "number":
		return append(dst, '1'+byte(root%9))
	case "boolean":
		if root%2 == 0 {
			return append(dst, "true"...)
		}
		return append(dst, "false"...)
	case "null":
		return append(dst, "null"...)
	default:
		return appendJSON(dst, words[root%uint64(len(words))])
	}
}
