package enginesim

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"
)

// events reads a stream to its end.
func (l *live) events(t *testing.T, path, body string) (names []string, data []map[string]any, done bool) {
	t.Helper()
	resp, text := l.do(t, http.MethodPost, path, body)
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream; charset=utf-8" {
		t.Fatalf("%d %s", resp.StatusCode, text)
	}
	for _, ev := range strings.Split(strings.TrimSuffix(text, "\n\n"), "\n\n") {
		name, rest, named := strings.Cut(ev, "\n")
		if !named {
			rest = name
		} else {
			names = append(names, strings.TrimPrefix(name, "event: "))
		}
		payload, ok := strings.CutPrefix(rest, "data: ")
		if !ok || done {
			t.Fatalf("not an event: %q", ev)
		}
		if payload == "[DONE]" {
			done = true
			continue
		}
		var v map[string]any
		if err := json.Unmarshal([]byte(payload), &v); err != nil {
			t.Fatalf("%s: %v", payload, err)
		}
		data = append(data, v)
	}
	return names, data, done
}

func TestChatStreamEvents(t *testing.T) {
	l := newLive(t, quick())
	_, data, done := l.events(t, "/v1/chat/completions", `{`+ask5+`,"stream":true,"stream_options":{"include_usage":true}}`)
	if len(data) != 7 || !done { // the role, five words, usage
		t.Fatalf("%d events, [DONE] %v; want 7", len(data), done)
	}
	for i, ev := range data[:6] {
		if _, has := ev["usage"]; has {
			t.Errorf("event %d carries usage", i)
		}
		choice := ev["choices"].([]any)[0].(map[string]any)
		if last := choice["finish_reason"] == "length"; last != (i == 5) {
			t.Errorf("event %d: finish_reason %v", i, choice["finish_reason"])
		}
	}
	if d := data[0]["choices"].([]any)[0].(map[string]any)["delta"]; !reflect.DeepEqual(d, map[string]any{"role": "assistant", "content": ""}) {
		t.Errorf("first delta %v", d)
	}
	last := data[6]
	if u := last["usage"].(map[string]any); len(last["choices"].([]any)) != 0 || u["prompt_tokens"] != 5.0 || u["completion_tokens"] != 5.0 {
		t.Errorf("usage event %v", last)
	}
	if _, data, _ = l.events(t, "/v1/chat/completions", `{`+ask5+`,"stream":true}`); len(data) != 6 {
		t.Errorf("%d events without include_usage, want 6", len(data))
	}
	_, data, _ = l.events(t, "/v1/chat/completions", `{`+ask5+`,"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}}`)
	if u := data[3]["usage"].(map[string]any); u["completion_tokens"].(float64) < 1 {
		t.Errorf("continuous usage %v", u)
	}
}

func TestResponsesAndMessagesStreams(t *testing.T) {
	l := newLive(t, quick())
	tool := `"tools":[{"type":"function","name":"f","parameters":{"type":"object","properties":{"city":{"type":"string"}}}}],"tool_choice":"required",`
	for body, want := range map[string]string{
		`{"input":"hi","max_output_tokens":2,"stream":true}`: "response.created response.in_progress response.output_item.added response.content_part.added response.output_text.delta response.output_text.delta response.output_text.done response.content_part.done response.output_item.done response.incomplete",
		`{` + tool + `"input":"hi","stream":true}`:           "response.created response.in_progress response.output_item.added response.function_call_arguments.delta* response.function_call_arguments.done response.output_item.done response.completed",
	} {
		names, data, done := l.events(t, "/v1/responses", body)
		got := strings.Join(names, " ")
		if strings.Contains(want, "*") {
			const delta = " response.function_call_arguments.delta"
			got = strings.Replace(strings.ReplaceAll(got, delta, ""), ".added", ".added"+delta+"*", 1)
		}
		if got != want || done {
			t.Errorf("events %s, [DONE] %v; want %s", got, done, want)
		}
		for i, ev := range data {
			if ev["sequence_number"] != float64(i) || ev["type"] != names[i] {
				t.Errorf("event %d: %v", i, ev)
			}
		}
	}
	names, data, _ := l.events(t, "/v1/messages", `{"messages":[{"role":"user","content":"hi"}],"max_tokens":2,"stream":true}`)
	if got := strings.Join(names, " "); got != "message_start content_block_start content_block_delta content_block_delta content_block_stop message_delta message_stop" {
		t.Errorf("events %s", got)
	}
	if u := data[5]["usage"].(map[string]any); u["output_tokens"] != 2.0 || data[5]["delta"].(map[string]any)["stop_reason"] != "max_tokens" {
		t.Errorf("message_delta %v", data[5])
	}
	_, v := l.post(t, "/v1/messages", `{"messages":[{"role":"user","content":"hi"}],"max_tokens":99,"tool_choice":{"type":"any"},"tools":[{"name":"f","input_schema":{"type":"object","properties":{"n":{"type":"integer"}}}}]}`)
	if b := v["content"].([]any)[0].(map[string]any); v["stop_reason"] != "tool_use" || b["type"] != "tool_use" || b["input"].(map[string]any)["n"] == nil {
		t.Errorf("tool use %v", v)
	}
	_, v = l.post(t, "/v1/messages/count_tokens", `{"messages":[{"role":"user","content":"hi there"}]}`)
	if v["input_tokens"] != 4.0 {
		t.Errorf("count_tokens %v, want 4", v)
	}
}

