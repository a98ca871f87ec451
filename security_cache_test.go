package calinix_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// secureIndexFlood: one client's prompts make the index no larger, and push out
// what others have not used since.
func secureIndexFlood(t *testing.T) {
	ps := pods(t, "a", "b")
	s := serve(t, "block_size 4\ncache_registry {\nmax_blocks 1000\n}\n"+single(ps), testcaddy.Plain())
	cl := s.Client(t, testcaddy.H1)
	mine := completion(words("mine", 80)) // 20 blocks
	cl.Post(t, "/v1/completions", mine)
	home := cl.Post(t, "/v1/completions", mine)
	flood := func(round, prompts int) {
		for i := range prompts {
			cl.Post(t, "/v1/completions", completion(words(fmt.Sprintf("flood%d-%d-", round, i), 80)))
			if n := indexOf(t, s.Caddy).Blocks; n > 1000 {
				t.Fatalf("%d blocks", n)
			}
		}
	}
	for round := range 6 {
		flood(round, 30) // 600 blocks
		if a := cl.Post(t, "/v1/completions", mine); a.Pod() != home.Pod() || depth(t, a) != 20 {
			t.Errorf("after round %d: %v", round, a)
		}
	}
	flood(6, 200) // long enough for the index, which tells times apart in steps of 34 ms
	if a := cl.Post(t, "/v1/completions", mine); depth(t, a) != 0 {
		t.Errorf("not used for 4000 blocks: %v", a)
	}
}

// secureSessionFlood: the same of sessions.
func secureSessionFlood(t *testing.T) {
	ps := pods(t, "a", "b", "c", "d")
	s := serve(t, stickyOnly+"sessions {\nmax 50\n}\n"+single(ps), testcaddy.Plain())
	cl := s.Client(t, testcaddy.H1)
	at := cl.Post(t, chatPath, chat("home"), "X-Session-ID", "mine").Pod()
	for round := range 8 {
		for i := range 40 {
			cl.Post(t, chatPath, question, "X-Session-ID", fmt.Sprint("flood", round, "-", i))
		}
		if a := cl.Post(t, chatPath, chat(fmt.Sprint("prompt ", round)), "X-Session-ID", "mine"); a.Pod() != at {
			t.Errorf("round %d: the session moved from %s to %s", round, at, a.Pod())
		}
	}
	known := func(session string) bool {
		t.Helper()
		for _, c := range s.explain(t, "", question, "X-Session-ID", session).Candidates {
			if c.Sticky > 0 {
				return true
			}
		}
		return false
	}
	if !known("mine") || !known("flood7-39") {
		t.Error("a session that was used last is forgotten")
	}
	left := 0
	for round := range 8 {
		for i := range 40 {
			if known(fmt.Sprint("flood", round, "-", i)) {
				left++
			}
		}
	}
	if left != 49 || known("flood0-0") { // and mine
		t.Errorf("%d of the others are known, of 50 in all", left)
	}
}

// secureCollisions: two texts of one hash are taken for one, and that is all that
// comes of it.
func secureCollisions(t *testing.T) {
	// Of both, 64-bit FNV-1a makes 4eac0c95540867e4.
	const one, other = "8yn0iYCKYHlIj4-BwPqk", "GReLUrM4wMqfg9yzV3KQ"
	rest := " " + words("rest", 31)
	ps := pods(t, "a", "b")
	s := serve(t, "block_size 1\nmax_token_bytes 0\n"+single(ps), testcaddy.Plain())
	cl := s.Client(t, testcaddy.H1)
	first := cl.Post(t, "/v1/completions", completion(one+rest))
	again := cl.Post(t, "/v1/completions", completion(other+rest))
	if first.Status != 200 || again.Pod() != first.Pod() || depth(t, again) != 32 {
		t.Errorf("no false credit, so the page is wrong: %v, then %v", first, again)
	}
	if got := string(ps.Pod(again.Pod()).Last(t).Body); got != completion(other+rest) {
		t.Errorf("the pod gets %s", got)
	}
	salted := strings.Replace(completion(other+rest), `"model"`, `"cache_salt":"mine","model"`, 1)
	if a := cl.Post(t, "/v1/completions", salted); depth(t, a) != 0 {
		t.Errorf("under a salt: %v", a)
	}
	// Tokens are cut at 16 bytes by default, which takes this pair apart.
	s.reload(t, "block_size 1\n"+single(ps))
	cl = s.Client(t, testcaddy.H1)
	cl.Post(t, "/v1/completions", completion(one+rest))
	if a := cl.Post(t, "/v1/completions", completion(other+rest)); depth(t, a) != 0 {
		t.Errorf("by default: %v", a)
	}
}

// secureSalts: prompts under different models and salts share nothing.
func secureSalts(t *testing.T) {
	s := serve(t, single(pods(t, "a")), testcaddy.Plain())
	cl := s.Client(t, testcaddy.H1)
	text := words("secret", 64)
	body := func(model, salt string) string {
		return fmt.Sprintf(`{"model":%q,"cache_salt":%q,"prompt":%q}`, model, salt, text)
	}
	cl.Post(t, "/v1/completions", body("m", "one"))
	for what, c := range map[string]struct {
		body string
		want int
	}{
		"the same":        {body("m", "one"), 4},
		"another salt":    {body("m", "two"), 0},
		"no salt":         {completion(text), 0},
		"another model":   {body("n", "one"), 0},
		"shifted letters": {body("mo", "ne"), 0},
	} {
		if n := depth(t, cl.Post(t, "/v1/completions", c.body)); n != c.want {
			t.Errorf("%s: depth %d, want %d", what, n, c.want)
		}
	}
}

// secureQuietAnswers: with responseHeaders off, answers say nothing of what a pod
// is known to hold.
func secureQuietAnswers(t *testing.T) {
	s := serve(t, "response_headers off\n"+single(pods(t, "a")))
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		prompt := chat(words("q"+cl.Protocol.String(), 64))
		first, again := cl.Post(t, chatPath, prompt), cl.Post(t, chatPath, prompt)
		for name := range again.Header {
			if _, there := first.Header[name]; !there || strings.HasPrefix(name, "X-Calinix-") {
				t.Errorf("%s: %q", name, again.Header[name])
			}
		}
	})
	if e := s.explain(t, "", chat(words("qh1", 64))); e.of(t, "a").Depth == 0 {
		t.Error("there was nothing to tell")
	}
}
