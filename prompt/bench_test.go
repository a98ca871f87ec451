package prompt

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/calinix/caddy-calinix/internal/bench/yard"
)

var benchWords = strings.Fields(`the of and to in a is that for it was on are as with his they at be this from have
	or by one had not but what all were when we there can an your which their said if do will each about how up out
	them then she many some so these would other into has more her two like him see time could no make than first been
	its who now people my made over did down only way find use may water long little very after words called just where
	model request cache prefix balancer inference attention throughput`)

// prose is n bytes of English-like text. Each gap bytes, about, stands a
// character that JSON escapes (0 = none).
func prose(rng *rand.Rand, n, gap int) string {
	var b strings.Builder
	next := gap
	for b.Len() < n {
		b.WriteString(benchWords[rng.IntN(len(benchWords))])
		if gap > 0 && b.Len() > next {
			b.WriteString([]string{"\n", "\n", "\n\n", `" `, "\t"}[rng.IntN(5)])
			next = b.Len() + gap/2 + rng.IntN(gap)
			continue
		}
		b.WriteByte(' ')
	}
	return b.String()[:n]
}

// chatBody is a chat of so many messages with n bytes of text.
func chatBody(rng *rand.Rand, n, messages, gap int) []byte {
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	var m []message
	for i := range messages {
		m = append(m, message{[]string{"user", "assistant"}[i%2], prose(rng, n/messages, gap)})
	}
	text, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return fmt.Appendf(nil, `{"model":"acme-chat-1","messages":%s,"temperature":0.7,"max_tokens":%d,"stream":true,"stream_options":{"include_usage":true},"user":"user-%d"}`, text, rng.IntN(4096), rng.IntN(1e6))
}

// agentBody is what a coding agent sends: tools, a system prompt, calls and
// long results.
func agentBody(rng *rand.Rand, n int) []byte {
	tool := func(i int) map[string]any {
		property := func() map[string]any {
			return map[string]any{"type": "string", "description": prose(rng, 60+rng.IntN(80), 0)}
		}
		return map[string]any{
			"name": fmt.Sprint("tool_", i), "description": prose(rng, 400, 80),
			"input_schema": map[string]any{
				"type": "object", "required": []string{"path", "mode"}, "additionalProperties": false,
				"properties": map[string]any{"path": property(), "mode": property(), "limit": map[string]any{"type": "integer", "minimum": i}},
			},
		}
	}
	var tools []any
	for i := range 16 {
		tools = append(tools, tool(i))
	}
	text := func(s string) map[string]any { return map[string]any{"type": "text", "text": s} }
	var messages []any
	for size := 0; size < n; size += 2500 {
		messages = append(messages,
			map[string]any{"role": "assistant", "content": []any{text(prose(rng, 200, 80)), map[string]any{
				"type": "tool_use", "id": fmt.Sprint("toolu_", rng.Uint64()), "name": "tool_3",
				"input": map[string]any{"path": prose(rng, 30, 0), "mode": prose(rng, 200, 40)},
			}}},
			map[string]any{"role": "user", "content": []any{map[string]any{
				"type": "tool_result", "tool_use_id": fmt.Sprint("toolu_", rng.Uint64()), "content": []any{text(prose(rng, 2000, 40))},
			}}},
		)
	}
	body, err := json.Marshal(map[string]any{
		"model": "acme-code-1", "max_tokens": 32000, "stream": true, "tools": tools,
		"system":   []any{text(prose(rng, 4000, 60))},
		"messages": append([]any{map[string]any{"role": "user", "content": prose(rng, 300, 0)}}, messages...),
	})
	if err != nil {
		panic(err)
	}
	return body
}

func idsBody(rng *rand.Rand, n int) []byte {
	var ids []int
	for range n {
		ids = append(ids, rng.IntN(150000))
	}
	text, _ := json.Marshal(ids)
	return fmt.Appendf(nil, `{"model":"acme-base","prompt":%s,"max_tokens":4}`, text)
}

func cjkBody(rng *rand.Rand, n int) []byte {
	var b strings.Builder
	for b.Len() < n {
		b.WriteRune(rune(0x4e00 + rng.IntN(0x5000)))
	}
	return fmt.Appendf(nil, `{"model":"acme-chat-1","messages":[{"role":"user","content":"%s"}]}`, b.String())
}

func BenchmarkParse(b *testing.B) {
	type bench struct {
		name string
		api  API
		make func(rng *rand.Rand) []byte
		n    int // different bodies
	}
	var benches []bench
	for _, size := range []int{1 << 10, 8 << 10, 64 << 10, 170 << 10, 1 << 20} {
		for _, kind := range []struct {
			name     string
			messages int
			gap      int
		}{{"single", 1, 0}, {"multi", 16, 0}, {"escapes", 1, 80}} {
			benches = append(benches, bench{
				fmt.Sprintf("chat/%dKiB/%s", size>>10, kind.name), Chat,
				func(rng *rand.Rand) []byte { return chatBody(rng, size, kind.messages, kind.gap) }, max(4, min(512, 2<<20/size)),
			})
		}
	}
	benches = append(benches,
		bench{"chat/8KiB/cjk", Chat, func(rng *rand.Rand) []byte { return cjkBody(rng, 8<<10) }, 256},
		bench{"messages/agent", Messages, func(rng *rand.Rand) []byte { return agentBody(rng, 20<<10) }, 64},
		bench{"completions/2048ids", Completions, func(rng *rand.Rand) []byte { return idsBody(rng, 2048) }, 128},
		bench{"other/8KiB", Other, func(rng *rand.Rand) []byte { return chatBody(rng, 8<<10, 1, 0) }, 256},
	)
	for _, bench := range benches {
		b.Run(bench.name, func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 2))
			bodies := make([][]byte, bench.n)
			for i := range bodies {
				bodies[i] = bench.make(rng)
			}
			var r Request
			r.Parse(bench.api, bodies[0])
			yard.Measure(b, yard.Work{Texts: bodies, Run: func(i int) {
				r.Parse(bench.api, bodies[i%len(bodies)])
				if !r.JSON {
					b.Fatal("not JSON")
				}
			}})
		})
	}
}
