package cases_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"go.uber.org/goleak"

	"github.com/calinix/caddy-calinix/internal/cases"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sum is one line of testdata/checksums.json. It was made by the expander that
// is published with the case files (a Python program), not by this package.
type sum struct {
	Case    string `json:"case"`
	Request string `json:"request"`
	Count   int    `json:"count"`
	Bytes   int    `json:"bytes"`
	SHA256  string `json:"sha256"`
}

// add feeds one request into the digest: every field that reaches the wire or
// steers the sending, each ended by a zero byte, then the body.
func add(h hash.Hash, r *cases.Request) {
	fields := []string{
		r.Method, r.Path, fmt.Sprint(r.N), fmt.Sprint(r.Concurrency),
		fmt.Sprint(r.AbortAfter.Milliseconds()), fmt.Sprint(r.Chunked),
	}
	keys := make([]string, 0, len(r.Headers))
	for k := range r.Headers {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		fields = append(fields, k, r.Headers[k])
	}
	for _, f := range fields {
		io.WriteString(h, f+"\x00")
	}
	fmt.Fprintf(h, "\x00%d\x00", len(r.Body))
	h.Write(r.Body)
}

// Every request of every case equals, byte for byte, what the published
// expander makes of it.
func TestExpansionEqualsReference(t *testing.T) {
	text, err := os.ReadFile("testdata/checksums.json")
	if err != nil {
		t.Fatal(err)
	}
	var want []sum
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	dir, err := cases.Dir()
	if err != nil {
		t.Fatal(err)
	}
	all, err := cases.ReadAll(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []sum
	for _, c := range all {
		for k := range c.Raw {
			name := c.Raw[k].Name
			s, h := sum{Case: c.ID, Request: name}, sha256.New()
			for r := range c.Requests(name) {
				s.Count++
				s.Bytes += len(r.Body)
				add(h, &r)
			}
			s.SHA256 = hex.EncodeToString(h.Sum(nil))
			got = append(got, s)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d named requests, want %d", len(got), len(want))
	}
	for k := range min(len(got), len(want)) {
		if got[k] != want[k] {
			t.Errorf("differs:\n got %+v\nwant %+v", got[k], want[k])
		}
	}
}

func TestCasesAreComplete(t *testing.T) {
	dir, err := cases.Dir()
	if err != nil {
		t.Fatal(err)
	}
	all, err := cases.ReadAll(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 35 {
		t.Errorf("%d cases, want 35", len(all))
	}
	for _, c := range all {
		if c.Title == "" || c.Given.Pods == "" || len(c.Steps) == 0 || len(c.Expect) == 0 || len(c.Raw) == 0 {
			t.Errorf("%s: title, pods, steps, expect or requests are missing", c.File)
		}
	}
}

// write makes a one-request case file and returns its path.
func write(t *testing.T, request string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "T-1-x.json")
	text := `{"id":"T-1","requests":[` + request + `]}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func read(t *testing.T, request string) *cases.Case {
	t.Helper()
	c, err := cases.Read(write(t, request))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func gen(g string) string {
	return `{"name":"x","method":"POST","path":"/p","headers":{"A":"b"},"body_gen":` + g + `}`
}

// What the published half of the cases does not use, but the format has.
func TestFormatBeyondTheFiles(t *testing.T) {
	t.Run("modulo, path, header template, chunked", func(t *testing.T) {
		c := read(t, gen(`{"template":"{{i%3}}|{{i:04d}}|{{words:w{i%2}x,2}}","i_from":4,"i_to":5,
			"chunked":true,"path":"/q","header_template":{"H":"v{{i}}"},"concurrency":2}`))
		rs := c.Named(t, "x")
		if len(rs) != 2 {
			t.Fatalf("%d requests, want 2", len(rs))
		}
		r := rs[1]
		if got, want := string(r.Body), "2|0005|w1x0001 w1x0002"; got != want {
			t.Errorf("body %q, want %q", got, want)
		}
		if r.Path != "/q" || r.Headers["H"] != "v5" || r.Headers["A"] != "b" || !r.Chunked || r.Concurrency != 2 || r.N != 5 {
			t.Errorf("request %+v", r)
		}
		if rs[0].Headers["H"] != "v4" {
			t.Errorf("the requests share a header map: %v", rs[0].Headers)
		}
	})
	t.Run("gzip and zstd", func(t *testing.T) {
		for _, enc := range []string{"gzip", "zstd"} {
			r := read(t, gen(`{"template":"{{words:zip,500}}","encode":"`+enc+`"}`)).One(t, "x")
			plain := read(t, gen(`{"template":"{{words:zip,500}}"}`)).One(t, "x").Body
			if got := decode(t, enc, bytes.NewReader(r.Body)); !bytes.Equal(got, plain) {
				t.Errorf("%s: decodes to %d bytes, want %d", enc, len(got), len(plain))
			}
			if len(r.Body) >= len(plain) {
				t.Errorf("%s: %d bytes from %d are not compressed", enc, len(r.Body), len(plain))
			}
		}
	})
	t.Run("zeros are compressed while sending", func(t *testing.T) {
		const size = 4 << 20
		for _, enc := range []string{"gzip", "zstd"} {
			r := read(t, gen(fmt.Sprintf(`{"zeros_bytes":%d,"encode":%q}`, size, enc))).One(t, "x")
			if len(r.Body) != 0 {
				t.Fatalf("%d bytes in memory", len(r.Body))
			}
			req, err := r.HTTP(context.Background(), "http://127.0.0.1:1")
			if err != nil {
				t.Fatal(err)
			}
			if n := len(decode(t, enc, req.Body)); n != size {
				t.Errorf("%s: %d bytes, want %d", enc, n, size)
			}
			// a client that stops in the middle leaves no goroutine (TestMain checks)
			req, err = r.HTTP(context.Background(), "http://127.0.0.1:1")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := req.Body.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			req.Body.Close()
		}
	})
}

func decode(t *testing.T, enc string, r io.Reader) []byte {
	t.Helper()
	var d io.Reader
	var err error
	if enc == "gzip" {
		d, err = gzip.NewReader(r)
	} else {
		var z *zstd.Decoder
		z, err = zstd.NewReader(r, zstd.WithDecoderConcurrency(1))
		if err == nil {
			defer z.Close()
		}
		d = z
	}
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(d)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestReadRefuses(t *testing.T) {
	for _, tc := range []struct{ name, request, want string }{
		{"unknown key", `{"name":"x","method":"POST","path":"/","bodi":"x"}`, "bodi"},
		{"no method", `{"name":"x","path":"/"}`, "want a name, a method"},
		{"two bodies", `{"name":"x","method":"POST","path":"/","body":"a","body_base64":"YQ=="}`, "more than one"},
		{"bad base64", `{"name":"x","method":"POST","path":"/","body_base64":"!"}`, "body_base64"},
		{"repeat", `{"name":"x","method":"POST","path":"/","repeat":0}`, "repeat 0"},
		{"same name", `{"name":"x","method":"POST","path":"/"},{"name":"x","method":"POST","path":"/"}`, "two requests"},
		{"open placeholder", gen(`{"template":"{{i"}`), "no closing"},
		{"unknown placeholder", gen(`{"template":"{{j}}"}`), "unknown placeholder"},
		{"bad format", gen(`{"template":"{{i:x}}"}`), "{{i:x}}"},
		{"bad modulus", gen(`{"template":"{{i%0}}"}`), "modulus"},
		{"bad words", gen(`{"template":"{{words:a}}"}`), "want words:NAME,N"},
		{"bad word count", gen(`{"template":"{{words:a,b}}"}`), "number of words"},
		{"bad word name", gen(`{"template":"{{words:a{i:04d},2}}"}`), "in the name"},
		{"pad without sizes", gen(`{"template":"{{pad}}"}`), "needs pad_body_to_bytes"},
		{"sizes without pad", gen(`{"template":"x","pad_body_to_bytes":[9]}`), "needs {{pad}}"},
		{"pad and number", gen(`{"template":"{{i}}{{pad}}","pad_body_to_bytes":[9]}`), "no other placeholder"},
		{"size below template", gen(`{"template":"xxxx{{pad}}","pad_body_to_bytes":[3]}`), "the template alone has 4"},
		{"encoding", gen(`{"template":"x","encode":"br"}`), `encode "br"`},
		{"zeros in the clear", gen(`{"zeros_bytes":9}`), "needs encode"},
		{"pad in a header", gen(`{"template":"x","header_template":{"H":"{{pad}}"}}`), "no {{pad}}"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			file := write(t, tc.request)
			_, err := cases.Read(file)
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), file) {
				t.Errorf("error %v, want one that names the file and says %q", err, tc.want)
			}
		})
	}
	t.Run("name of the file", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "other.json")
		if err := os.WriteFile(file, []byte(`{"id":"T-1"}`), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := cases.Read(file); err == nil {
			t.Error("a file whose name does not begin with its id was taken")
		}
	})
}

// HTTP carries headers, Host, length and body over a real connection.
func TestHTTP(t *testing.T) {
	type seen struct {
		host, a, length string
		te              []string
		body            []byte
	}
	got := make(chan seen, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got <- seen{r.Host, r.Header.Get("A"), r.Header.Get("Content-Length"), r.TransferEncoding, b}
	}))
	defer srv.Close()
	defer http.DefaultClient.CloseIdleConnections()
	send := func(r cases.Request) seen {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		req, err := r.HTTP(ctx, srv.URL+"/")
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return <-got
	}
	r := cases.Request{Method: "POST", Path: "/x", Headers: map[string]string{"host": "h.test", "A": "b"}, Body: []byte("hello")}
	if s := send(r); s.host != "h.test" || s.a != "b" || s.length != "5" || string(s.body) != "hello" {
		t.Errorf("seen %+v", s)
	}
	r.Chunked = true
	if s := send(r); s.length != "" || !slices.Equal(s.te, []string{"chunked"}) || string(s.body) != "hello" {
		t.Errorf("chunked: seen %+v", s)
	}
	r = cases.Request{Method: "GET", Path: "/x"}
	if s := send(r); s.length != "" || s.te != nil || len(s.body) != 0 {
		t.Errorf("no body: seen %+v", s)
	}
}
