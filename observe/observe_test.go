package observe

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// answers are what engines send, and what they say by it.
var answers = []struct {
	name   string
	form   Form
	head   bool
	answer string
	want   Usage
}{
	{"chat", JSON, false, `{"id":"x","choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":100,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":96}},"kv_transfer_params":null}`, Usage{100, 96, true, 7}},
	{"chat, nothing cached", JSON, false, `{"usage":{"prompt_tokens":100,"prompt_tokens_details":{"cached_tokens":0}}}`, Usage{100, 0, true, 0}},
	{"chat, null", JSON, false, `{"usage":{"prompt_tokens":100,"prompt_tokens_details":null}}`, Usage{Prompt: 100}},
	{"chat, details without a number", JSON, false, `{"usage":{"prompt_tokens":100,"prompt_tokens_details":{"cached_tokens":null,"audio_tokens":3}}}`, Usage{Prompt: 100}},
	{"chat, no details", JSON, false, `{"usage":{"prompt_tokens":100}}`, Usage{Prompt: 100}},
	{"no usage", JSON, false, `{"id":"x","choices":[]}`, Usage{}},
	{"null usage", JSON, false, `{"usage":null}`, Usage{}},
	{"more than the prompt", JSON, false, `{"usage":{"prompt_tokens":10,"prompt_tokens_details":{"cached_tokens":11}}}`, Usage{Prompt: 10}},
	{"negative", JSON, false, `{"usage":{"prompt_tokens":-10,"completion_tokens":-1}}`, Usage{}},
	{"no number", JSON, false, `{"usage":{"prompt_tokens":"many"}}`, Usage{}},
	{"printed for people", JSON, false, "{\n  \"usage\" : {\n    \"prompt_tokens\": 5,\n    \"prompt_tokens_details\": {\"cached_tokens\": 4}\n  }\n}\n", Usage{5, 4, true, 0}},
	{"written by the model", JSON, false, `{"choices":[{"message":{"content":"\"usage\":{\"prompt_tokens\":1}"}}]}`, Usage{}},
	{"a longer name", JSON, false, `{"a\"usage":{"prompt_tokens":1}}`, Usage{}},
	{"deeper", JSON, false, `{"content":[{"type":"tool_use","input":{"usage":{"input_tokens":1}}}]}`, Usage{}},
	{"deeper, and the real one", JSON, false, `{"content":[{"type":"tool_use","input":{"usage":{"input_tokens":1}}}],"usage":{"input_tokens":9}}`, Usage{Prompt: 9}},
	{"responses", JSON, false, `{"object":"response","output":[],"usage":{"input_tokens":50,"input_tokens_details":{"cached_tokens":48},"output_tokens":3},"user":null,"metadata":{"a":"}"}}`, Usage{50, 48, true, 3}},
	{"messages", JSON, false, `{"content":[],"usage":{"input_tokens":4,"cache_creation_input_tokens":16,"cache_read_input_tokens":80,"output_tokens":3}}`, Usage{100, 80, true, 3}},
	{"messages without a cache", JSON, false, `{"content":[],"usage":{"input_tokens":4,"output_tokens":3}}`, Usage{Prompt: 4, Output: 3}},
	{"chat events", Events, false, "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}],\"usage\":null}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":100,\"prompt_tokens_details\":{\"cached_tokens\":96}}}\n\ndata: [DONE]\n\n", Usage{100, 96, true, 0}},
	{"chat events with CRLF", Events, false, "data: {\"usage\":{\"prompt_tokens\":9},\"timings\":{\"a\":[1,2]}}\r\n\r\ndata: [DONE]\r\n\r\n", Usage{Prompt: 9}},
	{"usage in every event", Events, false, "data: {\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":1}}\n\ndata: {\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2}}\n\n", Usage{Prompt: 9, Output: 2}},
	{"events without", Events, false, "data: {\"choices\":[{\"delta\":{\"content\":\"usage\"}}]}\n\ndata: [DONE]\n\n", Usage{}},
	{"an event cut short", Events, false, "data: {\"usage\":{\"prompt_tokens\":9}\n\n", Usage{}},
	{"response.completed", Events, false, "event: response.created\ndata: {\"response\":{\"usage\":null}}\n\nevent: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":50,\"input_tokens_details\":{\"cached_tokens\":48}},\"user\":null},\"sequence_number\":9}\n\n", Usage{50, 48, true, 0}},
	{"message events", Events, true, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":20,\"cache_read_input_tokens\":80,\"output_tokens\":1}}}\n\nevent: message_delta\ndata: {\"delta\":{},\"usage\":{\"output_tokens\":7}}\n\nevent: message_stop\ndata: {}\n\n", Usage{100, 80, true, 7}},
	{"message events that repeat it", Events, true, "data: {\"message\":{\"usage\":{\"input_tokens\":20,\"output_tokens\":1}}}\n\ndata: {\"delta\":{},\"usage\":{\"input_tokens\":20,\"cache_read_input_tokens\":80,\"output_tokens\":7}}\n\n", Usage{100, 80, true, 7}},
}

func TestAnswers(t *testing.T) {
	for _, c := range answers {
		if !c.head {
			if got := Find([]byte(c.answer), c.form); got != c.want {
				t.Errorf("%s: found %+v, want %+v", c.name, got, c.want)
			}
		}
		for size := 1; size <= len(c.answer); size++ {
			if got := passed(c.answer, c.form, c.head, func(int) int { return size }); got != c.want {
				t.Fatalf("%s in pieces of %d: %+v, want %+v", c.name, size, got, c.want)
			}
		}
	}
}

