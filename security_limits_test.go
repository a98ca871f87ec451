package calinix_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// pageLine is the line of docs/security.md that begins so, without its spaces.
func pageLine(t *testing.T, begin string) string {
	t.Helper()
	for line := range strings.Lines(securityPage(t)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, begin) {
			return line
		}
	}
	t.Fatalf("docs/security.md has no line %q", begin)
	return ""
}

// pageBlock is the example of docs/security.md that holds the text.
func pageBlock(t *testing.T, text string) string {
	t.Helper()
	for i, part := range strings.Split(securityPage(t), "```") {
		if body, is := strings.CutPrefix(part, "caddyfile\n"); is && i%2 == 1 && strings.Contains(body, text) {
			return body
		}
	}
	t.Fatalf("docs/security.md has no example with %q", text)
	return ""
}

func securityPage(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

// allocated is what f makes the whole process allocate, in bytes.
func allocated(f func()) float64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return float64(after.TotalAlloc - before.TotalAlloc)
}

// secureBodySize: what is larger than maxBodyBytes is a 413, as soon as that is
// known, and what does not fit into bodyMemoryBytes a 503.
func secureBodySize(t *testing.T) {
	ps := pods(t, "a")
	s := serve(t, "max_body_bytes 8MB\nbody_memory_bytes 6MB\n"+single(ps), testcaddy.Plain())
	head := "POST " + chatPath + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
	for what, c := range map[string]struct{ text, want string }{
		"2^63-1 announced":          {head + "Content-Length: 9223372036854775807\r\n\r\nx", "413"},
		"8 MB and a byte announced": {head + "Content-Length: 8000001\r\n\r\nx", "413"},
		"7 MB announced":            {head + "Content-Length: 7000000\r\n\r\nx", "503"},
		"a chunk of 2^40":           {head + "Transfer-Encoding: chunked\r\n\r\n10000000000\r\n" + strings.Repeat("x", 9_000_000), "503"},
	} {
		took := allocated(func() {
			if got := raw(t, s, c.text); !strings.HasPrefix(got, "HTTP/1.1 "+c.want) && got != "" { // or the answer was lost in what was not read
				t.Errorf("%s: %.200q", what, got)
			}
		})
		if took > 64<<20 {
			t.Errorf("%s: took %.0f bytes", what, took)
		}
	}
	s.waitCount(t, 2, "calinix_requests_total", "code", "413")
	s.waitCount(t, 2, "calinix_requests_total", "code", "503")
	if n := ps.Total(); n != 0 {
		t.Errorf("%d requests at the pod", n)
	}
	if a := s.Client(t, testcaddy.H1).Post(t, chatPath, question); a.Status != 200 {
		t.Errorf("afterwards: %v", a)
	}
}

// secureBombs: what is small until it is decompressed costs as little memory as
// what is refused for its size.
func secureBombs(t *testing.T) {
	const limit, blown = 2 << 20, 128 << 20
	zeros := func(w io.Writer) {
		block := make([]byte, 1<<20)
		for range blown / len(block) {
			w.Write(block)
		}
	}
	var zbomb strings.Builder
	z, err := zstd.NewWriter(&zbomb)
	if err != nil {
		t.Fatal(err)
	}
	zeros(z)
	z.Close()
	var window strings.Builder
	w, err := zstd.NewWriter(&window, zstd.WithWindowSize(256<<20))
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(w, question)
	w.Flush() // so that the frame says its window, not its length
	w.Close()
	half := string(gzipped(strings.Repeat("0", blown/8)))
	all := pods(t, "s1", "p1", "d1")
	s := serve(t, fmt.Sprintf("max_body_bytes %d\n", limit)+single(all[:1])+dispatch(all[1:2], all[2:]))
	cl := s.Client(t, testcaddy.H2)
	for _, mode := range []string{"single", "dispatch"} {
		for what, c := range map[string]struct {
			body, coding string
		}{
			"zstd":           {zbomb.String(), "zstd"},
			"gzip":           {half, "gzip"},
			"gzip of gzip":   {string(gzipped(half)), "gzip, gzip"},
			"zstd of gzip":   {string(gzipped(zbomb.String())), "zstd, gzip"},
			"gzip and again": {half + half + half, "gzip"},
		} {
			took := allocated(func() {
				a := cl.Post(t, chatPath, c.body, "Content-Encoding", c.coding, "x-calinix-mode", mode)
				if code := wantError(t, a, 413); code != "body_too_large" {
					t.Errorf("%s: code %s", what, code)
				}
			})
			if took > 16*limit {
				t.Errorf("%s: %d bytes took %.0f", what, len(c.body), took)
			}
		}
	}
	if n := all.Total(); n != 0 {
		t.Errorf("%d requests reached a pod", n)
	}
	took := allocated(func() {
		wantError(t, cl.Post(t, chatPath, window.String(), "Content-Encoding", "zstd", "x-calinix-mode", "dispatch"), 400)
	})
	if took > 16*limit {
		t.Errorf("a window of 256 MiB took %.0f bytes", took)
	}
}

