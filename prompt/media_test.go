package prompt

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/calinix/caddy-calinix/chain"
)

// blocksOf is the chain of a body's prompt under the default options.
func blocksOf(t *testing.T, api API, body string) []uint64 {
	t.Helper()
	var r Request
	checkParse(t, &r, api, []byte(body))
	if !r.OK {
		t.Fatalf("no prompt in %s", body)
	}
	var c chain.Chain
	c.Reset(chain.Options{BlockSize: 16, MaxTokenBytes: 16}, r.Seed, r.Text)
	c.Complete()
	return slices.Clone(c.Hashes())
}

// Each of the media fills four blocks of 16 tokens, in every API.
func TestMediaFillBlocks(t *testing.T) {
	for _, tt := range []struct {
		api        API
		body, part string // %s in body is the part
	}{
		{Chat, `{"messages":[{"role":"user","content":[%s]}]}`, `{"type":"image_url","image_url":{"url":"http://x/1"}}`},
		{Chat, `{"messages":[{"role":"user","content":[%s]}]}`, `{"type":"input_audio","input_audio":{"data":"AAAA","format":"wav"}}`},
		{Chat, `{"messages":[{"role":"user","content":[%s]}]}`, `{"type":"file","file":{"file_id":"f"}}`},
		{Chat, `{"messages":[{"role":"user","content":[%s]}]}`, `{"type":"video_url","video_url":{"url":"http://x/2"}}`},
		{Responses, `{"input":[{"role":"user","content":[%s]}]}`, `{"type":"input_image","image_url":"data:image/png;base64,AAAA"}`},
		{Responses, `{"input":[{"role":"user","content":[%s]}]}`, `{"type":"input_file","file_id":"f"}`},
		{Messages, `{"messages":[{"role":"user","content":[%s]}]}`, `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}`},
		{Messages, `{"messages":[{"role":"user","content":[%s]}]}`, `{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"AAAA"}}`},
	} {
		// The role's marker and 64 tokens a part.
		for n, want := range []int{1, 5, 9, 13} {
			body := fmt.Sprintf(tt.body, strings.Join(slices.Repeat([]string{tt.part}, n), ","))
			if got := len(blocksOf(t, tt.api, body)); got != want {
				t.Errorf("%d times %s: %d blocks, want %d", n, tt.part, got, want)
			}
		}
	}
}

// The second turn of a chat that is mostly an image finds the blocks of the
// first; with another image it finds those of the text before only.
func TestSecondTurnOfAnImage(t *testing.T) {
	turns := func(words int, image, more string) []uint64 {
		return blocksOf(t, Chat, fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":%q},
			{"type":"image_url","image_url":{"url":%q}},{"type":"text","text":"And this?"}]}%s]}`,
			strings.Repeat("word ", words), image, more))
	}
	const answer = `,{"role":"assistant","content":"A cat."},{"role":"user","content":"Which one?"}`
	for words, before := range map[int]int{0: 0, 14: 0, 15: 1, 16: 1, 40: 2} {
		first := turns(words, "http://x/cat", "")
		second := turns(words, "http://x/cat", answer)
		other := turns(words, "http://x/dog", answer)
		// What both have: the marker, the words, the image and "And this?".
		if want := (1 + words + mediaTokens + 2) / 16; !slices.Equal(second[:want], first[:want]) || want < 4 {
			t.Errorf("%d words: the second turn shares less than %d blocks with the first", words, want)
		}
		if !slices.Equal(other[:before], first[:before]) || other[before] == first[before] {
			t.Errorf("%d words: with another image not just the %d blocks before it are the same", words, before)
		}
	}
}

// A prompt of very many media weighs no more than its body allows, and still
// begins with what it was a turn before.
func TestMediaWithoutEnd(t *testing.T) {
	const part = `{"type":"file","url":"x"}`
	body := func(n int) string {
		return `{"messages":[{"role":"user","content":[` + strings.Join(slices.Repeat([]string{part}, n), ",") + `]}]}`
	}
	var r Request
	for n, tokens := range map[int]int{
		maxMedia - 1: (maxMedia - 1) * mediaTokens, maxMedia: maxMedia * mediaTokens,
		maxMedia + 1: maxMedia*mediaTokens + 1, maxMedia + 500: maxMedia*mediaTokens + 500,
	} {
		checkParse(t, &r, Chat, []byte(body(n)))
		if got := len(strings.Fields(string(r.Text))) - 1; got != tokens {
			t.Errorf("%d media are %d tokens, want %d", n, got, tokens)
		}
	}
	const many = 200_000
	r.Parse(Chat, []byte(body(many)))
	if most := tokenBytes * (maxMedia*mediaTokens + many); len(r.Text) > most || cap(r.Text) > 3*most {
		t.Errorf("%d media are %d bytes in %d, want at most %d", many, len(r.Text), cap(r.Text), most)
	}
}
