package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// aboutImage is what a user says of an image: a few words, the image, a question.
func aboutImage(before, image string) []any {
	return []any{
		map[string]any{"type": "text", "text": before},
		map[string]any{"type": "image_url", "image_url": map[string]any{"url": image}},
		map[string]any{"type": "text", "text": "What is this?"},
	}
}

// dataImage is an image of some KiB as a data URL.
func dataImage(name string) string {
	return "data:image/png;base64," + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(name+" ", 500)))
}

// TestImageTurnsComeHome: the second turn of a chat that is mostly an image goes to
// the pod of the first, which is known to hold the image's blocks, and the engine
// finds what the balancer said. Another image behind the same words shares nothing
// but these.
func TestImageTurnsComeHome(t *testing.T) {
	for mode, p := range map[string]*plan{"single": newPlan(t, 4, 0, 0, fast), "dispatch": newPlan(t, 0, 4, 2, fast)} {
		t.Run(mode, func(t *testing.T) {
			s := p.run(t)
			cl := s.client(t, testcaddy.H2)
			prefill := map[string]pod{}
			for _, p := range s.prefill {
				prefill[p.id] = p
			}
			agree := func(what string, seen turn) {
				t.Helper()
				if off := seen.depth - seen.cached/16; off < -1 || off > 1 {
					t.Errorf("%s at %s: depth %d, the engine found %d tokens of %d", what, seen.pod, seen.depth, seen.cached, seen.prompt)
				}
			}
			for k, words := range []int{1, 5, 14, 15, 16, 31, 40} {
				name := fmt.Sprintf("%s, picture %d", mode, k)
				image := dataImage(name)
				if k%2 == 1 {
					image = "https://example.com/" + strings.Repeat("a", k) + ".png"
				}
				c := conversation{}
				c.add("user", aboutImage(prose(name, words), image))
				first := c.say(t, cl, prefill)
				agree(name, first)
				c.add("user", "And where?")
				second := c.say(t, cl, prefill)
				agree(name+", second turn", second)
				// The role's marker, the words, 64 tokens of the image, the question.
				if want := (1 + words + 64 + 3) / 16; second.pod != first.pod || second.depth != want || second.cached < 64 {
					t.Errorf("%s: the second turn went to %s with depth %d, and %d tokens were found; want %s, %d and at least 64",
						name, second.pod, second.depth, second.cached, first.pod, want)
				}

				other := conversation{}
				other.add("user", aboutImage(prose(name, words), dataImage(name+", another")))
				var e struct {
					Candidates []struct {
						Pod   string
						Depth int
					}
				}
				s.explain(t, other.body(), &e)
				before, deepest := (1+words)/16, 0
				for _, pod := range e.Candidates {
					deepest = max(deepest, pod.Depth)
				}
				if deepest != before {
					t.Errorf("%s: with another image a pod holds %d blocks, want the %d before the image", name, deepest, before)
				}
				seen := other.say(t, cl, prefill)
				agree(name+", another", seen)
				if seen.depth > before || seen.cached > 1+words {
					t.Errorf("%s: with another image depth %d and %d tokens found, want at most the %d before the image", name, seen.depth, seen.cached, 1+words)
				}
			}
			s.WaitMetric(t, 0, "calinix_pod_inflight")
		})
	}
}

// explain asks what the balancer would do with a chat.
func (s *site) explain(t *testing.T, body string, out any) {
	t.Helper()
	a := s.AdminPost(t, "/calinix/explain", body)
	if a.Status != http.StatusOK {
		t.Fatal(a)
	}
	if err := json.Unmarshal(a.Body, out); err != nil {
		t.Fatal(err)
	}
}