// securePromptCost: bodies made of what takes most memory for its size.
func securePromptCost(t *testing.T) {
	all := pods(t, "s1", "p1", "d1")
	s := serve(t, single(all[:1])+dispatch(all[1:2], all[2:]))
	cl := s.Client(t, testcaddy.H2)
	const size = 2 << 20
	fill := func(before, again, after string) string {
		return before + strings.Repeat(again, (size-len(before)-len(after))/len(again)) + after
	}
	for what, c := range map[string]struct {
		body   string
		status int // in dispatch mode
	}{
		"messages":          {fill(`{"messages":[`, `{},`, `{}]}`), 200},
		"parts":             {fill(`{"messages":[{"role":"user","content":[`, `{},`, `{}]}]}`), 200},
		"tools":             {fill(`{"tools":[`, `{},`, `{}],"messages":[{"role":"user","content":"x"}]}`), 200},
		"tool calls":        {fill(`{"messages":[{"role":"assistant","tool_calls":[`, `{},`, `{}]}]}`), 200},
		"media":             {fill(`{"messages":[{"role":"user","content":[`, `{"type":"image"},`, `{}]}]}`), 200},
		"words":             {fill(`{"messages":[{"role":"user","content":"`, `a `, `"}]}`), 200},
		"escapes":           {fill(`{"messages":[{"role":"user","content":"`, `\n`, `"}]}`), 200},
		"members":           {fill(`{`, `"":0,`, `"messages":[{"role":"user","content":"x"}]}`), 400},
		"reserved members":  {fill(`{`, `"bootstrap_room":1,`, `"messages":[{"role":"user","content":"x"}]}`), 400},
		"limits":            {fill(`{`, `"max_tokens":1,`, `"messages":[{"role":"user","content":"x"}]}`), 400},
		"streams":           {fill(`{`, `"stream":1,`, `"messages":[{"role":"user","content":"x"}]}`), 400},
		"names of reserved": {fill(`{"a":NaN,"x":"`, `bootstrap_roo`, `"}`), 200},
	} {
		for _, mode := range []string{"single", "dispatch"} {
			var a *testcaddy.Answer
			took := allocated(func() { a = cl.Post(t, chatPath, c.body, "x-calinix-mode", mode) })
			want := 200
			if mode == "dispatch" {
				want = c.status
			}
			if a.Status != want {
				t.Errorf("%s, %s: want %d: %v", what, mode, want, a)
			}
			t.Logf("%-18s %-8s took %4.1f bytes for one, %v", what, mode, took/size, a.Ended.Sub(a.Began).Round(time.Millisecond))
			// All that the process allocates, client and pods included.
			if took > 30*size {
				t.Errorf("%s, %s: took %.1f bytes for one", what, mode, took/size)
			}
			all.Forget()
		}
	}
}

// trickle opens a connection that announces a body of so many bytes and sends a
// few.
func trickle(t *testing.T, s *site, announced int) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", chatPath, announced)
	conn.SetReadDeadline(time.Now().Add(testcaddy.Patience))
	if resp, err := bufio.NewReader(conn).ReadString('\n'); !strings.HasPrefix(resp, "HTTP/1.1 100") { // the body is being read
		t.Fatalf("%q %v", resp, err)
	}
	io.WriteString(conn, `{"messages"`)
	return conn
}

// secureSlowBodies: clients that announce much and send little take no memory
// from others, and Caddy can end them.
func secureSlowBodies(t *testing.T) {
	ps := pods(t, "a")
	s := serve(t, "max_body_bytes 32MB\nbody_memory_bytes 64MB\n"+single(ps), testcaddy.Plain())
	for range 20 {
		trickle(t, s, 32_000_000) // ten times the memory
	}
	cl := s.Client(t, testcaddy.H1)
	for _, size := range []int{1_000, 100_000, 20_000_000} {
		if a := cl.Post(t, chatPath, chat(strings.Repeat("x", size))); a.Status != 200 {
			t.Errorf("a body of %d bytes: %v", size, a)
		}
	}
	s.Stop()

	block := pageBlock(t, "read_body_idle")
	fast := strings.NewReplacer("30s", "200ms", "10000", "100000").Replace(block)
	if fast == block {
		t.Fatalf("the example has other times: %s", block)
	}
	options := strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(fast), "{"), "}")
	s = serve(t, single(ps), testcaddy.Plain(), testcaddy.Global(options))
	ps.Forget()
	conn := trickle(t, s, 1_000_000)
	conn.SetDeadline(time.Now().Add(testcaddy.Patience))
	gone := make(chan error, 1)
	go func() { _, err := io.Copy(io.Discard, conn); gone <- err }()
	for ended := false; !ended; {
		select {
		case err := <-gone:
			if nerr, is := err.(net.Error); is && nerr.Timeout() {
				t.Error("a client that sends a byte now and then is not ended")
			}
			ended = true
		case <-time.After(20 * time.Millisecond):
			_, _ = conn.Write([]byte(" ")) // never idle
		}
	}
	if n := ps.Total(); n != 0 {
		t.Errorf("%d requests at the pod", n)
	}
	if a := s.Client(t, testcaddy.H1).Post(t, chatPath, chat(strings.Repeat("x", 1_000_000))); a.Status != 200 {
		t.Errorf("a fast client: %v", a)
	}
}

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

