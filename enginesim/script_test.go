package enginesim

import (
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestWordsAreTokens(t *testing.T) {
	if len(words) < 256 {
		t.Errorf("only %d words", len(words))
	}
	seen := map[string]bool{}
	for _, w := range words {
		n := 0
		tokenizer{16}.each(" "+w, func(string) { n++ })
		if n != 1 || seen[w] {
			t.Errorf("%q is %d tokens, seen before: %v", w, n, seen[w])
		}
		seen[w] = true
	}
}

// The answer is a pure function of seed, prompt, sampling seed and choice, and of
// nothing else.
func TestScriptIsPure(t *testing.T) {
	base, _ := Settings{}.WithDefaults()
	text := func(set Settings, prompt []uint32, s sampling, choice int) string {
		sc := newScript(&set, prompt, &s, choice, 1000)
		return sc.text()
	}
	want := text(base, ids(0, 10), sampling{}, 0)
	slower := base
	slower.DecodeTokensPerSecond, slower.Name = 1, "other"
	if got := text(slower, ids(0, 10), sampling{}, 0); got != want {
		t.Errorf("another speed and name gave %q, want %q", got, want)
	}
	// A longer limit continues the same words.
	if got := text(base, ids(0, 10), sampling{maxTokens: 3}, 0); !strings.HasPrefix(want, got+" ") || len(strings.Fields(got)) != 3 {
		t.Errorf("three tokens %q do not begin %q", got, want)
	}
	seeded := base
	seeded.Seed = 1
	for name, got := range map[string]string{
		"engine seed": text(seeded, ids(0, 10), sampling{}, 0), "prompt": text(base, ids(0, 11), sampling{}, 0),
		"sampling seed": text(base, ids(0, 10), sampling{seed: 1}, 0), "choice": text(base, ids(0, 10), sampling{}, 1),
	} {
		if got == want {
			t.Errorf("another %s gave the same answer", name)
		}
	}
}

func TestAnswerLengths(t *testing.T) {
	set, _ := Settings{OutputTokens: 40}.WithDefaults()
	rapid.Check(t, func(t *rapid.T) {
		s := sampling{
			maxTokens: rapid.IntRange(0, 90).Draw(t, "max"), ignoreEOS: rapid.Bool().Draw(t, "ignore_eos"),
			seed: rapid.Uint64().Draw(t, "seed"),
		}
		s.minTokens = rapid.IntRange(0, max(s.maxTokens, 70)).Draw(t, "min")
		if s.maxTokens > 0 {
			s.minTokens = min(s.minTokens, s.maxTokens)
		}
		room := rapid.IntRange(1, 100).Draw(t, "room")
		sc := newScript(&set, ids(0, 5), &s, 0, room)
		limit := room
		if s.maxTokens > 0 {
			limit = min(limit, s.maxTokens)
		}
		natural := min(max(s.minTokens, 20), limit) <= sc.n && sc.n <= max(60, s.minTokens)
		switch {
		case sc.n < 1 || sc.n > limit:
			t.Fatalf("%d tokens, limit %d", sc.n, limit)
		case sc.reason == "length" && sc.n != limit:
			t.Fatalf("ended by length at %d of %d", sc.n, limit)
		case sc.reason == "stop" && (s.ignoreEOS || !natural):
			t.Fatalf("stopped at %d: %+v", sc.n, s)
		case len(strings.Fields(sc.text())) != sc.n:
			t.Fatalf("%d tokens, but said %q", sc.n, sc.text())
		}
	})
}

// Cutting at stop strings equals looking for them in the whole answer, token by token.
func TestStopStrings(t *testing.T) {
	set, _ := Settings{}.WithDefaults()
	rapid.Check(t, func(t *rapid.T) {
		plain := newScript(&set, ids(rapid.IntRange(0, 99).Draw(t, "prompt"), 5), &sampling{}, 0, 1000)
		text := plain.text()
		var stops []string
		for range rapid.IntRange(1, 3).Draw(t, "stops") {
			from := rapid.IntRange(0, len(text)-1).Draw(t, "from")
			stops = append(stops, text[from:min(len(text), from+rapid.IntRange(1, 12).Draw(t, "length"))])
		}
		least := rapid.IntRange(0, 5).Draw(t, "min_tokens")
		got := plain
		got.pieces = nil
		got.cutAtStop(&sampling{stop: stops, minTokens: least})
		said, at := "", -1
		for i := range plain.n {
			before := len(said)
			said += plain.piece(i)
			if i+1 < least {
				continue
			}
			for _, s := range stops {
				from := max(0, before-len(s)+1)
				if j := strings.Index(said[from:], s); j >= 0 && (at < 0 || from+j < at) {
					at = from + j
				}
			}
			if at >= 0 {
				if got.n != i+1 || got.text() != said[:at] || got.reason != "stop" {
					t.Fatalf("stops %q in %q: %d tokens %q, want %d and %q", stops, text, got.n, got.text(), i+1, said[:at])
				}
				return
			}
		}
		if got.n != plain.n || got.text() != text {
			t.Fatalf("stops %q do not occur in %q, but cut it to %q", stops, text, got.text())
		}
	})
}

func TestToolArguments(t *testing.T) {
	schema, err := parseJSON([]byte(`{"type":"object","properties":{"city":{"type":"string"},"unit":{"enum":["C","F"]},"days":{"type":"integer"},
		"where":{"type":"object","properties":{"lat":{"type":"number"},"on":{"type":"boolean"}}},"tags":{"type":"array","items":{"type":"string"}},
		"maybe":{"type":["null","string"]},"fixed":{"const":{"a":1}},"free":{}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(50) {
		sc := script{root: mix(seed)}
		sc.call("f", schema, &sampling{}, 1000, "tool_calls")
		var v struct {
			City  string
			Unit  string
			Days  int
			Where struct {
				Lat float64
				On  bool
			}
			Tags  []string
			Fixed map[string]int
			Free  string
		}
		if err := json.Unmarshal([]byte(sc.text()), &v); err != nil || v.City == "" || (v.Unit != "C" && v.Unit != "F") || len(v.Tags) != 1 || v.Fixed["a"] != 1 || sc.reason != "tool_calls" {
			t.Fatalf("%s: %v", sc.text(), err)
		}
		cut := script{root: mix(seed)}
		cut.call("f", schema, &sampling{maxTokens: 3}, 1000, "tool_calls")
		if cut.n != 3 || cut.reason != "length" || !strings.HasPrefix(sc.text(), cut.text()) {
			t.Fatalf("cut to %d tokens %q (%s)", cut.n, cut.text(), cut.reason)
		}
	}
	// A schema that never ends.
	deep := node{}
	for range 100 {
		deep, _ = parseJSON([]byte(`{"type":"object","properties":{"x":` + orDefault(string(deep.raw), "{}") + `}}`))
	}
	if got := appendExample(nil, deep, 1, 0); !json.Valid(got) || len(got) > 1000 {
		t.Errorf("%d bytes for a deep schema: %.100s", len(got), got)
	}
}

// The tokenizer against the plainest reading of the rule.
func TestTokenizer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.RuneFrom([]rune("ab \t\n\u0085\u00a0\u2003\u3000\u200bé你😀"))).Draw(t, "text")
		limit := rapid.IntRange(0, 5).Draw(t, "limit")
		var want []string
		for _, run := range strings.Fields(text) {
			for limit > 0 && len(run) > limit {
				want = append(want, run[:limit])
				run = run[limit:]
			}
			want = append(want, run)
		}
		var got []string
		tokenizer{limit}.each(text, func(token string) { got = append(got, token) })
		if strings.Join(got, "|") != strings.Join(want, "|") || len(got) != len(want) {
			t.Fatalf("%q: %q, want %q", text, got, want)
		}
	})
}
