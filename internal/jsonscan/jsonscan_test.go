package jsonscan

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// The seeds of the fuzz targets and the rows of the tests below: a text and
// whether it is JSON.
var texts = []struct {
	text string
	ok   bool
}{
	{``, false},
	{` `, false},
	{`null`, true},
	{` true `, true},
	{`nul`, false},
	{`nulL`, false},
	{`0`, true},
	{`-0`, true},
	{`01`, false},
	{`-`, false},
	{`1.`, false},
	{`.5`, false},
	{`1.5e+10`, true},
	{`1e`, false},
	{`1E400`, true},
	{`+1`, false},
	{`NaN`, false},
	{`"a"`, true},
	{`"a`, false},
	{`"\`, false},
	{`"\"`, false},
	{`"\\"`, true},
	{`"\x"`, false},
	{`"\u12"`, false},
	{`"\u00e9 \ud83d\ude80 \ud83d \ude80 \ud83d\u0041"`, true},
	{"\"a\nb\"", false},
	{"\"a\x7fb\"", true},
	{"\"caf\xc3\xa9 \xe4\xbd\xa0 \xf0\x9f\x9a\x80\"", true},
	{"\"\xff\"", false},
	{"\"\xc0\x80\"", false},
	{"\"\xed\xa0\x80\"", false},
	{"\"\xf4\x90\x80\x80\"", false},
	{"\"\xe4\xbd\"", false},
	{"\xef\xbb\xbf{}", false},
	{`{}`, true},
	{` { } `, true},
	{`{"a":1,"a":[2, {"b" : "\n"}]}`, true},
	{`{"a":1,}`, false},
	{`{,}`, false},
	{`{"a" 1}`, false},
	{`{"a":}`, false},
	{`{a:1}`, false},
	{`{"a":1]`, false},
	{`[1}`, false},
	{`[1,2,]`, false},
	{`[1 2]`, false},
	{`[,1]`, false},
	{`[[],[[]],{}]`, true},
	{`[1]]`, false},
	{`{}{}`, false},
	{strings.Repeat("[", 63) + strings.Repeat("]", 63), true},
	{strings.Repeat("[", 64) + strings.Repeat("]", 64), true},
	{strings.Repeat("[", 65) + strings.Repeat("]", 65), true},
	{strings.Repeat(`{"a":[`, 200) + strings.Repeat(`]}`, 200), true},
	{strings.Repeat(`{"a":[`, 200) + strings.Repeat(`}]`, 200), false},
	{strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth), true},
	{strings.Repeat("[", MaxDepth+1) + strings.Repeat("]", MaxDepth+1), false},
	{strings.Repeat("[", 100000), false},
}

func TestWhole(t *testing.T) {
	for _, tt := range texts {
		got := Whole([]byte(tt.text))
		if (got == 0) != tt.ok {
			t.Errorf("Whole(%.80q) = %d, want ok %v", tt.text, got, tt.ok)
		}
		checkWhole(t, []byte(tt.text))
	}
}

// FuzzValue compares with encoding/json, which differs in one point only: it
// lets bytes pass that are not UTF-8.
func FuzzValue(f *testing.F) {
	for _, tt := range texts {
		if len(tt.text) < 1000 {
			f.Add([]byte(tt.text))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		checkWhole(t, b)
		portably(func() { checkWhole(t, b) })
	})
}

func checkWhole(t *testing.T, b []byte) {
	t.Helper()
	got := Whole(b)
	want := json.Valid(b) && utf8.Valid(b)
	if (got == 0) != want {
		t.Fatalf("Whole(%.200q) = %d, encoding/json and UTF-8 say %v", b, got, want)
	}
	if got > 0 {
		t.Fatalf("Whole(%.200q) = %d", b, got)
	}
	if got < 0 {
		e := Error(b, got)
		if e.Offset < 0 || e.Offset > len(b) || e.End != (e.Offset == len(b)) || e.Cause == "" {
			t.Fatalf("Whole(%.200q): %+v", b, e)
		}
		return
	}
	// The form is what json.Compact has to remove, and what it cannot.
	at := Space(b, 0)
	end, form := Value(b, at, 0)
	var compact bytes.Buffer
	if err := json.Compact(&compact, b[at:end]); err != nil {
		t.Fatal(err)
	}
	var wantForm Form
	if compact.Len() != end-at {
		wantForm |= Spaced
	}
	if bytes.IndexByte(compact.Bytes(), '\\') >= 0 {
		wantForm |= Escaped
	}
	if form != wantForm {
		t.Fatalf("Value(%.200q): form %b, want %b", b, form, wantForm)
	}
}

