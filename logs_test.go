package calinix_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// accessAfter waits for the access log's line behind the mark.
func (s *site) accessAfter(t testing.TB, mark int) testcaddy.Entry {
	t.Helper()
	return s.Log.Wait(t, mark, "a line of the access log", func(e testcaddy.Entry) bool { return strings.HasPrefix(e.Logger, "http.log.access") })
}

// fields picks the fields of ours from a log line.
func fields(e testcaddy.Entry) map[string]string {
	out := map[string]string{}
	for name, v := range e.Fields {
		if strings.HasPrefix(name, "calinix_") {
			out[name] = fmt.Sprint(v)
		}
	}
	return out
}

// TestLogFields: what the access log says of a request, however it ended.
func TestLogFields(t *testing.T) {
	ps, pre, dec := pods(t, "a"), pods(t, "p"), pods(t, "d")
	a := ps[0]
	a.SetPath("/404", fakepod.Reply{Status: 404})
	a.SetPath("/500", fakepod.Reply{Status: 500})
	a.SetPath("/silent", fakepod.Reply{Silent: true})
	a.SetPath("/cut", fakepod.Reply{Cut: fakepod.Reset, At: fakepod.AfterChunks(2)})
	s := serve(t, "max_body_bytes 2000\nretries 0\n"+single(ps)+dispatch(pre, dec))
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		prompt := words("w-"+cl.Protocol.String(), 40)
		check := func(what string, status int, send func(), want map[string]string) {
			t.Helper()
			mark := s.Log.Mark()
			send()
			e := s.accessAfter(t, mark)
			got := fields(e)
			if id := got["calinix_request_id"]; id == "" {
				t.Errorf("%s: no request id: %v", what, got)
			}
			delete(got, "calinix_request_id")
			delete(got, "calinix_prompt_tokens") // as the pod counts them
			if fmt.Sprint(got) != fmt.Sprint(want) || !e.Has("status", fmt.Sprint(status)) {
				t.Errorf("%s: status %v, fields\n%v, want %d\n%v", what, e.Fields["status"], got, status, want)
			}
		}
		post := func(path, body string, headers ...string) func() {
			return func() { cl.Post(t, path, body, headers...) }
		}
		one := map[string]string{"calinix_outcome": "answered", "calinix_mode": "single", "calinix_pod": "a", "calinix_depth": "0"}
		with := func(changes ...string) map[string]string {
			out := map[string]string{}
			for k, v := range one {
				out[k] = v
			}
			for i := 0; i < len(changes); i += 2 {
				if out[changes[i]] = changes[i+1]; changes[i+1] == "none" {
					delete(out, changes[i])
				}
			}
			return out
		}
		check("a first prompt", 200, post(chatPath, chat(prompt)), with("calinix_cached_tokens", "0"))
		depth := len(s.explain(t, "", chat(prompt)).Chain)
		check("again", 200, post(chatPath, chat(prompt)), with("calinix_depth", fmt.Sprint(depth), "calinix_cached_tokens", "0"))
		check("no prompt", 200, func() { cl.Get(t, "/v1/models") }, one)
		check("404", 404, post("/404", "x"), with("calinix_outcome", "refused_4xx"))
		check("500", 500, post("/500", "x"), with("calinix_outcome", "refused_5xx"))
		check("cut", 200, post("/cut", chat("hi", `"stream":true`)), with("calinix_outcome", "cut"))
		check("gone", 499, func() { cancelled(t, cl, a, "/silent", "x") }, with("calinix_outcome", "client_gone"))
		check("bad mode", 400, post(chatPath, "{}", "x-calinix-mode", "auto"), with("calinix_outcome", "rejected", "calinix_mode", "", "calinix_pod", "none"))
		check("too large", 413, post(chatPath, chat(strings.Repeat("x", 3000))), with("calinix_outcome", "rejected", "calinix_pod", "none"))
		drain(t, s.Caddy, "a", "drain")
		check("no pod", 503, post(chatPath, chat("hi")), with("calinix_outcome", "no_pod", "calinix_pod", "none"))
		drain(t, s.Caddy, "a", "undrain")

		both := map[string]string{"calinix_outcome": "answered", "calinix_mode": "disaggregated", "calinix_prefill_pod": "p", "calinix_decode_pod": "d", "calinix_depth": "0", "calinix_cached_tokens": "0"}
		check("both legs", 200, post(chatPath, chat(prompt, `"max_tokens":3`), "x-calinix-mode", "dispatch"), both)
		pre[0].Next(fakepod.Reply{Status: 422})
		check("422 of the prefill leg", 422, post(chatPath, chat("other"+cl.Protocol.String(), `"max_tokens":3`), "x-calinix-mode", "dispatch"), map[string]string{
			"calinix_outcome": "refused_4xx", "calinix_mode": "disaggregated", "calinix_prefill_pod": "p", "calinix_depth": "0",
		})
	})
}

