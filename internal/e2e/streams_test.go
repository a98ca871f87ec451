package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// said is what a stream of a chat completion came to.
type said struct {
	text   string
	tokens int // usage.completion_tokens
	prompt int // usage.prompt_tokens
	cached int
	reason string
	whole  bool // [DONE] came, and then the declared end
}

// errNoDone says that a stream has come to its end without saying so.
var errNoDone = errors.New("the stream ended without [DONE]")

// streamBody is a streamed chat request of one user turn.
func streamBody(content string, tokens int) string {
	body, err := json.Marshal(map[string]any{
		"model": "m", "stream": true, "stream_options": map[string]any{"include_usage": true},
		"max_tokens": tokens, "ignore_eos": true,
		"messages": []map[string]string{{"role": "user", "content": content}},
	})
	if err != nil {
		panic(err) // strings and numbers only: cannot fail
	}
	return string(body)
}

// hear reads a stream to its end. The error is the one that broke it off.
func hear(body io.Reader) (said, error) {
	var s said
	var text strings.Builder
	stream := testcaddy.NewStream(body)
	for {
		e, err := stream.Next()
		if err == io.EOF { // bare: the declared end
			s.text = text.String()
			if !s.whole {
				return s, errNoDone
			}
			return s, nil
		}
		if err != nil {
			s.text = text.String()
			return s, err
		}
		if s.whole {
			return s, fmt.Errorf("after [DONE] came %q", e.Raw)
		}
		if e.Data == "[DONE]" {
			s.whole = true
			continue
		}
		var chunk struct {
			Choices []struct {
				Delta  struct{ Content string }
				Reason *string `json:"finish_reason"`
			}
			Usage *struct {
				Prompt  int `json:"prompt_tokens"`
				Tokens  int `json:"completion_tokens"`
				Details struct {
					Cached int `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			}
		}
		if err := json.Unmarshal([]byte(e.Data), &chunk); err != nil {
			return s, fmt.Errorf("chunk %q: %w", e.Data, err)
		}
		for _, c := range chunk.Choices {
			text.WriteString(c.Delta.Content)
			if c.Reason != nil {
				s.reason = *c.Reason
			}
		}
		if u := chunk.Usage; u != nil {
			s.prompt, s.tokens, s.cached = u.Prompt, u.Tokens, u.Details.Cached
		}
	}
}

// direct is what an engine of the same seed says to a body, with nobody between.
func direct(tb testing.TB, url, body string) said {
	tb.Helper()
	req := testcaddy.NewClient(tb, testcaddy.H1, url).Request(within(tb), tb, http.MethodPost, "/v1/chat/completions", body)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		tb.Fatal(err)
	}
	defer resp.Body.Close()
	s, err := hear(resp.Body)
	if err != nil || s.tokens == 0 || len(strings.Fields(s.text)) != s.tokens {
		tb.Fatalf("straight from the engine: %+v, %v", s, err)
	}
	return s
}

// Test64Streams: as many clients at once, a third of them over each protocol,
// each with a prompt and an answer of its own.
func Test64Streams(t *testing.T) {
	const streams, tokens = 64, 60
	bodies, want := make([]string, streams), make([]said, streams)
	_, url := newEngine(t, fastSettings())
	different := map[string]bool{}
	for k := range bodies {
		bodies[k] = streamBody(prose(fmt.Sprint("stream ", k), 20+k), tokens)
		want[k] = direct(t, url, bodies[k])
		different[want[k].text] = true
	}
	if len(different) != streams {
		t.Fatalf("%d streams have %d contents: nothing could be told apart", streams, len(different))
	}
	// slow enough that all of them run at the same time
	slow := strings.Replace(fast, "decode_tokens_per_second 1000", "decode_tokens_per_second 100", 1)
	singleOrDispatch(t, slow, func(t *testing.T, p *plan) {
		s := p.run(t)
		clients := make([]*testcaddy.Client, len(testcaddy.All))
		for k, protocol := range testcaddy.All {
			clients[k] = s.client(t, protocol)
		}
		before := s.Metrics(t).Sum("calinix_requests_total", "code", "200") // counters outlive a Caddy
		var wg, begun sync.WaitGroup
		begun.Add(streams)
		for k := range streams {
			wg.Go(func() {
				cl := clients[k%len(clients)]
				resp, err := cl.HTTP.Do(cl.Request(within(t), t, http.MethodPost, "/v1/chat/completions", bodies[k]))
				begun.Done()
				if err != nil {
					t.Errorf("stream %d over %v: %v", k, cl.Protocol, err)
					return
				}
				defer resp.Body.Close()
				begun.Wait() // nobody has read anything before all have their headers
				got, err := hear(resp.Body)
				got.cached = want[k].cached // depends on where it went
				if err != nil || got != want[k] || resp.ProtoMajor != int(cl.Protocol) {
					t.Errorf("stream %d over %s: %v\ngot  %+v\nwant %+v", k, resp.Proto, err, got, want[k])
				}
			})
		}
		wg.Wait()
		m := s.WaitMetric(t, 0, "calinix_pod_inflight")
		legs := map[bool]float64{false: streams, true: 2 * streams}[p.dispatches()]
		if n := m.Sum("calinix_requests_total", "code", "200") - before; n != legs {
			t.Errorf("calinix_requests_total grew by %v, want %v", n, legs)
		}
	})
}
