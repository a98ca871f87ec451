package calinix

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/chain"
	"github.com/calinix/caddy-calinix/config"
	"github.com/calinix/caddy-calinix/fleet"
	"github.com/calinix/caddy-calinix/index"
	"github.com/calinix/caddy-calinix/outcome"
	"github.com/calinix/caddy-calinix/prompt"
)

// BenchmarkDecision measures everything between a body that has been read and a
// picked pod: body scan, chain, index query, filter, score, pick, registration
// and headers, over hundreds of different prompts whose first half every pod
// holds, beside 100,000 blocks of others. It reports p10 over batches, also as a
// ratio to Y: one serial FNV-1a pass over the prompt's text in the same run.
func BenchmarkDecision(b *testing.B) {
	for _, size := range []struct {
		bytes, bodies int
	}{{1 << 10, 512}, {8 << 10, 512}, {64 << 10, 64}} {
		for _, pods := range []int{16, 256} {
			b.Run(fmt.Sprintf("bytes=%d/pods=%d", size.bytes, pods), func(b *testing.B) {
				benchmarkDecision(b, size.bytes, size.bodies, pods)
			})
		}
	}
}

func benchmarkDecision(b *testing.B, size, bodies, pods int) {
	h := benchHandler(b, pods)
	requests := make([]*http.Request, bodies)
	texts := make([]string, bodies)
	raw := make([][]byte, bodies)
	rng := rand.New(rand.NewPCG(1, uint64(size)))
	for i := range requests {
		texts[i] = prose(rng, size)
		body, err := json.Marshal(map[string]any{"model": "m", "messages": []any{map[string]any{"role": "user", "content": texts[i]}}})
		if err != nil {
			b.Fatal(err)
		}
		raw[i] = body
		requests[i] = httptest.NewRequest(http.MethodPost, "/v1/chat/completions", nil)
		for p := range pods {
			hold(b, h, uint8(p), firstHalf(texts[i]))
		}
	}
	for i := range 1000 {
		hold(b, h, uint8(i%pods), prose(rng, 16*16*100)) // 100 blocks or more each
	}

	const batch = 4
	var samples []float64
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; n += batch {
		start := time.Now()
		for k := range batch {
			i := (n + k) % bodies
			r := requests[i]
			r.Body = io.NopCloser(bytes.NewReader(raw[i]))
			r.ContentLength = int64(len(raw[i]))
			decide(b, h, r)
		}
		samples = append(samples, float64(time.Since(start))/batch)
	}
	b.StopTimer()
	y := yardstick(texts)
	b.ReportMetric(p10(samples), "p10-ns")
	b.ReportMetric(y, "Y-ns")
	b.ReportMetric(p10(samples)/y, "Y-ratio")
}

func decide(b *testing.B, h *Handler, r *http.Request) {
	x := exchange{h: h, r: r, w: discard{r.Header}}
	if refused := x.prepare(); refused != nil {
		b.Fatal(refused)
	}
	ask := x.ask(fleet.Single, index.Bitmap{})
	lease := new(fleet.Lease)
	if err := h.state.fleet.Begin(x.read, &ask, lease); err != nil {
		b.Fatal(err)
	}
	x.enroute(outcome.Single, lease)
	lease.End(x.read, outcome.Answered)
	x.release()
}

// discard is a response writer that nobody reads.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}

// yardstick returns the p10 of one serial FNV-1a pass over a text, in ns.
func yardstick(texts []string) float64 {
	var samples []float64
	var sum uint64
	for range 3 {
		for _, text := range texts {
			start := time.Now()
			h := uint64(14695981039346656037)
			for _, c := range []byte(text) {
				h ^= uint64(c)
				h *= 1099511628211
			}
			samples = append(samples, float64(time.Since(start)))
			sum ^= h
		}
	}
	if sum == 0 {
		samples[0]++ // keeps the pass alive
	}
	return p10(samples)
}

func p10(samples []float64) float64 {
	slices.Sort(samples)
	return samples[len(samples)/10]
}

// prose returns English-like text of exactly size bytes.
func prose(rng *rand.Rand, size int) string {
	var b strings.Builder
	for b.Len() < size {
		for range 1 + rng.IntN(9) {
			b.WriteByte(byte('a' + rng.IntN(26)))
		}
		b.WriteByte(' ')
	}
	return b.String()[:size]
}

// firstHalf is the first half of a text, cut at a space.
func firstHalf(text string) string { return text[:strings.LastIndexByte(text[:len(text)/2], ' ')] }

// benchHandler is a handler with n pods, without a Caddy around it.
func benchHandler(b *testing.B, n int) *Handler {
	h := &Handler{metrics: shared, now: time.Now}
	h.Single = &config.Single{}
	for i := range n {
		h.Single.Pods = append(h.Single.Pods, config.Pod{ID: fmt.Sprintf("pod-%d", i), URL: fmt.Sprintf("http://10.0.0.%d:8000", i)})
	}
	block := 32
	h.BlockSize = &block
	h.effective = h.Defaults()
	if err := h.settle(); err != nil {
		b.Fatal(err)
	}
	blocks := index.New(index.Options{MaxBlocks: 1_000_000})
	h.state = &balancer{name: "bench", blocks: blocks, fleet: fleet.New(fleet.Options{Index: blocks, Sessions: fleet.Sessions{TTL: time.Hour, Max: 1000}})}
	if _, err := h.state.fleet.Apply(time.Now(), podsOf(h.effective)); err != nil {
		b.Fatal(err)
	}
	return h
}

// hold makes the index believe that the pod holds the prompt.
func hold(b *testing.B, h *Handler, pod uint8, text string) {
	body, err := json.Marshal(map[string]any{"model": "m", "messages": []any{map[string]any{"role": "user", "content": text}}})
	if err != nil {
		b.Fatal(err)
	}
	var req prompt.Request
	req.Parse(prompt.Chat, body)
	var c chain.Chain
	c.Reset(h.chain, req.Seed, req.Text)
	var q index.Query
	h.state.blocks.Query(&q, &c, index.All(index.Pods))
	h.state.blocks.Register(time.Now(), pod, &c, &q)
}