// TestLogRequestID: the id in the log is the one that the client and the pod
// have seen.
func TestLogRequestID(t *testing.T) {
	s := serve(t, single(pods(t, "a")))
	cl := s.Client(t, testcaddy.H2)
	for _, id := range []string{"", "my-own-id"} {
		mark := s.Log.Mark()
		a := cl.Post(t, chatPath, chat("hi"), "x-calinix-request-id", id)
		if got := s.accessAfter(t, mark).Fields["calinix_request_id"]; got == "" || got != a.Header.Get("X-Calinix-Request-Id") || id != "" && got != id {
			t.Errorf("sent %q, answered %q, logged %v", id, a.Header.Get("X-Calinix-Request-Id"), got)
		}
	}
}

// TestLogSecrets: prompts, answers, session keys and credentials are in no line,
// even at DEBUG, whatever becomes of the request. Of the names of the headers in
// Caddy's own lines the log filter that the documentation shows takes care.
func TestLogSecrets(t *testing.T) {
	ps, pre, dec := pods(t, "a"), pods(t, "p"), pods(t, "d")
	const answer, token, probeToken = "ANSWER-71f3", "TOKEN-0a9c", "PROBE-5e1b"
	t.Setenv("CALINIX_TEST_TOKEN", probeToken)
	ps.Set(fakepod.Reply{Content: answer})
	s := serve(t, "max_body_bytes 5000\nhealth {\ninterval 20ms\nheaders {\nAuthorization \"Bearer {env.CALINIX_TEST_TOKEN}\"\n}\n}\n"+single(ps)+dispatch(pre, dec))
	secret := func(what string, i int) string { return fmt.Sprintf("%s-secret-%d", what, i) }
	var secrets []string
	n := 0
	send := func(cl *testcaddy.Client, path string, change func(body string) (string, []string)) {
		n++
		body := fmt.Sprintf(`{"model":"m","max_tokens":3,"messages":[{"role":"system","content":%q},{"role":"user","content":%q}],"user":%q,"session_id":%q,"prompt_cache_key":%q,"safety_identifier":%q}`,
			secret("system", n), secret("prompt", n), secret("user", n), secret("session", n), secret("cachekey", n), secret("safety", n))
		body, more := change(body)
		headers := append([]string{
			"Authorization", "Bearer " + token, "Cookie", "c=" + secret("cookie", n), "x-calinix-session-key", secret("key", n),
		}, more...)
		cl.Post(t, path, body, headers...)
		for _, what := range []string{"system", "prompt", "user", "session", "cachekey", "safety", "cookie"} {
			secrets = append(secrets, secret(what, n))
		}
	}
	plain := func(body string) (string, []string) { return body, nil }
	mode := func(m string) func(string) (string, []string) {
		return func(body string) (string, []string) { return body, []string{"x-calinix-mode", m} }
	}
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		send(cl, chatPath, plain)
		send(cl, "/other", plain)
		send(cl, chatPath, mode("dispatch"))
		send(cl, chatPath, mode("auto")) // 400
		send(cl, chatPath, func(body string) (string, []string) { return body[:len(body)-1], nil })
		send(cl, chatPath, func(body string) (string, []string) { return body + strings.Repeat(" ", 5000), nil }) // 413
		for _, reply := range []fakepod.Reply{{Status: 400}, {Status: 503}, {Cut: fakepod.Reset, Delay: 120 * time.Millisecond}, {Cut: fakepod.Reset, At: fakepod.HalfBody}} {
			for _, m := range []string{"single", "dispatch"} {
				for _, p := range []*fakepod.Pod{ps[0], pre[0], pre[0]} {
					p.Next(reply)
				}
				send(cl, chatPath, mode(m))
				for _, p := range []*fakepod.Pod{ps[0], pre[0]} {
					p.Clear()
				}
			}
		}
		ps.Set(fakepod.Reply{Content: answer})
	})
	s.reload(t, single(ps)+dispatch(pre, dec)+"retries 0\n")
	secrets = append(secrets, answer, token, probeToken)
	s.Log.AssertAbsent(t, secrets...)
	if lines := s.Log.Find(func(e testcaddy.Entry) bool { return e.Level == "debug" }); len(lines) == 0 {
		t.Error("the log is not at DEBUG")
	}
	// The key of the session: Caddy's access log shows the headers as they came
	// in, and only there may it be.
	for _, e := range s.Log.Entries() {
		if strings.Contains(e.Line, "key-secret-") && !strings.HasPrefix(e.Logger, "http.log.access") {
			t.Errorf("a session key is in a line of %s: %s", e.Logger, e.Line)
		}
	}
}

