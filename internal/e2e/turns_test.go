package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sort"
	"strings"
	"testing"

	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// conversation is a chat between turns.
type conversation struct {
	messages []map[string]any
	home     string // the pod of the first turn
}

func (c *conversation) body() string {
	body, err := json.Marshal(map[string]any{"model": "m", "max_tokens": 12, "messages": c.messages})
	if err != nil {
		panic(err) // maps of strings and numbers only: cannot fail
	}
	return string(body)
}

// add appends a message; content is a string, or parts.
func (c *conversation) add(role string, content any) {
	c.messages = append(c.messages, map[string]any{"role": role, "content": content})
}

// turn is what one turn of a conversation showed.
type turn struct {
	pod    string // by the answer's header
	depth  int    // likewise, in blocks
	prompt int    // tokens, by the engine
	cached int    // tokens that the engine found in its own cache
}

// say sends the conversation, adds the answer to it and returns what was seen.
// In dispatch mode what the prefill engine found is read from its counters, as
// its answer reaches nobody: engines must be idle.
func (c *conversation) say(t *testing.T, cl *testcaddy.Client, prefill map[string]pod) turn {
	t.Helper()
	found := func() (n uint64) {
		for _, p := range prefill {
			n += p.state(t).PrefixHits
		}
		return n
	}
	before := found()
	a := cl.Send(cl.Request(within(t), t, http.MethodPost, "/v1/chat/completions", c.body()))
	var answer struct {
		Choices []struct{ Message struct{ Content string } }
		Usage   struct {
			Prompt  int `json:"prompt_tokens"`
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	if err := json.Unmarshal(a.Body, &answer); err != nil || a.Status != http.StatusOK || len(answer.Choices) != 1 {
		t.Fatalf("%v: %v", err, a)
	}
	c.add("assistant", answer.Choices[0].Message.Content)
	s := turn{header(a.Header, "Target-Pod-Id"), depthOf(t, a.Header), answer.Usage.Prompt, answer.Usage.Details.Cached}
	if len(prefill) > 0 {
		s.pod, s.cached = header(a.Header, "Prefill-Pod-Id"), int(found()-before)
	}
	if hit := fmt.Sprint(s.depth > 0); header(a.Header, "Cache-Hit") != hit {
		t.Errorf("x-calinix-cache-hit is %s at depth %d", header(a.Header, "Cache-Hit"), s.depth)
	}
	return s
}

// TestTurnsComeHome: of 100 conversations, held in turn with 4 idle pods, at
// least 95 have their second turn at the pod of the first; and what the engine
// finds in its cache is what the balancer said that it holds.
func TestTurnsComeHome(t *testing.T) {
	for _, mode := range []string{"single", "dispatch"} {
		for _, system := range []string{"", prose("a system message that all share", 64)} {
			name := mode + "/own prompts"
			if system != "" {
				name = mode + "/one system message"
			}
			t.Run(name, func(t *testing.T) {
				p := newPlan(t, 4, 0, 0, fast)
				if mode == "dispatch" {
					p = newPlan(t, 0, 4, 2, fast)
				}
				comeHome(t, p.run(t), system)
			})
		}
	}
}

func comeHome(t *testing.T, s *site, system string) {
	const conversations, turns, wantHome = 100, 2, 95
	cl := s.client(t, testcaddy.H2)
	prefill := map[string]pod{}
	for _, p := range s.prefill {
		prefill[p.id] = p
	}
	chats := make([]conversation, conversations)
	home, pods := 0, map[string]int{}
	off := map[int]int{} // blocks between depth and what the engine found → turns
	for n := 1; n <= turns; n++ {
		for k := range chats {
			c := &chats[k]
			if n == 1 && system != "" {
				c.add("system", system)
			}
			c.add("user", prose(fmt.Sprintf("chat %d, turn %d", k, n), 20+3*k))
			seen := c.say(t, cl, prefill)
			if n == 1 {
				c.home = seen.pod
				pods[seen.pod]++
			} else if seen.pod == c.home {
				home++
			}
			diff := seen.depth - seen.cached/16
			off[diff]++
			if diff < -1 || diff > 1 {
				t.Errorf("chat %d, turn %d at %s: depth %d, the engine found %d tokens of %d", k, n, seen.pod, seen.depth, seen.cached, seen.prompt)
			}
		}
	}
	t.Logf("%d of %d second turns came home; first turns: %s; depth minus what the engine found, in blocks: %s", home, conversations, counts(pods), counts(off))
	if home < wantHome {
		t.Errorf("%d of %d second turns came home, want at least %d", home, conversations, wantHome)
	}
	if system == "" && len(pods) != 4 {
		t.Errorf("first turns with nothing in common went to %s, want all of 4 pods", counts(pods))
	}
	s.WaitMetric(t, 0, "calinix_pod_inflight")
}

// counts prints a histogram in the order of its keys.
func counts[K comparable](m map[K]int) string {
	parts := make([]string, 0, len(m))
	for k, n := range m {
		parts = append(parts, fmt.Sprintf("%v: %d×", k, n))
	}
	sort.Strings(parts)
	return strings.Join(parts, ", ")
}
