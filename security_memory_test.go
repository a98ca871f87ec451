package calinix_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

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
