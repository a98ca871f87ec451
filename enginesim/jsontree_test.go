package enginesim

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// plain turns a tree into what encoding/json would make of it.
func plain(n node) any {
	switch {
	case n.isObject():
		m := map[string]any{}
		for _, k := range n.kids {
			m[k.key] = plain(k)
		}
		return m
	case n.isArray():
		s := []any{}
		for _, k := range n.kids {
			s = append(s, plain(k))
		}
		return s
	case n.isString():
		return n.str()
	case n.isNull():
		return nil
	case n.isTrue(), n.isFalse():
		return n.isTrue()
	default:
		return json.Number(n.raw)
	}
}

func FuzzParseJSON(f *testing.F) {
	for _, s := range []string{
		`{"a":[1,2.5,-0,1e9,-1E-2,true,false,null],"b":{"c":"d"}}`, ` [ ] `, `{}`, `""`, `"\u0041\ud83d\ude00\ud800x\udc00\n\/"`,
		`{"a":1,"a":2,"\u0061":3}`, `{"a":}`, `[1,]`, `01`, `1.`, `-`, `nul`, `"` + "\x01" + `"`, "\"\xff\"", `{} {}`, `{"a" : 1 , "b" : [ ] }`,
		`"\ud800\u0041"`, `"\ud800\ud800\udc00"`, `"\q"`, `"\u12"`, `"`, ``, `[[[[`, `9223372036854775808`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := parseJSON([]byte(s))
		var want any
		d := json.NewDecoder(strings.NewReader(s))
		d.UseNumber()
		wantErr := d.Decode(&want)
		ok := json.Valid([]byte(s)) && utf8.ValidString(s)
		if strings.Count(s, "[")+strings.Count(s, "{") > maxNesting {
			t.Skip("the two readers differ in depth on purpose")
		}
		if (err == nil) != ok {
			t.Fatalf("%q: error %v, encoding/json: %v", s, err, wantErr)
		}
		if err != nil {
			return
		}
		got, _ := json.Marshal(plain(n))
		wanted, _ := json.Marshal(want)
		if string(got) != string(wanted) {
			t.Fatalf("%q: read %s, encoding/json %s", s, got, wanted)
		}
	})
}

func TestParseJSONDepth(t *testing.T) {
	if _, err := parseJSON([]byte(strings.Repeat("[", maxNesting) + strings.Repeat("]", maxNesting))); err != nil {
		t.Error(err)
	}
	if _, err := parseJSON([]byte(strings.Repeat("[", 1_000_000))); err == nil {
		t.Error("a million open brackets were accepted")
	}
}

func TestNodeAccess(t *testing.T) {
	n, err := parseJSON([]byte(`{"i":5,"f":5.0,"h":5.5,"big":9007199254740993,"s":"5","n":null,"d":1,"d":2,"I":7}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		key string
		v   int64
		ok  bool
	}{{"i", 5, true}, {"f", 5, true}, {"h", 0, false}, {"big", 9007199254740993, true}, {"s", 0, false}, {"n", 0, false}, {"d", 2, true}, {"x", 0, false}, {"I", 7, true}} {
		if v, ok := n.get(c.key).integer(); v != c.v || ok != c.ok {
			t.Errorf("%s: got %d %v, want %d %v", c.key, v, ok, c.v, c.ok)
		}
	}
	if !n.get("n").absent() || n.get("s").str() != "5" || n.get("i").str() != "" {
		t.Error("null must read as absent, and a number not as a string")
	}
}