// TestLogFilter: the filter of docs/logs.md keeps session keys out of Caddy's
// own lines too, even at DEBUG.
func TestLogFilter(t *testing.T) {
	ps := pods(t, "a")
	s := serve(t, single(ps), testcaddy.Global(logFilter(t)))
	mark := s.Log.Mark()
	s.Client(t, testcaddy.H1).Post(t, chatPath, chat("hi"), "x-calinix-session-key", "KEY-1", "X-Session-ID", "KEY-2", "X-Conversation-ID", "KEY-3", "X-Api-Key", "KEY-4")
	if e := s.accessAfter(t, mark); !e.Has("calinix_pod", "a") {
		t.Errorf("%s", e.Line)
	}
	s.Log.Wait(t, mark, "Caddy's line about the leg", func(e testcaddy.Entry) bool { return e.Msg == "upstream roundtrip" })
	s.Log.AssertAbsent(t, "KEY-1", "KEY-2", "KEY-3", "KEY-4")
}

// TestLogPlaceholders: the decision is there for Caddy's own directives, also
// where there was none.
func TestLogPlaceholders(t *testing.T) {
	ps, pre, dec := pods(t, "a"), pods(t, "p"), pods(t, "d")
	s := &site{balancer: "placeholders"}
	s.Caddy = testcaddy.Serve(t, `header {
			X-Late "{http.calinix.mode}|{http.calinix.pod}|{http.calinix.prefill_pod}|{http.calinix.decode_pod}|{http.calinix.depth}"
			defer
		}
		log_append mode {http.calinix.mode}
		log_append pod {http.calinix.pod}
		log_append prefill {http.calinix.prefill_pod}
		log_append decode {http.calinix.decode_pod}
		log_append depth {http.calinix.depth}
		`+s.body("header_up X-Up {http.calinix.pod}{http.calinix.prefill_pod}\nheader_down X-Down {http.calinix.pod}{http.calinix.decode_pod}\n"+single(ps)+dispatch(pre, dec)))
	cl := s.Client(t, testcaddy.H1)
	for _, tc := range []struct {
		mode, want, up, down string
		status               int
	}{
		{"single", `single\|a\|\|\|\d+`, "a", "a", 200},
		{"dispatch", `disaggregated\|\|p\|d\|\d+`, "p", "d", 200},
		{"auto", `\|\|\|\|0`, "", "", 400},
	} {
		mark := s.Log.Mark()
		a := cl.Post(t, chatPath, chat("hi", `"max_tokens":3`), "x-calinix-mode", tc.mode)
		want := regexp.MustCompile("^" + tc.want + "$")
		if a.Status != tc.status || !want.MatchString(a.Header.Get("X-Late")) || a.Header.Get("X-Down") != tc.down {
			t.Errorf("mode %s: %v", tc.mode, a)
		}
		f := s.accessAfter(t, mark).Fields
		if said := fmt.Sprintf("%v|%v|%v|%v|%v", f["mode"], f["pod"], f["prefill"], f["decode"], f["depth"]); !want.MatchString(said) {
			t.Errorf("mode %s: the log says %q", tc.mode, said)
		}
		for _, q := range append(ps.Received(), pre.Received()...) {
			if got := q.Header.Get("X-Up"); got != q.Pod {
				t.Errorf("mode %s: pod %s was told %q", tc.mode, q.Pod, got)
			}
		}
	}
}