// FuzzString decodes the same string with encoding/json.
func FuzzString(f *testing.F) {
	for _, tt := range texts {
		if len(tt.text) < 1000 && strings.HasPrefix(tt.text, `"`) {
			f.Add([]byte(tt.text[1:]))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		checkString(t, b)
		portably(func() { checkString(t, b) })
	})
}

// checkString reads the string that begins with b (without its first quote).
func checkString(t interface {
	Fatalf(string, ...any)
}, b []byte,
) {
	if useWide {
		checkEqual(t, b)
	}
	end, escaped := String(b, 0)
	prefix := []byte("prefix")
	out, end2, escaped2 := AppendString(prefix, b, 0)
	if end != end2 || end >= 0 && escaped != escaped2 {
		t.Fatalf("%q: String %d %v, AppendString %d %v", b, end, escaped, end2, escaped2)
	}
	if end < 0 {
		// No prefix of b is a string.
		for i, c := range b {
			if c == '"' && json.Valid(quoted(b[:i])) && utf8.Valid(b[:i]) {
				t.Fatalf("%q: refused, but %q is a string", b, b[:i])
			}
		}
		return
	}
	if b[end] != '"' || !utf8.Valid(b[:end]) {
		t.Fatalf("%q: end %d", b, end)
	}
	var want string
	if err := json.Unmarshal(quoted(b[:end]), &want); err != nil {
		t.Fatalf("%q: end %d: %v", b, end, err)
	}
	if escaped != (bytes.IndexByte(b[:end], '\\') >= 0) {
		t.Fatalf("%q: escaped %v", b[:end], escaped)
	}
	if !escaped && len(out) != len(prefix) {
		t.Fatalf("%q: plain string was copied", b)
	}
	if escaped && string(out) != "prefix"+want {
		t.Fatalf("%q: decoded %q, want %q", b[:end], out, want)
	}
	if got := Unescape(nil, b[:end]); string(got) != want {
		t.Fatalf("%q: Unescape %q, want %q", b[:end], got, want)
	}
}

// portably calls f with the wide functions switched off.
func portably(f func()) {
	before := useWide
	useWide = false
	defer func() { useWide = before }()
	f()
}

// checkEqual compares longWide and long, faults included, from each of the
// first positions of b on.
func checkEqual(t interface {
	Fatalf(string, ...any)
}, b []byte,
) {
	for i := range min(len(b), 40) {
		for _, keep := range []bool{false, true} {
			// Full and roomy buffers.
			for _, room := range []int{0, 1000} {
				dst := append(make([]byte, 0, room), "abc"...)
				out, end, escaped := longWide(b, i, dst, keep)
				out2, end2, escaped2 := long(b, i, dst[:3:3], keep)
				if end != end2 || end >= 0 && (escaped != escaped2 || !bytes.Equal(out, out2)) {
					t.Fatalf("%q from %d: longWide %d %v %q, long %d %v %q", b, i, end, escaped, out, end2, escaped2, out2)
				}
			}
		}
	}
}

func quoted(b []byte) []byte { return append(append([]byte{'"'}, b...), '"') }

// Every special byte at every position of every length, and none.
func TestWide(t *testing.T) {
	if !useWide {
		t.Skip("no wide instructions")
	}
	for n := wideStep; n < 200; n++ {
		s := bytes.Repeat([]byte("plain ~"), n/7+1)[:n]
		for at := 0; at <= n; at++ {
			for _, c := range []byte{'"', '\\', 0, 0x1f, 0x80, 0xff} {
				text := bytes.Clone(s)
				if at < n {
					text[at] = c
				}
				if got := indexWide(text); got != at {
					t.Fatalf("indexWide: %#x at %d of %d: %d", c, at, n, got)
				}
				dst := bytes.Repeat([]byte{'!'}, n+64)
				if got := copyWide(&dst[0], text); got != at {
					t.Fatalf("copyWide: %#x at %d of %d: %d", c, at, n, got)
				}
				if !bytes.Equal(dst[:at], text[:at]) || !bytes.Equal(dst[n:], bytes.Repeat([]byte{'!'}, 64)) {
					t.Fatalf("copyWide: %#x at %d of %d copied %q", c, at, n, dst)
				}
			}
		}
	}
}

func TestStringsOfPieces(t *testing.T) {
	pieces := []string{
		`a`, `bc `, `\n`, `\"`, `\\`, `\/`, `\u0041`, `\u00e9`, `\ud83d\ude80`, `\ud83d`, `\udead`,
		"é", "你", "好", "🚀", "\u2028", "\x7f", strings.Repeat("word ", 9), strings.Repeat("x", 64),
	}
	rapid.Check(t, func(t *rapid.T) {
		b := []byte(strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 12).Draw(t, "pieces"), ""))
		b = append(b, `" tail`...)
		if rapid.Bool().Draw(t, "damaged") {
			at := rapid.IntRange(0, len(b)-1).Draw(t, "at")
			b[at] = rapid.SampledFrom([]byte{0, 0x1f, 0x80, 0xc3, 0xff, '\\', '"'}).Draw(t, "byte")
		}
		checkString(t, b)
		portably(func() { checkString(t, b) })
	})
}

