package prompt

import (
	"encoding/json"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/calinix/caddy-calinix/internal/jsonscan"
)

// bombs are bodies made to take long, by size. With anything worse than linear time
// the test would take minutes.
func bombs() map[string]struct {
	api  API
	body string
	ok   bool
} {
	const n = 1 << 18
	wrap := func(content string) string { return `{"messages":[{"role":"user","content":` + content + `}]}` }
	type bomb = struct {
		api  API
		body string
		ok   bool
	}
	const chat = `"messages":[{"role":"user","content":"x"}]`
	return map[string]bomb{
		"open arrays":                 {Chat, strings.Repeat("[", n), false},
		"open arrays in a member":     {Chat, `{"x":` + strings.Repeat("[", n), false},
		"open objects":                {Chat, strings.Repeat(`{"x":`, n), false},
		"deep content":                {Messages, wrap(strings.Repeat(`[{"type":"tool_result","content":`, n/8)), false},
		"deep but allowed":            {Messages, wrap(strings.Repeat(`[{"content":`, 4990) + `1` + strings.Repeat(`}]`, 4990)), true},
		"too deep":                    {Messages, wrap(strings.Repeat(`[{"content":`, 5000) + `1` + strings.Repeat(`}]`, 5000)), false},
		"escapes":                     {Chat, wrap(`"` + strings.Repeat(`\n`, n) + `"`), true},
		"quotes":                      {Chat, wrap(`"` + strings.Repeat(`\"`, n) + `"`), true},
		"backslashes":                 {Chat, wrap(`"` + strings.Repeat(`\\`, n) + `"`), true},
		"unicode escapes":             {Chat, wrap(`"` + strings.Repeat(`\u00e9`, n/2) + `"`), true},
		"surrogates":                  {Chat, wrap(`"` + strings.Repeat(`\ud83d`, n/2) + `"`), true},
		"marker bytes":                {Chat, wrap(`"` + strings.Repeat(`\u0001`, n/2) + `"`), true},
		"no end of a string":          {Chat, wrap(`"` + strings.Repeat(`\"`, n)), false},
		"messages":                    {Chat, `{"messages":[` + strings.Repeat(`{"role":"user","content":"x"},`, 30000) + `{}]}`, true},
		"too many messages":           {Chat, `{"messages":[` + strings.Repeat(`{"role":"user","content":"x"},`, 50000) + `{}]}`, false},
		"empty messages":              {Chat, `{"messages":[` + strings.Repeat(`{},`, n/8) + `{}]}`, true},
		"too many empty messages":     {Chat, `{"messages":[` + strings.Repeat(`{},`, n) + `{}]}`, false},
		"too many parts":              {Chat, wrap(`[` + strings.Repeat(`{},`, n) + `1]`), false},
		"parts":                       {Chat, wrap(`[` + strings.Repeat(`{"type":"text","text":"x"},`, 30000) + `1]`), true},
		"media":                       {Chat, wrap(`[` + strings.Repeat(`{"type":"image"},`, 30000) + `1]`), true},
		"results":                     {Messages, wrap(`[` + strings.Repeat(`{"type":"tool_result","content":"x"},`, 30000) + `1]`), true},
		"duplicate contents":          {Chat, `{"messages":[{"role":"user",` + strings.Repeat(`"content":[{"text":"x"}],`, 30000) + `"x":1}]}`, true},
		"duplicate contents of parts": {Messages, wrap(`[{"type":"tool_result",` + strings.Repeat(`"content":["x","y"],`, 30000) + `"x":1}]`), true},
		"duplicate messages":          {Chat, `{` + strings.Repeat(chat+`,`, 30000) + chat + `}`, true},
		"tools":                       {Chat, `{"tools":[` + strings.Repeat(`{"name":"f","x":[ ],"y":{"a":1}},`, 20000) + `1],` + chat + `}`, true},
		"members of a tool":           {Chat, `{"tools":[{` + strings.Repeat(`"x":"\u0041",`, 30000) + `"name":"f"}],` + chat + `}`, true},
		"members of an unknown part":  {Chat, wrap(`[{"type":"?",` + strings.Repeat(`"x":"\u0041",`, 30000) + `"name":"f"}]`), true},
		"items":                       {Responses, `{"input":[` + strings.Repeat(`{"type":"reasoning","summary":["x"]},{"type":"?"},`, 20000) + `{}]}`, true},
		"ids":                         {Completions, `{"prompt":[` + strings.Repeat(`7,`, n) + `7]}`, true},
		"arrays of ids":               {Completions, `{"prompt":[` + strings.Repeat(`[7],`, n/8) + `[7]]}`, true},
		"too many arrays of ids":      {Completions, `{"prompt":[` + strings.Repeat(`[7],`, n) + `[7]]}`, false},
		"arrays of ids and a fault":   {Completions, `{"prompt":[` + strings.Repeat(`[7],`, n/2) + `[x]]}`, false},
		"texts":                       {Embeddings, `{"input":[` + strings.Repeat(`"a",`, n/8) + `"a"]}`, true},
		"too many texts":              {Embeddings, `{"input":[` + strings.Repeat(`"a",`, n) + `"a"]}`, false},
		"digits":                      {Chat, `{"n":` + strings.Repeat("9", n) + `,` + chat + `}`, true},
		"a long name":                 {Chat, `{"` + strings.Repeat(`\u006d`, n/2) + `":1,` + chat + `}`, true},
		"names":                       {Chat, `{` + strings.Repeat(`"\u006dodel":"x",`, 30000) + chat + `}`, true},
		"spaces":                      {Chat, `{` + strings.Repeat(" \n", n) + chat + `}`, true},
		"arguments":                   {Chat, `{"messages":[{"role":"assistant","tool_calls":[{"function":{"arguments":"` + strings.Repeat(`[`, n) + `"}}]}]}`, true},
	}
}

