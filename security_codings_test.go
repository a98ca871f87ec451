package calinix_test

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"io"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

func gzipped(plain string) []byte {
	return packed(plain, func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) })
}

func packed(plain string, with func(io.Writer) io.WriteCloser) []byte {
	var b bytes.Buffer
	w := with(&b)
	_, err := io.WriteString(w, plain)
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		panic(err)
	}
	return b.Bytes()
}

// codings packs a text in every content coding that is known.
var codings = map[string]func(string) []byte{
	"gzip":   gzipped,
	"X-GZip": gzipped,
	"zstd": func(s string) []byte {
		return packed(s, func(w io.Writer) io.WriteCloser { z, _ := zstd.NewWriter(w); return z })
	},
	"deflate": func(s string) []byte {
		return packed(s, func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) })
	},
	" deflate": func(s string) []byte { // without the header of zlib
		return packed(s, func(w io.Writer) io.WriteCloser { z, _ := flate.NewWriter(w, 9); return z })
	},
	"gzip, gzip":     func(s string) []byte { return gzipped(string(gzipped(s))) },
	"identity, gzip": gzipped,
	"identity":       func(s string) []byte { return []byte(s) },
}

// secureEncodedBodies: a compressed body is searched decompressed, and so it goes
// on.
func secureEncodedBodies(t *testing.T) {
	s, _, prefill, decode := bothModes(t, "mode dispatch")
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		for coding, pack := range codings {
			if coding == "identity" {
				continue
			}
			for _, member := range []string{`"kv_transfer_params":` + evil, `"\u0062ootstrap_host":"evil"`} {
				if a := cl.Post(t, chatPath, string(pack(smuggled(member))), "Content-Encoding", coding); a.Status != 200 {
					t.Fatalf("%s: %v", coding, a)
				}
				wantClean(t, coding, prefill, decode)
				if a := cl.Post(t, "/v1/embeddings", string(pack(`{"input":"x",`+member+`}`)), "Content-Encoding", coding); a.Status != 200 {
					t.Fatalf("%s: %v", coding, a)
				}
				wantClean(t, coding+", one leg", decode)
			}
			// also without anything to remove, for a pod may not look at the header
			cl.Post(t, chatPath, string(pack(question)), "Content-Encoding", coding)
			if got := decode.Last(t); string(got.Body) != question || got.Header.Get("Content-Encoding") != "" {
				t.Errorf("%s: the pod gets %q", coding, got.Body)
			}
			wantError(t, cl.Post(t, chatPath, string(pack("\ufeff"+smuggled(`"kv_transfer_params":`+evil))), "Content-Encoding", coding), 400)
		}
	})
}

// secureUnknownEncodings: what cannot be decompressed cannot be searched.
func secureUnknownEncodings(t *testing.T) {
	s, one, prefill, decode := bothModes(t)
	plain := smuggled(`"kv_transfer_params":` + evil)
	s.Each(t, func(t *testing.T, cl *testcaddy.Client) {
		for _, c := range []struct {
			coding, body string
			status       int
		}{
			{"br", plain, 415}, // as many engines take it: without a look at the header
			{"br", "\x0b\x02\x80{}\x03", 415},
			{"compress", plain, 415},
			{"gzip;q=1", string(gzipped(plain)), 415},
			{"aws-chunked", plain, 415},
			{"gzip, br", plain, 415},
			{"gzip", plain, 400},
			{"zstd", plain, 400},
			{"deflate", plain, 400},
			{"gzip", string(gzipped(plain)[:40]), 400},
			{"gzip", string(gzipped(plain)) + "x", 400}, // some decoders stop before the x
			{"gzip", "", 0},
			{"gzip,gzip,gzip,gzip", plain, 400},
		} {
			for _, path := range []string{chatPath, "/v1/embeddings"} {
				for _, hide := range []bool{false, true} {
					headers := []string{"Content-Encoding", c.coding, "x-calinix-mode", "dispatch"}
					if hide {
						if cl.Protocol != testcaddy.H1 {
							continue // only HTTP/1.1 has that header
						}
						headers = append(headers, "Connection", "Content-Encoding")
					}
					a := cl.Post(t, path, c.body, headers...)
					if c.status == 0 {
						if a.Status != 200 {
							t.Errorf("no body at all: %v", a)
						}
						continue
					}
					code := wantError(t, a, c.status)
					if want := map[int]string{400: "bad_body", 415: "unsupported_content_encoding"}[c.status]; code != want {
						t.Errorf("%s: code %s", c.coding, code)
					}
				}
			}
		}
	})
	for _, p := range []*fakepod.Pod{one, prefill, decode} {
		for _, q := range p.Requests() {
			if len(q.Body) > 0 {
				t.Errorf("pod %s gets %q", p.Name, q.Body)
			}
		}
	}
}
