package enginesim

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// What a request costs besides the time it is told to take: reading, tokenizing,
// hashing, scheduling, writing.
func BenchmarkChat(b *testing.B) {
	e, err := New(Settings{PrefillTokensPerSecond: 1e12, DecodeTokensPerSecond: 1e9, MaxNumBatchedTokens: 1 << 20}, SystemClock(), NewPeers())
	if err != nil {
		b.Fatal(err)
	}
	for _, kib := range []int{1, 8, 64, 220} {
		var t strings.Builder
		for i := 0; t.Len() < kib<<10; i++ {
			t.WriteString(words[mix(uint64(i))%uint64(len(words))] + " ")
		}
		body := `{"model":"m","messages":[{"role":"user","content":"` + t.String() + `"}],"max_tokens":1}`
		b.Run(fmt.Sprintf("%dKiB", kib), func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				req, _ := http.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(body))
				w := &nowhere{h: http.Header{}}
				e.ServeHTTP(w, req)
				if w.status != 200 {
					b.Fatal(w.status)
				}
			}
		})
	}
}

type nowhere struct {
	h      http.Header
	status int
}

func (w *nowhere) Header() http.Header         { return w.h }
func (w *nowhere) WriteHeader(status int)      { w.status = status }
func (w *nowhere) Write(b []byte) (int, error) { return io.Discard.Write(b) }
