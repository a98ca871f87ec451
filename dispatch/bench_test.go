package dispatch

import (
	"fmt"
	"strings"
	"testing"

	"github.com/calinix/caddy-calinix/prompt"
)

// BenchmarkLegs makes the bodies of both legs of a chat request, and reads a
// prefill reply whose parameters list a block for every 64 bytes of prompt.
func BenchmarkLegs(b *testing.B) {
	for _, size := range []int{1 << 10, 8 << 10, 64 << 10, 220 << 10} {
		text := strings.Repeat("the quick brown fox jumps over it\\n ", size/36)
		body := []byte(`{"model":"m","messages":[{"role":"user","content":"` + text + `"}],"max_tokens":64,"stream":true}`)
		blocks := strings.Repeat("123456,", size/64) + "1"
		reply := []byte(`{"choices":[{"message":{"content":"x"}}],"kv_transfer_params":{"remote_block_ids":[[` + blocks + `]],"remote_engine_id":"e"}}`)
		h, err := nixl{}.ReadPrefill(reply)
		if err != nil {
			b.Fatal(err)
		}
		try := &Try{API: prompt.Chat, Body: body}
		dst := make([]byte, 0, 2*len(body))
		run := func(name string, n int, f func() error) {
			b.Run(fmt.Sprintf("%s/%dKiB", name, size>>10), func(b *testing.B) {
				b.SetBytes(int64(n))
				b.ReportAllocs()
				for b.Loop() {
					if err := f(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		run("Strip", len(body), func() error {
			_, _, err := Strip(dst, body)
			return err
		})
		run("Prefill", len(body), func() error {
			_, err := nixl{}.Prefill(dst, try)
			return err
		})
		run("ReadPrefill", len(reply), func() error {
			_, err := nixl{}.ReadPrefill(reply)
			return err
		})
		run("Decode", len(body), func() error {
			_, err := nixl{}.Decode(dst, try, h)
			return err
		})
	}
}
