package prompt

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"

	"github.com/calinix/caddy-calinix/chain"
)

// The oracle: Parse once more, slowly and plainly, over what encoding/json
// makes of the body. It shares with the package the words of doc.go only.

// answer is what the oracle expects of a Request.
type answer struct {
	JSON, OK, Stream, IncludeUsage, Generates bool
	Model, CacheSalt, Text, System            string
	Session, SessionSource                    string
	N, Prompts, TokenIDs                      int
	Seed                                      uint64
}

func oracle(api API, body []byte) answer {
	a := answer{N: 1}
	if !utf8.Valid(body) || !json.Valid(body) {
		return a
	}
	o, ok := parseObject(string(body))
	if !ok {
		return a
	}
	a.JSON = true
	a.Model, _ = o.str("model")
	a.CacheSalt, _ = o.str("cache_salt")
	a.Stream = o.get("stream") == "true"
	a.IncludeUsage = o.object("stream_options").get("include_usage") == "true"
	a.N = count(o.get("n"), 1)
	if api == Completions {
		a.N = max(a.N, count(o.get("best_of"), a.N))
	}
	for _, name := range []string{"session_id", "prompt_cache_key", "safety_identifier", "user"} {
		if s, _ := o.str(name); s != "" {
			a.Session, a.SessionSource = s, name
			break
		}
	}

	var p page
	stored := false
	switch api {
	case Chat, Messages:
		messages, ok := objects(o.get("messages"))
		if !ok {
			return a
		}
		p.lines = toolLines(o.get("tools"))
		if api == Chat {
			p.lines = append(p.lines, toolLines(o.get("functions"))...)
			if docs, _ := parseArray(o.get("documents")); len(docs) > 0 {
				p.lines = append(p.lines, "\x01D", short(o.get("documents")))
			}
		} else {
			p.turn(oturn{marker: "\x01s", soft: true, things: contentThings(api, o.get("system"), false)})
		}
		for _, m := range messages {
			p.turn(messageTurn(api, m))
		}
		a.Prompts = 1
	case Responses:
		p.lines = toolLines(o.get("tools"))
		instructions, _ := o.str("instructions")
		p.turn(oturn{marker: "\x01s", soft: true, things: textThing(instructions)})
		previous, _ := o.str("previous_response_id")
		conversation, ok := o.str("conversation")
		if !ok {
			conversation, _ = o.object("conversation").str("id")
		}
		for _, id := range []string{previous, conversation} {
			if id != "" {
				stored = true
				p.turn(oturn{things: tokenThing("p", id)})
			}
		}
		if template := o.get("prompt"); template != "" {
			p.turn(oturn{things: tokenThing("p", short(template))})
		}
		if s, ok := parseString(o.get("input")); ok {
			p.turn(oturn{marker: "\x01u", things: textThing(s)})
		} else if items, ok := objects(o.get("input")); ok {
			p.render(itemTurns(items))
		} else {
			return a
		}
		a.Prompts = 1
	case Completions, Embeddings:
		prompts, ids, ok := texts(o.get(map[API]string{Completions: "prompt", Embeddings: "input"}[api]))
		if !ok {
			return a
		}
		for i, text := range prompts {
			if i > 0 {
				p.lines = append(p.lines, "\x01p")
			}
			if text != "" {
				p.lines = append(p.lines, text)
			}
		}
		a.Prompts, a.TokenIDs = len(prompts), ids
	default:
		return a
	}
	p.end()
	a.Text = strings.Join(p.lines, "\n")
	if a.Text == "" {
		a.Prompts, a.TokenIDs = 0, 0
		return a
	}
	a.System = strings.Join(p.lines[p.system[0]:max(p.system[0], p.system[1])], "\n")
	a.OK = true
	a.Generates = api != Embeddings && a.N == 1 && a.Prompts == 1 && !stored
	a.Seed = chain.Seed([]byte(a.Model), []byte(a.CacheSalt), namespace(api, o), []byte(map[bool]string{true: "token ids"}[a.TokenIDs > 0]))
	return a
}

