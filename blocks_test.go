package calinix_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// completion is a completion request, whose prompt is just this text.
func completion(prompt string) string {
	return fmt.Sprintf(`{"model":"m","prompt":%q}`, prompt)
}

// depth is the depth on an answer.
func depth(t testing.TB, a *testcaddy.Answer) int {
	t.Helper()
	n, err := strconv.Atoi(a.Header.Get("X-Calinix-Cache-Prefix-Depth"))
	if a.Status != 200 || err != nil || (n > 0) != (a.Header.Get("X-Calinix-Cache-Hit") == "true") {
		t.Fatalf("no depth, or one that is not the hit's: %v", a)
	}
	return n
}

// TestBlockSize: a depth is counted in blocks of so many tokens.
func TestBlockSize(t *testing.T) {
	ps := pods(t, "a")
	s := serve(t, single(ps), testcaddy.Plain())
	for _, size := range []int{1, 3, 16, 100, 1000} {
		s.reload(t, fmt.Sprintf("block_size %d\n", size)+single(ps))
		cl := s.Client(t, testcaddy.H1)
		prompt := words("w", 100)
		want := (100 + size - 1) / size
		if n := depth(t, cl.Post(t, "/v1/completions", completion(prompt))); n != 0 {
			t.Errorf("size %d: a new prompt has depth %d", size, n)
		}
		if n := depth(t, cl.Post(t, "/v1/completions", completion(prompt))); n != want {
			t.Errorf("size %d: depth %d of 100 tokens, want %d", size, n, want)
		}
		if n := depth(t, cl.Post(t, "/v1/completions", completion(prompt+words("x", 50)))); n != 100/size {
			t.Errorf("size %d: depth %d of a prompt that begins with 100 known tokens, want %d", size, n, 100/size)
		}
		if x := indexOf(t, s.Caddy); x.Blocks != want+(150+size-1)/size-100/size {
			t.Errorf("size %d: %d blocks", size, x.Blocks)
		}
		if ns := s.explain(t, "?path=/v1/completions", completion(prompt)); len(ns.Chain) != want {
			t.Errorf("size %d: a chain of %d blocks, want %d", size, len(ns.Chain), want)
		}
	}
}

// TestMaxTokenBytes: a long run without spaces is as many tokens as it has
// pieces of that size.
func TestMaxTokenBytes(t *testing.T) {
	ps := pods(t, "a")
	run := func(n int) string { return strings.Repeat("语言模型", n/12+1)[:n] } // 3 bytes a character, no spaces
	s := serve(t, single(ps), testcaddy.Plain())
	for _, tc := range []struct{ limit, blocks, shared int }{{16, 15, 7}, {4, 60, 30}, {240, 1, 0}, {1, 240, 120}, {0, 1, 0}} {
		s.reload(t, fmt.Sprintf("block_size 1\nmax_token_bytes %d\n", tc.limit)+single(ps))
		cl := s.Client(t, testcaddy.H1)
		cl.Post(t, "/v1/completions", completion(run(240)))
		if n := depth(t, cl.Post(t, "/v1/completions", completion(run(240)))); n != tc.blocks {
			t.Errorf("limit %d: 240 bytes have depth %d, want %d", tc.limit, n, tc.blocks)
		}
		if n := depth(t, cl.Post(t, "/v1/completions", completion(run(120)+strings.Repeat("z", 120)))); n != tc.shared {
			t.Errorf("limit %d: half of it has depth %d, want %d", tc.limit, n, tc.shared)
		}
	}
}
