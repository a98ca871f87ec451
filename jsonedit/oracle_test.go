package jsonedit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// piece is a member with what stands around it, cut out by encoding/json.
type piece struct {
	lead  string // whitespace before the name
	text  string // from the name's first quote to the value's end
	trail string // whitespace after the value
	name  string // decoded
	value string // raw
	colon string // between the name and the value
	key   string // raw, with quotes
	stays bool
}

// cut takes a body apart; before and after stand outside the braces, and empty
// is what an object without members holds.
func cut(body []byte) (before string, pieces []piece, empty, after string, ok bool) {
	if !utf8.Valid(body) || !json.Valid(body) {
		return
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return
	}
	at := int(dec.InputOffset())
	before = string(body[:at-1])
	space := func(s string) string { return s[:len(s)-len(strings.TrimLeft(s, " \t\r\n"))] }
	for dec.More() {
		var p piece
		rest := strings.TrimPrefix(string(body[at:]), ",")
		at = len(body) - len(rest)
		p.lead = space(rest)
		tok, err := dec.Token()
		if err != nil {
			panic(err)
		}
		p.name = tok.(string)
		keyEnd := int(dec.InputOffset())
		p.key = string(body[at+len(p.lead) : keyEnd])
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			panic(err)
		}
		end := int(dec.InputOffset())
		p.value = string(raw)
		p.colon = string(body[keyEnd : end-len(raw)])
		p.text = string(body[at+len(p.lead) : end])
		p.trail = space(string(body[end:]))
		at = end + len(p.trail)
		pieces = append(pieces, p)
	}
	if len(pieces) == 0 {
		empty = space(string(body[at:]))
		at += len(empty)
	}
	return before, pieces, empty, string(body[at+1:]), true
}

// plain is Apply written over the pieces: one edit after the other, in the
// words of its documentation.
func plain(body []byte, edits []Edit) (string, bool) {
	before, pieces, empty, after, ok := cut(body)
	if !ok {
		return "", false
	}
	lead, tail := "", empty // around what stands where members end
	if n := len(pieces); n > 0 {
		tail, pieces[n-1].trail = pieces[n-1].trail, ""
	}
	drop := func(k int) {
		switch {
		case k > 0:
			pieces[k-1].trail += pieces[k].trail
		case len(pieces) > 1:
			pieces[1].lead = pieces[0].lead
		default:
			lead = pieces[0].lead
		}
		pieces = append(pieces[:k], pieces[k+1:]...)
	}
	counts := map[string]Edit{}
	for _, e := range edits {
		counts[e.Name] = e
	}
	seen := map[string]bool{}
	for k := len(pieces) - 1; k >= 0; k-- {
		p := &pieces[k]
		if e := counts[p.name]; e.Value != nil && !seen[p.name] {
			seen[p.name] = true
			p.value = string(e.Value)
			p.text = p.key + p.colon + p.value
			p.stays = true
		} else if _, exact := counts[p.name]; !exact {
			p.stays = !slices.ContainsFunc(edits, func(e Edit) bool { return e.Fold && strings.EqualFold(e.Name, p.name) })
		}
	}
	for k := 0; k < len(pieces); {
		if pieces[k].stays {
			k++
		} else {
			drop(k)
		}
	}
	for i, e := range edits {
		last := true
		for _, later := range edits[i+1:] {
			last = last && later.Name != e.Name
		}
		if !last || e.Value == nil || seen[e.Name] {
			continue
		}
		name, _ := json.Marshal(e.Name)
		p := piece{text: string(name) + ":" + string(e.Value)}
		if len(pieces) == 0 {
			p.lead, lead = lead, ""
		}
		pieces = append(pieces, p)
	}
	var out strings.Builder
	out.WriteString(before + "{")
	for i, p := range pieces {
		if i > 0 {
			out.WriteByte(',')
		}
		out.WriteString(p.lead + p.text + p.trail)
	}
	return out.String() + lead + tail + "}" + after, true
}

// checkApply compares Apply with plain and Member with the pieces.
func checkApply(t interface {
	Fatalf(string, ...any)
}, body []byte, edits []Edit,
) {
	original := bytes.Clone(body)
	got, err := Apply(nil, body, edits...)
	want, ok := plain(body, edits)
	if !bytes.Equal(body, original) {
		t.Fatalf("Apply changed the body %q", original)
	}
	if ok != (err == nil) {
		t.Fatalf("Apply(%q): %v, encoding/json says ok %v", body, err, ok)
	}
	if !ok {
		return
	}
	if !json.Valid(got) {
		t.Fatalf("Apply(%q, %s) = %q, not JSON", body, show(edits), got)
	}
	if a, b := split(string(got)), split(want); a != b {
		t.Fatalf("Apply(%q, %s)\n  = %q\nwant %q", body, show(edits), got, want)
	}
	_, pieces, _, _, _ := cut(body)
	for _, e := range edits {
		value, found, err := Member(body, e.Name)
		var last *piece
		for i := range pieces {
			if pieces[i].name == e.Name {
				last = &pieces[i]
			}
		}
		if err != nil || found != (last != nil) || found && string(value) != last.value {
			t.Fatalf("Member(%q, %q) = %q, %v, %v", body, e.Name, value, found, err)
		}
	}
}