// checkText against the plain rule, with every kind of byte at every offset
// from a word's start.
func TestCheckText(t *testing.T) {
	plain := func(s []byte) int {
		for i := 0; i < len(s); {
			r, n := utf8.DecodeRune(s[i:])
			if s[i] < 0x20 || r == utf8.RuneError && n == 1 {
				return i
			}
			i += n
		}
		return -1
	}
	rng := rand.New(rand.NewPCG(1, 2))
	good := []string{"a", "b", " ", "~", "\x7f", "é", "߿", "ࠀ", "你", "퟿", "\uffff", "𐀀", "\U0010ffff"}
	bad := []string{"\x00", "\x1f", "\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xc3", "\xe0\x80\x80", "\xed\xa0\x80", "\xe4\xbd", "\xf0\x80\x80\x80", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xf0\x9f\x9a", "\xff"}
	for n := range 20000 {
		var s []byte
		for range rng.IntN(50) {
			if rng.IntN(3) > 0 {
				s = append(s, "abcdefgh"[:1+rng.IntN(8)]...)
			} else {
				s = append(s, good[rng.IntN(len(good))]...)
			}
		}
		if n%2 == 0 {
			at := rng.IntN(len(s) + 1)
			s = append(s[:at:at], append([]byte(bad[rng.IntN(len(bad))]), s[at:]...)...)
		}
		if got, want := checkText(s), plain(s); got != want {
			t.Fatalf("checkText(%q) = %d, want %d", s, got, want)
		}
	}
}

func TestErrors(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{``, `malformed JSON: the text ends at byte 0: want a value`},
		{`{"a":1`, `malformed JSON: the text ends at byte 6: want a comma or the closing bracket`},
		{`{"a":"xy`, `malformed JSON: the text ends at byte 8: unfinished string`},
		{`{"a";1}`, `malformed JSON at byte 4: want a colon after the member name`},
		{`{a:1}`, `malformed JSON at byte 1: want a member name in quotes`},
		{`{"a":1,}`, `malformed JSON at byte 7: want a member name in quotes`},
		{`{"a":1]`, `malformed JSON at byte 6: want a comma or the closing bracket`},
		{`{"a":.1}`, `malformed JSON at byte 5: want a value`},
		{`{"a":01}`, `malformed JSON at byte 5: malformed number`},
		{`{"a":tru}`, `malformed JSON at byte 5: want true, false or null`},
		{`["\q"]`, `malformed JSON at byte 2: malformed escape in a string`},
		{"[\"a\tb\"]", `malformed JSON at byte 3: control character in a string, want it escaped`},
		{"[\"a\xffb\"]", `malformed JSON at byte 3: not UTF-8`},
		{`[] x`, `malformed JSON at byte 3: data after the end of the value`},
		{strings.Repeat("[", MaxDepth+1), `malformed JSON at byte 10000: nested too deep`},
	} {
		b := []byte(tt.text)
		var err error = Error(b, Whole(b))
		var syntax *SyntaxError
		if err.Error() != tt.want || !errors.As(err, &syntax) {
			t.Errorf("%.40q: %q, want %q", tt.text, err, tt.want)
		}
	}
}

// Member and Element walk what Value skips, and to the same end.
func TestWalk(t *testing.T) {
	b := []byte(` {"a" : [1, [2] ,3 ] ,"\u0062":{ } } x`)
	var names, elements []string
	i := Space(b, 0) + 1
	for first := true; ; first = false {
		k, at := Member(b, i, first)
		if at < 0 {
			t.Fatal(Error(b, at))
		}
		if k == (Key{}) {
			i = at
			break
		}
		names = append(names, string(b[k.Lo:k.Hi]))
		if i = Skip(b, at, 1); i < 0 {
			t.Fatal(Error(b, i))
		}
		if b[at] != '[' {
			continue
		}
		j := at + 1
		for first := true; ; first = false {
			at, more := Element(b, j, first)
			if !more {
				if j = at; j != i {
					t.Errorf("array ends at %d, Skip says %d", j, i)
				}
				break
			}
			j = Skip(b, at, 2)
			elements = append(elements, string(b[at:j]))
		}
	}
	if got := strings.Join(names, " "); got != `a \u0062` {
		t.Errorf("names %s", got)
	}
	if got := strings.Join(elements, " "); got != `1 [2] 3` {
		t.Errorf("elements %s", got)
	}
	if i != len(b)-2 {
		t.Errorf("object ends at %d", i)
	}
}
