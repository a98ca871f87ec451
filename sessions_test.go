package calinix_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// sessionSources are the places in which a session may be named, the first that
// is there counting.
var sessionSources = []string{
	"x-calinix-session-key", "X-Session-ID", "X-Conversation-ID", "session_id", "prompt_cache_key", "safety_identifier", "user",
}

// named is a chat request that names sessions in these sources.
func named(text string, sessions map[string]string) (body string, headers []string) {
	var members []string
	for i, source := range sessionSources {
		switch key, ok := sessions[source]; {
		case !ok:
		case i < 3:
			headers = append(headers, source, key)
		default:
			members = append(members, strconv.Quote(source)+":"+strconv.Quote(key))
		}
	}
	return chat(text, members...), headers
}

// stickyOnly are keys with which nothing but the session counts.
const stickyOnly = "weights {\nsingle cache 0 load 0 sticky 1\nprefill cache 0 load 0 sticky 1\ndecode cache 0 load 0 sticky 1 locality 0\n}\n"

// TestSessionSources: a session is named by x-calinix-session-key, else
// X-Session-ID, else X-Conversation-ID, else the body's session_id,
// prompt_cache_key, safety_identifier, user, in this order.
func TestSessionSources(t *testing.T) {
	ps := pods(t, "a", "b", "c", "d")
	s := serve(t, stickyOnly+single(ps))
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		n := 0
		ask := func(sessions map[string]string) string {
			n++
			body, headers := named(fmt.Sprintf("%v number %d", cl.Protocol, n), sessions)
			a := cl.Post(t, chatPath, body, headers...)
			if a.Status != 200 {
				t.Fatal(a)
			}
			return a.Pod()
		}
		// homes are a session of the prefix for each pod, so that a pod tells
		// which session counted.
		homes := func(prefix string) map[string]string {
			byPod := map[string]string{}
			for i := 0; len(byPod) < len(ps); i++ {
				key := fmt.Sprintf("%s-%v-%d", prefix, cl.Protocol, i)
				byPod[ask(map[string]string{"user": key})] = key
			}
			return byPod
		}
		keys := homes("k")
		for i, source := range sessionSources {
			for pod, key := range keys {
				other := "a"
				if pod == "a" {
					other = "b"
				}
				sessions := map[string]string{source: key}
				for _, later := range sessionSources[i+1:] {
					sessions[later] = keys[other]
				}
				for range 2 {
					if got := ask(sessions); got != pod {
						t.Errorf("session of %s by %s went to %s, with all later sources naming one of %s", pod, source, got, other)
					}
				}
			}
		}
	})
}

// TestSessionWithoutName: what names no session is bound to none: empty keys
// and members of another type do not count, and the next source does.
func TestSessionWithoutName(t *testing.T) {
	ps := pods(t, "a", "b", "c", "d")
	s := serve(t, stickyOnly+single(ps))
	cl := s.Client(t, testcaddy.H1)
	for _, member := range []string{`"user":""`, `"user":null`, `"user":["x"]`, `"session_id":"","user":""`, `"metadata":{}`} {
		seen := map[string]bool{}
		for i := range 24 {
			seen[cl.Post(t, chatPath, chat(fmt.Sprintf("%s %d", member, i), member), "x-calinix-session-key", "").Pod()] = true
		}
		if len(seen) < 3 {
			t.Errorf("24 prompts with %s all went to %v", member, seen)
		}
	}
	home := cl.Post(t, chatPath, chat("first", `"user":"u"`)).Pod()
	for i := range 8 {
		a := cl.Post(t, chatPath, chat(strconv.Itoa(i), `"session_id":"","prompt_cache_key":null,"user":"u"`), "x-calinix-session-key", "", "X-Session-ID", "")
		if a.Pod() != home {
			t.Errorf("user u is at home at %s: %v", home, a)
		}
	}
}

// TestSessionDispatch: a session has a pod for each leg.
func TestSessionDispatch(t *testing.T) {
	prefill, decode := pods(t, "p1", "p2", "p3"), pods(t, "d1", "d2", "d3")
	s := serve(t, stickyOnly+dispatch(prefill, decode))
	cl := s.Client(t, testcaddy.H2)
	pairs := map[string]bool{}
	for i := range 12 {
		key, pair := fmt.Sprintf("session-%d", i), ""
		for turn := range 3 {
			a := cl.Post(t, chatPath, chat(fmt.Sprintf("talk %d turn %d", i, turn)), "X-Session-ID", key)
			got := a.Header.Get("X-Calinix-Prefill-Pod-Id") + " " + a.Header.Get("X-Calinix-Decode-Pod-Id")
			if turn > 0 && got != pair {
				t.Errorf("session %d was at %s, and then at %s", i, pair, got)
			}
			pair = got
		}
		pairs[pair] = true
	}
	if len(pairs) < 4 {
		t.Errorf("12 sessions were at %v only", pairs)
	}
}

// TestSessionBounds: of more sessions than max those that were not used for
// longest are forgotten; one that was idle for idleTtl is, too.
func TestSessionBounds(t *testing.T) {
	ps := pods(t, "a", "b", "c", "d")
	s := serve(t, stickyOnly+"sessions {\nmax 2\n}\n"+single(ps))
	cl := s.Client(t, testcaddy.H2)
	strays := func(use func(i int)) int {
		n := 0
		home := cl.Post(t, chatPath, chat("home"), "X-Session-ID", "kept").Pod()
		for i := range 16 {
			use(i)
			at := cl.Post(t, chatPath, chat(fmt.Sprintf("prompt %d", i)), "X-Session-ID", "kept").Pod()
			if at != home {
				n++
			}
			home = at
		}
		return n
	}
	if n := strays(func(i int) { cl.Post(t, chatPath, question, "X-Session-ID", fmt.Sprint("other", i)) }); n != 0 {
		t.Errorf("with one other session in between it moved %d times", n)
	}
	if n := strays(func(i int) {
		for k := range 2 {
			cl.Post(t, chatPath, question, "X-Session-ID", fmt.Sprint("other", i, k))
		}
	}); n < 4 {
		t.Errorf("with two others in between it moved %d times of 16, and max is 2", n)
	}
	s.reload(t, stickyOnly+"sessions {\nidle_ttl 1ms\n}\nhealth {\ninterval 1h\n}\n"+single(ps))
	if n := strays(func(int) { s.Metrics(t) }); n < 4 {
		t.Errorf("with more than 1 ms in between it moved %d times of 16", n)
	}
}