// split makes added names comparable, which may be spelled with other escapes.
func split(s string) string {
	return strings.NewReplacer(`\n`, `\u000a`, `\r`, `\u000d`, `\t`, `\u0009`, `\b`, `\u0008`, `\f`, `\u000c`, `\u003c`, `<`, `\u003e`, `>`, `\u0026`, `&`, `\u2028`, "\u2028", `\u2029`, "\u2029").Replace(s)
}

func show(edits []Edit) string {
	var s []string
	for _, e := range edits {
		s = append(s, fmt.Sprintf("%q=%q fold=%v", e.Name, e.Value, e.Fold))
	}
	return strings.Join(s, ", ")
}

func FuzzApply(f *testing.F) {
	for _, body := range []string{
		`{}`, `{ }`, `{"a":1}`, ` { "a" : 1 , "b" : [ {"a":2} ] , "a" : null } `, `{"\u0061":1,"A":2,"b":3}`,
		`{"a":1,}`, `[]`, `{"a":"\ud800"}`, "{\"\xff\":1}", "{\"\u212a\":1,\"k\":2,\"K\":3}",
	} {
		f.Add([]byte(body), "a", []byte("7"), "b", []byte("[]"), uint8(0x12))
		f.Add([]byte(body), "b", []byte(`"x"`), "k", []byte("{}"), uint8(0x2d))
	}
	f.Fuzz(func(t *testing.T, body []byte, a string, av []byte, b string, bv []byte, kinds uint8) {
		if !utf8.ValidString(a) || !utf8.ValidString(b) || !json.Valid(av) || !json.Valid(bv) || !utf8.Valid(av) || !utf8.Valid(bv) {
			return
		}
		edits := []Edit{{Name: a, Fold: kinds&1 != 0}, {Name: b, Fold: kinds&2 != 0}, {Name: "a", Fold: kinds&4 != 0}}
		if kinds&8 != 0 {
			edits[0].Value = av
		}
		if kinds&16 != 0 {
			edits[1].Value = bv
		}
		if kinds&32 != 0 {
			edits[2].Value = []byte(`{"n":1}`)
		}
		checkApply(t, body, edits[:1+int(kinds>>6)%3])
	})
}

func TestApplyProperty(t *testing.T) {
	keys := []string{`"a"`, `"b"`, `"kv"`, `"KV"`, `"\u006bv"`, `"\u212aV"`, `"stream"`, `""`}
	names := []string{"a", "b", "kv", "KV", "stream", "", "new", `q"`}
	values := []string{`1`, `-0.10e+2`, `null`, `"x\ny"`, `[1, {"a":2}]`, `{ "kv" : {} }`, `""`, `9007199254740993`}
	space := rapid.SampledFrom([]string{"", "", " ", "\n\t"})
	rapid.Check(t, func(t *rapid.T) {
		var b strings.Builder
		b.WriteString(space.Draw(t, "s") + "{" + space.Draw(t, "s"))
		for i := range rapid.IntRange(0, 8).Draw(t, "members") {
			if i > 0 {
				b.WriteString("," + space.Draw(t, "s"))
			}
			b.WriteString(rapid.SampledFrom(keys).Draw(t, "key") + space.Draw(t, "s") + ":" + space.Draw(t, "s"))
			b.WriteString(rapid.SampledFrom(values).Draw(t, "value") + space.Draw(t, "s"))
		}
		b.WriteString("}" + space.Draw(t, "s"))
		var edits []Edit
		for range rapid.IntRange(0, 5).Draw(t, "edits") {
			e := Edit{Name: rapid.SampledFrom(names).Draw(t, "name"), Fold: rapid.Bool().Draw(t, "fold")}
			if rapid.Bool().Draw(t, "set") {
				e.Value = []byte(rapid.SampledFrom(values).Draw(t, "value"))
			}
			edits = append(edits, e)
		}
		checkApply(t, []byte(b.String()), edits)
	})
}

func BenchmarkApply(b *testing.B) {
	rng := rand.New(rand.NewPCG(3, 4))
	edits := []Edit{
		{Name: "kv_transfer_params", Value: []byte(`{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}`)},
		set("max_tokens", "1"), set("max_completion_tokens", "1"), set("stream", "false"), remove("stream_options"), remove("min_tokens"),
	}
	for _, size := range []int{1 << 10, 8 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			bodies := make([][]byte, min(256, 4<<20/size))
			for i := range bodies {
				var text strings.Builder
				for text.Len() < size {
					fmt.Fprintf(&text, "w%d ", rng.IntN(1e6))
				}
				bodies[i] = fmt.Appendf(nil, `{"model":"m","messages":[{"role":"user","content":"%s"}],"stream":true,"stream_options":{"include_usage":true},"max_tokens":64}`, text.String())
			}
			var dst []byte
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				var err error
				if dst, err = Apply(dst[:0], bodies[i%len(bodies)], edits...); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