func TestBombs(t *testing.T) {
	var r Request
	for name, b := range bombs() {
		start := time.Now()
		r.Parse(b.api, []byte(b.body))
		if r.OK != b.ok {
			t.Errorf("%s: OK %v, want %v", name, r.OK, b.ok)
		}
		t.Logf("%-30s %v", name, time.Since(start))
	}
}

// The deepest body that passes is the deepest that encoding/json reads.
func TestDepth(t *testing.T) {
	var r Request
	for _, depth := range []int{63, 64, 65, 128, 129, 9999, 10000, 10001, 20000} {
		for _, wrap := range [][2]string{
			{`{"x":`, `,"messages":[{"role":"user","content":"x"}]}`},
			{`{"messages":[{"role":"user","content":`, `}]}`},
			{`{"messages":[{"role":"user","content":[{"type":"text","text":`, `}]}]}`},
			{`{"messages":[{"role":"user","content":[{"content":[{"x":`, `}]}]}]}`},
			{`{"messages":[{"tool_calls":[{"function":{"arguments":`, `}}]}]}`},
			{`{"tools":[{"function":{"parameters":`, `}}],"messages":[{}]}`},
			{`{"stream_options":{"x":`, `},"messages":[{}]}`},
		} {
			inner := depth - (strings.Count(wrap[0], "{") + strings.Count(wrap[0], "["))
			body := []byte(wrap[0] + strings.Repeat("[", inner) + strings.Repeat("]", inner) + wrap[1])
			r.Parse(Chat, body)
			if want := json.Valid(body); r.JSON != want || r.OK != want || want != (depth <= jsonscan.MaxDepth) {
				t.Errorf("depth %d in %s: JSON %v, OK %v, encoding/json says %v", depth, wrap[0], r.JSON, r.OK, want)
			}
		}
	}
}