// Headers leave at once or with the first token, as set; tokens one by one.
func TestStreamTiming(t *testing.T) {
	for mode, early := range map[string]bool{"at_once": true, "first_token": false} {
		c := newFakeClock()
		set := fast()
		set.StreamHeaders = mode
		e, err := New(set, c.clock(), NewPeers())
		if err != nil {
			t.Fatal(err)
		}
		s := httptest.NewServer(e)
		headers := make(chan *http.Response, 1)
		go func() {
			resp, err := http.Post(s.URL+"/v1/chat/completions", "application/json", strings.NewReader(`{`+ask5+`,"stream":true}`))
			if err != nil {
				t.Error(err)
			}
			headers <- resp
		}()
		await(t, func() bool { return e.Stats().Running == 1 })
		var resp *http.Response
		if early {
			resp = <-headers
		} else {
			select {
			case <-headers:
				t.Error("headers came before the first token")
			case <-time.After(20 * ms):
			}
		}
		c.advance(10 * ms)
		if resp == nil {
			resp = <-headers
		}
		lines := bufio.NewScanner(resp.Body)
		read := func(n int) (got int) {
			for got < n && lines.Scan() {
				if lines.Text() != "" {
					got++
				}
			}
			return got
		}
		if got := read(2); got != 2 { // the role and the first word, and nothing has to follow
			t.Errorf("%s: %d events after the first step", mode, got)
		}
		c.advance(10 * ms)
		if got := read(1); got != 1 || !strings.Contains(lines.Text(), `"content":" `) {
			t.Errorf("%s: %d events after the second step, the last %s", mode, got, lines.Text())
		}
		c.advance(time.Second)
		if got := read(99); got != 4 || lines.Text() != "" {
			t.Errorf("%s: %d events to the end, want 4", mode, got)
		}
		resp.Body.Close()
		s.Close()
		http.DefaultClient.CloseIdleConnections()
	}
}

// A client that leaves, in the queue or mid-stream, frees slot and blocks at once.
func TestClientLeaves(t *testing.T) {
	for name, body := range map[string]string{"whole": `{` + ask5 + `0}`, "stream": `{` + ask5 + `0,"stream":true}`} {
		t.Run(name, func(t *testing.T) {
			c := newFakeClock()
			set := fast()
			set.MaxNumSeqs = 1
			e, err := New(set, c.clock(), NewPeers())
			if err != nil {
				t.Fatal(err)
			}
			s := httptest.NewServer(e)
			defer s.Close()
			var stop []context.CancelFunc
			ended := make(chan struct{}, 2)
			for i := range 2 {
				ctx, cancel := context.WithCancel(context.Background())
				stop = append(stop, cancel)
				go func() {
					req, _ := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/v1/chat/completions", strings.NewReader(body))
					if resp, err := http.DefaultClient.Do(req); err == nil {
						_, _ = io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
					}
					ended <- struct{}{}
				}()
				await(t, func() bool { st := e.Stats(); return st.Running+st.Waiting == i+1 })
			}
			c.advance(50 * ms)
			stop[1]()
			await(t, func() bool { return e.Stats().Waiting == 0 })
			stop[0]()
			await(t, func() bool { st := e.Stats(); return st.Running == 0 && st.BlocksPinned == 0 })
			<-ended
			<-ended
			if got := e.Stats().Finished["abort"]; got != 2 {
				t.Errorf("%d aborted, want 2", got)
			}
		})
	}
}
