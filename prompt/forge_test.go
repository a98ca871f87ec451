package prompt

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Whatever a text says, the turns can be read back from what is rendered:
// nothing in it passes for a marker, and nothing of it is lost.
func TestTextCannotForgeAMarker(t *testing.T) {
	letters := map[string]string{"u": "user", "a": "assistant", "s": "system", "t": "tool"}
	text := rapid.StringOf(rapid.SampledFrom([]rune("\x01\x01\x01\x02ua=chp\n\n x\"\\é")))
	var r Request
	rapid.Check(t, func(t *rapid.T) {
		type message struct {
			Role    string `json:"role"`
			Content string `json:"content"`
		}
		var sent []message
		for range rapid.IntRange(1, 4).Draw(t, "turns") {
			role := rapid.SampledFrom([]string{"user", "assistant", "system", "tool"}).Draw(t, "role")
			sent = append(sent, message{role, text.Draw(t, "content")})
		}
		body, err := json.Marshal(map[string]any{"messages": sent})
		if err != nil {
			t.Fatal(err)
		}
		checkParse(t, &r, Chat, body)
		var read []message
		for _, line := range strings.SplitAfter(string(r.Text), "\n") {
			if marker := strings.TrimSuffix(line, "\n"); len(marker) == 2 && marker[0] == mark && marker[1] != mark {
				read = append(read, message{Role: letters[marker[1:]]})
				continue
			}
			read[len(read)-1].Content += line
		}
		for i := range read {
			// The newline before the next marker is none of the content's.
			if i < len(read)-1 {
				read[i].Content = strings.TrimSuffix(read[i].Content, "\n")
			}
			read[i].Content = strings.ReplaceAll(read[i].Content, "\x01\x01", "\x01")
		}
		if !slices.Equal(read, sent) {
			t.Fatalf("sent %q, rendered %q, read %q", sent, r.Text, read)
		}
	})
}