// secureMetricLabels: what clients send makes no series.
func secureMetricLabels(t *testing.T) {
	all := pods(t, "s1", "p1", "d1")
	s := serve(t, single(all[:1])+dispatch(all[1:2], all[2:]))
	cl := s.Client(t, testcaddy.H2)
	post := func(i int) {
		for _, mode := range []string{"single", "dispatch", "auto"} {
			cl.Post(t, chatPath, fmt.Sprintf(`{"model":"model-%d","user":"user-%d","messages":[{"role":"user","content":"prompt %d"}]}`, i, i, i), "x-calinix-mode", mode,
				"x-calinix-request-id", fmt.Sprint("id-", i), "X-Session-ID", fmt.Sprint("session-", i))
			cl.Send(cl.Request(t.Context(), t, fmt.Sprintf("METHOD%d", i), fmt.Sprintf("/path-%d?q=%d", i, i), "", "x-calinix-mode", mode))
		}
	}
	series := func() (n int) {
		s.waitIdle(t)
		for name := range s.Metrics(t) {
			if strings.HasPrefix(name, "calinix_") && strings.Contains(name, `"`+s.balancer+`"`) {
				n++
			}
		}
		return n
	}
	post(0)
	before := series()
	for i := range 30 {
		post(i + 1)
	}
	if after := series(); before == 0 || after != before {
		t.Errorf("%d series, then %d", before, after)
	}
}

// secureAdmin: the site has no administrative paths; they are its pods' own.
func secureAdmin(t *testing.T) {
	ps := pods(t, "a")
	s := serve(t, single(ps))
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		admin := strings.TrimPrefix(s.AdminURL, "http://")
		for _, path := range []string{
			"/calinix/pods", "/calinix/index", "/calinix/explain", "/calinix/pods/a/drain", "/metrics", "/config/", "/load", "/stop",
			"/debug/pprof/", "//calinix/explain", "/x/../calinix/pods/a/drain", "/%63alinix/explain", "/CALINIX/explain", "/v1/../calinix/explain",
		} {
			for _, host := range []string{"localhost", admin} {
				for _, method := range []string{http.MethodGet, http.MethodPost} {
					ps.Forget()
					req := cl.Request(t.Context(), t, method, "/", question, "Host", host, "Origin", "http://"+admin)
					req.URL.Opaque = strings.TrimPrefix(cl.Base, "https:") + path
					if cl.Protocol != testcaddy.H1 {
						req.URL.Opaque, req.URL.Path = "", path
					}
					if a := cl.Send(req); a.Status != 200 || a.Pod() != "a" || ps.Total() != 1 {
						t.Errorf("%s %s at %s: %v", method, path, host, a)
					}
				}
			}
		}
	})
	if e := entries(t, s.Caddy, ""); len(e) != 1 || e[0].Draining {
		t.Errorf("a client has drained a pod: %+v", e)
	}
}

// secureAccess: the example of the page lets in who has the key, to the paths of
// the API.
func secureAccess(t *testing.T) {
	example := pageBlock(t, "API_KEY")
	_, example, _ = strings.Cut(example, "{\n") // the site's name
	example = strings.TrimSuffix(strings.TrimSpace(example), "}")
	ps := fakepod.NewPods(t, fakepod.Options{}, "gpu-1")
	t.Setenv("API_KEY", "right")
	s := testcaddy.Serve(t, strings.Replace(example, "http://10.0.0.1:8000", ps[0].URL, 1))
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		for _, c := range []struct {
			path, key string
			status    int
		}{
			{chatPath, "Bearer right", 200},
			{chatPath, "Bearer wrong", 401},
			{chatPath, "", 401},
			{"/metrics", "Bearer right", 404},
			{"/v1/../metrics", "Bearer right", 404},
			{"/reset_prefix_cache", "Bearer right", 404},
		} {
			ps.Forget()
			var headers []string
			if c.key != "" {
				headers = []string{"Authorization", c.key}
			}
			a := cl.Post(t, c.path, question, headers...)
			if a.Status != c.status || (ps.Total() == 1) != (c.status == 200) {
				t.Errorf("%s with %q: %d requests at the pod, %v", c.path, c.key, ps.Total(), a)
			}
		}
	})
}