// TestLogPodUpAndDown: a line and an event when a pod turns, with the reason.
func TestLogPodUpAndDown(t *testing.T) {
	ps := pods(t, "a", "b")
	s := serve(t, "health {\ninterval 20ms\ntimeout 2s\nunhealthy_threshold 2\nhealthy_threshold 3\npassive {\nfailures 2\n}\n}\n"+single(ps), testcaddy.Plain())
	is := func(e testcaddy.Entry, msg, pod string) bool {
		return e.Logger == "http.handlers.calinix" && e.Msg == msg && e.Has("pod", pod) && e.Has("balancer", s.balancer)
	}
	turned := func(mark int, msg, pod string) (line, event testcaddy.Entry) {
		t.Helper()
		line = s.Log.Wait(t, mark, pod+": "+msg, func(e testcaddy.Entry) bool { return is(e, msg, pod) })
		event = s.Log.Wait(t, mark, "the event", func(e testcaddy.Entry) bool {
			return e.Logger == "events" && e.Msg == "event" && strings.Contains(e.Line, `"pod":"`+pod+`"`)
		})
		name := map[string]string{"pod is down": "unhealthy", "pod is up": "healthy"}[msg]
		data, _ := event.Fields["data"].(map[string]any)
		if !event.Has("name", name) || !event.Has("origin", "http.handlers.calinix") || data["balancer"] != s.balancer || data["host"] != ps.Pod(pod).Addr || data["reason"] != line.Fields["reason"] {
			t.Errorf("the event: %s", event.Line)
		}
		return line, event
	}
	mark := s.Log.Mark()
	ps.Pod("a").Healthy(false)
	if line, _ := turned(mark, "pod is down", "a"); line.Level != "warn" || !line.Has("index_entries_dropped", "false") || !strings.Contains(line.Line, "failed 2 probes in a row, the last one (bad_status): 503 Service Unavailable") {
		t.Errorf("%s", line.Line)
	}
	mark = s.Log.Mark()
	ps.Pod("a").Healthy(true)
	if line, _ := turned(mark, "pod is up", "a"); line.Level != "info" || !strings.Contains(line.Line, "passed 3 probes in a row") {
		t.Errorf("%s", line.Line)
	}
	mark = s.Log.Mark()
	ps.Pod("a").Refuse()
	if line, _ := turned(mark, "pod is down", "a"); line.Level != "warn" || !line.Has("index_entries_dropped", "true") || !strings.Contains(line.Line, "dropped") {
		t.Errorf("%s", line.Line)
	}
	mark = s.Log.Mark()
	ps.Pod("b").Set(fakepod.Reply{Status: http.StatusInternalServerError})
	cl := s.Client(t, testcaddy.H1)
	for range 2 {
		cl.Post(t, "/any", "x")
	}
	if line, _ := turned(mark, "pod is down", "b"); !strings.Contains(line.Line, "2 failed requests within 10s, the last one refused_5xx") {
		t.Errorf("%s", line.Line)
	}
	if failed := s.Log.Find(func(e testcaddy.Entry) bool { return e.Msg == "leg failed" && e.Has("pod", "b") }); len(failed) != 2 || !failed[0].Has("status", "500") || !failed[0].Has("outcome", "refused_5xx") {
		t.Errorf("%d lines of failed legs: %+v", len(failed), failed)
	}
	// as often as the verdict turned, and no more
	for what, want := range map[string]int{"pod is down": 3, "pod is up": 1} {
		got := s.Log.Find(func(e testcaddy.Entry) bool { return e.Msg == what && e.Logger == "http.handlers.calinix" })
		if what == "pod is up" {
			for k := len(got) - 1; k >= 0; k-- {
				if got[k].Has("pod", "b") { // the probes may have brought it back already
					got = append(got[:k], got[k+1:]...)
				}
			}
		}
		if len(got) != want {
			t.Errorf("%d lines %q, want %d", len(got), what, want)
		}
	}
}