// In steady state nothing is allocated, whatever the API.
func TestAllocations(t *testing.T) {
	cases := map[string]struct {
		api  API
		body string
	}{
		"chat":        {Chat, `{"model":"a\/b","user":"u\n","messages":[{"role":"user","name":"x","content":"hi\nthere \u0041"},{"role":"critic","content":[{"type":"text","text":"a\n"},{"type":"image_url","image_url":{"url":"http:\/\/x"}},{"type":"?","x":[1, 2]}]},{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{\"a\": 1}"}}]}],"tools":[{"type":"function","function":{"name":"f","x":1,"parameters":{"a" : "\u0041"}}}],"stream_options":{"include_usage":true},"chat_template_kwargs":{"a": 1}}`},
		"completions": {Completions, `{"prompt":[[1, 2],[3]]}`},
		"responses":   {Responses, `{"input":[{"role":"user","content":"x"},{"type":"reasoning","summary":["a"]},{"type":"function_call","name":"f","arguments":"{ }"},{"type":"?"}],"instructions":"a","conversation":{"id":"x"},"prompt":{"id": 1}}`},
		"messages":    {Messages, `{"system":[{"type":"text","text":"s\n"}],"messages":[{"role":"user","content":[{"type":"tool_result","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA\/A"}}]}]}]}`},
		"not JSON":    {Chat, `{"messages":[{"role":"user","content":"hi\nthere"}`},
	}
	for name, c := range cases {
		var r Request
		body := []byte(c.body)
		if n := testing.AllocsPerRun(50, func() {
			r.Parse(c.api, body)
			r.Key()
			r.Tokens()
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// Buffers that one huge body needed are given back, those of usual bodies
// kept.
func TestReset(t *testing.T) {
	var r Request
	body := func(messages, bytes int) []byte {
		return []byte(`{"model":"m","messages":[` + strings.Repeat(`{"role":"user"},`, messages) + `{"content":"\n` + strings.Repeat("x", bytes) + `"}]}`)
	}
	r.Parse(Chat, body(10, 100))
	r.Reset()
	if cap(r.Text) == 0 || cap(r.scan.arena) == 0 || cap(r.scan.segments) == 0 || len(r.Text) != 0 || r.Model != nil || r.OK || r.scan.body != nil {
		t.Errorf("after a usual body: %+v", r)
	}
	r.Parse(Chat, body(keepSegments, keepBytes))
	r.Reset()
	if cap(r.Text) != 0 || cap(r.scan.arena) != 0 || cap(r.scan.segments) != 0 {
		t.Errorf("after a huge body: %d, %d, %d kept", cap(r.Text), cap(r.scan.arena), cap(r.scan.segments))
	}
}

// The bodies of public reports about other balancers: same words with another
// picture, and the same conversation a turn later.
func TestCases(t *testing.T) {
	parse := func(file, request string) (r Request) {
		data, err := os.ReadFile("../testdata/cases/" + file)
		if err != nil {
			t.Fatal(err)
		}
		var c struct {
			Requests []struct {
				Name, Method, Path, Body string
			}
		}
		if err := json.Unmarshal(data, &c); err != nil {
			t.Fatal(err)
		}
		for _, q := range c.Requests {
			if q.Name == request {
				checkParse(t, &r, APIOf(q.Method, q.Path), []byte(q.Body))
				return r
			}
		}
		t.Fatalf("%s has no request %s", file, request)
		return r
	}
	const ids = "BR-37-completions-prompt-as-token-ids.json"
	warm, follow := parse(ids, "ids-warm"), parse(ids, "ids-follow")
	if !warm.OK || !follow.OK || !strings.HasPrefix(string(follow.Text), string(warm.Text)) || warm.Seed != follow.Seed || follow.TokenIDs <= warm.TokenIDs {
		t.Errorf("%s: the longer prompt does not begin with the shorter one", ids)
	}
	const escapes = "BR-12-escapes-inside-json-strings.json"
	warm, follow = parse(escapes, "warm-X"), parse(escapes, "follow-X")
	other := parse(escapes, "follow-Y")
	if !strings.HasPrefix(string(follow.Text), string(warm.Text)) || strings.HasPrefix(string(other.Text), string(warm.Text)) || string(warm.Model) != "acme/chat-1" {
		t.Errorf("%s: the longer conversation does not begin with the shorter one", escapes)
	}
	const passed = "BR-53-multipart-uploads-and-unknown-paths-pass-through.json"
	if r := parse(passed, "not-json"); r.JSON || r.OK {
		t.Errorf("%s: a cut body was read", passed)
	}
	if r := parse(passed, "tokenize"); !r.JSON || r.OK || string(r.Model) != "acme-chat-1" {
		t.Errorf("%s: tokenize: %+v", passed, r)
	}
	if r := parse(passed, "anthropic"); !r.OK || !strings.HasPrefix(string(r.System), "\x01s\nsys0001") {
		t.Errorf("%s: no system prompt", passed)
	}
}

// A body costs a bounded multiple of its size: of memory that is held for as long
// as the request runs, and of memory that Parse takes in all, growth included. A
// usual prompt holds its text once more, and media are held besides. The bounds are for buffers that begin
// empty, and leave a small body room to begin.
func TestCost(t *testing.T) {
	const small, held, taken = 64 << 10, 8, 128
	const media = maxMedia * mediaTokens * tokenBytes // written out, whatever the body's size
	most := map[string]float64{}
	for name, b := range bombs() {
		var r Request
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r.Parse(b.api, []byte(b.body))
		runtime.ReadMemStats(&after)
		size := float64(max(len(b.body), small))
		keeps := float64(cap(r.Text) + cap(r.scan.arena) + cap(r.scan.segments)*int(unsafe.Sizeof(segment{})) + cap(r.scan.turns)*int(unsafe.Sizeof(span{})) - media)
		takes := float64(after.TotalAlloc-before.TotalAlloc) - float64(len(b.body)) // the conversion copies it
		if keeps/size > held || takes/size > taken {
			t.Errorf("%s: %d bytes hold %.1f times as many, and took %.1f times as many", name, len(b.body), keeps/size, takes/size)
		}
		most["held"], most["taken"] = max(most["held"], keeps/size), max(most["taken"], takes/size)
		t.Logf("%-30s %8d bytes: holds %4.1f, took %4.1f", name, len(b.body), keeps/size, takes/size)
	}
	t.Logf("at most: holds %.1f, took %.1f", most["held"], most["taken"])
}