// passed is what a meter says of an answer that comes in pieces.
func passed(answer string, form Form, head bool, size func(left int) int) Usage {
	var m Meter
	m.Begin(form, head)
	for len(answer) > 0 {
		n := max(1, min(size(len(answer)), len(answer)))
		m.Write([]byte(answer[:n]))
		answer = answer[n:]
	}
	return m.End()
}

// TestPieces: whatever comes before and however it is cut, the end says the same.
func TestPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := answers[rapid.IntRange(0, len(answers)-1).Draw(t, "answer")]
		before := ""
		if c.form == Events && !c.head {
			content, err := json.Marshal(rapid.StringN(0, 3000, 20000).Draw(t, "content"))
			if err != nil {
				t.Fatal(err)
			}
			before = strings.Repeat(fmt.Sprintf("data: {\"choices\":[{\"delta\":{\"content\":%s}}]}\n\n", content), rapid.IntRange(0, 3).Draw(t, "events"))
		}
		size := rapid.OneOf(rapid.IntRange(1, 10), rapid.IntRange(1, 20000))
		if got := passed(before+c.answer, c.form, c.head, func(int) int { return size.Draw(t, "size") }); got != c.want {
			t.Fatalf("%s: %+v, want %+v", c.name, got, c.want)
		}
	})
}

// TestBeyondTheTail: what stands too far from the end is not seen, and does no
// harm.
func TestBeyondTheTail(t *testing.T) {
	usage := `"usage":{"prompt_tokens":100,"prompt_tokens_details":{"cached_tokens":96}}`
	for _, after := range []int{0, tailBytes / 2, tailBytes, 3 * tailBytes} {
		answer := `{"choices":[],` + usage + `,"ids":"` + strings.Repeat("x", after) + `"}`
		want := Usage{100, 96, true, 0}
		if len(usage)+after > tailBytes-20 {
			want = Usage{}
		}
		if got := passed(answer, JSON, false, func(int) int { return 1000 }); got != want {
			t.Errorf("%d bytes behind it: %+v, want %+v", after, got, want)
		}
		if got := Find([]byte(answer), JSON); got.Cached != 96 {
			t.Errorf("%d bytes behind it, of the whole: %+v", after, got)
		}
	}
}

func TestMeterLeftAlone(t *testing.T) {
	var none *Meter
	none.Write([]byte("x"))
	if none.End() != (Usage{}) {
		t.Error("nobody has said something")
	}
	var m Meter
	m.Write([]byte(`{"usage":{"prompt_tokens":1}}`))
	if m.End() != (Usage{}) {
		t.Error("a meter that was not begun has seen something")
	}
	m.Begin(JSON, false)
	m.Write([]byte(`{"usage":{"prompt_tokens":1}}`))
	if m.End().Prompt != 1 || m.End() != (Usage{}) || m.Pieces() != 1 {
		t.Error("want the answer once")
	}
	m.Begin(JSON, false)
	if m.End() != (Usage{}) {
		t.Error("an answer before is still there")
	}
}

func TestMeterDoesNotAllocate(t *testing.T) {
	var m Meter
	chunk := []byte("data: {\"choices\":[{\"delta\":{\"content\":\"word\"}}]}\n\n")
	m.Begin(Events, false)
	if n := testing.AllocsPerRun(1000, func() { m.Write(chunk) }); n > 0 {
		t.Errorf("%v allocations for a chunk", n)
	}
	m.End()
}

// FuzzFind: no answer makes it panic, and where encoding/json reads a whole
// object, both see the same in it.
func FuzzFind(f *testing.F) {
	for _, c := range answers {
		f.Add([]byte(c.answer), c.form == Events, 3)
	}
	f.Fuzz(func(t *testing.T, answer []byte, events bool, size int) {
		form := JSON
		if events {
			form = Events
		}
		got := Find(answer, form)
		if got.Prompt < 0 || got.Cached < 0 || got.Cached > got.Prompt || got.Output < 0 {
			t.Fatalf("%+v", got)
		}
		if len(answer) <= tailBytes {
			if m := passed(string(answer), form, false, func(int) int { return size % 5000 }); m != got {
				t.Fatalf("the meter says %+v, the whole %+v", m, got)
			}
		}
		var whole map[string]json.RawMessage
		if form == JSON && json.Unmarshal(answer, &whole) == nil && strings.Count(string(answer), "usage") == 1 {
			want := Usage{}
			if u := strings.TrimSpace(string(whole["usage"])); strings.HasPrefix(u, "{") {
				want = read([]byte(u))
			}
			if got != want {
				t.Fatalf("%+v, want %+v", got, want)
			}
		}
	})
}

func BenchmarkMeter(b *testing.B) {
	chunk := []byte("data: {\"id\":\"chatcmpl-0123456789\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n")
	b.Run("chunk", func(b *testing.B) {
		var m Meter
		m.Begin(Events, false)
		b.ReportAllocs()
		for b.Loop() {
			m.Write(chunk)
		}
		m.End()
	})
	b.Run("end", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var m Meter
			m.Begin(Events, false)
			m.Write(chunk)
			m.Write([]byte(answers[17].answer))
			if m.End().Prompt == 0 {
				b.Fatal("nothing found")
			}
		}
	})
}