func objects(raw string) (all []object, ok bool) {
	elements, ok := parseArray(raw)
	for _, e := range elements {
		o, isObject := parseObject(e)
		ok = ok && isObject
		all = append(all, o)
	}
	return all, ok && len(all) > 0
}

func count(raw string, absent int) int {
	negative := strings.HasPrefix(raw, "-")
	raw = strings.TrimPrefix(raw, "-")
	if raw == "" || strings.Trim(raw, "0123456789") != "" {
		return absent
	}
	n := 0
	for _, c := range raw {
		n = min(10*n+int(c-'0'), 1<<30)
	}
	if negative {
		return -n
	}
	return n
}

// texts reads the six forms of a prompt.
func texts(raw string) (prompts []string, ids int, ok bool) {
	if s, ok := parseString(raw); ok {
		return []string{strings.ReplaceAll(s, "\x01", "\x01\x01")}, 0, true
	}
	elements, ok := parseArray(raw)
	if !ok || len(elements) == 0 {
		return nil, 0, false
	}
	if strings.HasPrefix(elements[0], `"`) {
		for _, e := range elements {
			s, ok := parseString(e)
			if !ok {
				return nil, 0, false
			}
			prompts = append(prompts, strings.ReplaceAll(s, "\x01", "\x01\x01"))
		}
		return prompts, 0, true
	}
	lists := []string{raw}
	if strings.HasPrefix(elements[0], "[") {
		lists = elements
	}
	for _, list := range lists {
		elements, ok := parseArray(list)
		if !ok || len(elements) == 0 {
			return nil, 0, false
		}
		for _, e := range elements {
			if strings.Trim(e, "0123456789") != "" || len(e) > 18 {
				return nil, 0, false
			}
		}
		prompts = append(prompts, strings.Join(elements, " "))
		ids += len(elements)
	}
	return prompts, ids, true
}

// namespace is what the members say that change a prompt in the engine's way.
func namespace(api API, o object) []byte {
	salt := o.get("cache_salt")
	if strings.HasPrefix(salt, `"`) {
		salt = ""
	}
	all := []string{salt, o.get("extra_key"), o.get("lora_path"), "", "", "", ""}
	if api == Chat || api == Messages {
		all[3], all[4], all[5] = o.get("chat_template"), o.get("chat_template_kwargs"), o.get("mm_processor_kwargs")
	}
	switch api {
	case Chat:
		all[6] = o.get("reasoning_effort")
	case Messages:
		all[6] = o.object("output_config").get("effort")
	case Responses:
		all[6] = o.object("reasoning").get("effort")
	}
	var b bytes.Buffer
	for i, raw := range all {
		if raw != "" {
			fmt.Fprintf(&b, "%d:%s\n", i, short(raw))
		}
	}
	if b.Len() == 0 {
		return nil
	}
	return binary.LittleEndian.AppendUint64(nil, xxhash.Sum64(b.Bytes()))
}

// checkParse compares Parse with the oracle.
func checkParse(t interface {
	Helper()
	Fatalf(string, ...any)
}, r *Request, api API, body []byte,
) {
	t.Helper()
	original := bytes.Clone(body)
	r.Parse(api, body)
	got := answer{
		r.JSON, r.OK, r.Stream, r.IncludeUsage, r.Generates,
		string(r.Model), string(r.CacheSalt), string(r.Text), string(r.System),
		string(r.Session), r.SessionSource, r.N, r.Prompts, r.TokenIDs, r.Seed,
	}
	if !bytes.Equal(body, original) {
		t.Fatalf("Parse changed the body %q", original)
	}
	if want := oracle(api, body); got != want {
		t.Fatalf("API %d, body %q\n got %+q\nwant %+q", api, body, fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want))
	}
	if !utf8.Valid(r.Text) {
		t.Fatalf("API %d, body %q: Text %q is not UTF-8", api, body, r.Text)
	}
}
