//go:build live

package live

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/fleet"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
	"github.com/calinix/caddy-calinix/replay"
)

func TestMain(m *testing.M) { testcaddy.Main(m) }

const (
	pods     = 8
	requests = 500
	rate     = 6.5 // requests a second in the trace's time, 80 % of what 8 pods serve
	overload = 2   // times what the pods serve in time is too many
	faster   = 8
	shorter  = 32 // tokens of the trace to a word
	apart    = 1.5
)

// policies are those that are compared, by their names in the replay, and as a
// Caddyfile has them.
var policies = map[string]string{
	"expectedTTFT":    "expected_ttft",
	"cacheAware":      "cache_aware",
	"leastLoaded":     "least_loaded",
	"powerOfTwo":      "power_of_two",
	"roundRobin":      "round_robin",
	"random":          "random",
	"sessionAffinity": "session_affinity",
	"prefix-bounded":  "prefix",
}

// readTrace returns the requests to play.
func readTrace(t *testing.T) *replay.Trace {
	t.Helper()
	all := replay.Conversations(requests, 23)
	if name := os.Getenv("CALINIX_TRACE"); name != "" {
		src, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer src.Close()
		if all, err = replay.ReadMooncake(src, 1); err != nil {
			t.Fatal(err)
		}
	}
	first := *all
	first.Requests = first.Requests[:min(requests, len(first.Requests))]
	return &first
}

// TestRanking: live, the policies rank as in the replay.
func TestRanking(t *testing.T) {
	trace := readTrace(t)
	expected, seen := map[string]float64{}, map[string]float64{}
	var names []string
	for name := range policies {
		names = append(names, name)
		p, ok := replay.PolicyNamed(name)
		if !ok {
			t.Fatalf("the replay has no policy %s", name)
		}
		r, err := replay.Run{Trace: trace, Policy: p, Pods: pods, Engine: replay.H100(), Rate: rate, Seed: 1}.Do()
		if err != nil {
			t.Fatal(err)
		}
		expected[name] = r.Mean
	}
	slices.SortFunc(names, func(a, b string) int { return int(1000 * (expected[a] - expected[b])) })
	for _, name := range names {
		seen[name] = played(t, trace, name, rate, "strategy "+policies[name], expected[name])
	}
	pairs := 0
	for i, a := range names {
		for _, b := range names[i+1:] {
			if expected[b] < apart*expected[a] {
				continue
			}
			pairs++
			if seen[a] >= seen[b] {
				t.Errorf("%s is faster than %s in the replay, but not live", a, b)
			}
		}
	}
	if pairs == 0 {
		t.Error("the replay tells no two policies apart")
	}
}

// TestOverload: where there are more requests than the pods can serve, holding makes
// the first bytes come sooner by far, live as in the replay.
func TestOverload(t *testing.T) {
	trace := readTrace(t)
	run := replay.Run{Trace: trace, Pods: pods, Engine: replay.H100(), Seed: 1}
	run.Policy, _ = replay.PolicyNamed("expectedTTFT")
	full, err := run.Sustained(0.99)
	if err != nil {
		t.Fatal(err)
	}
	run.Rate = overload * full
	var expected, seen []float64
	for _, c := range []struct{ name, keys string }{
		{"expectedTTFT", "strategy expected_ttft"},
		{"expectedTTFT+hold", fmt.Sprintf("strategy expected_ttft\noverload {\nhold %v\n}", fleet.DefaultOverload().Above/faster)},
	} {
		run.Policy, _ = replay.PolicyNamed(c.name)
		r, err := run.Do()
		if err != nil {
			t.Fatal(err)
		}
		expected = append(expected, r.Mean)
		seen = append(seen, played(t, trace, c.name, run.Rate, c.keys, r.Mean))
	}
	for where, means := range map[string][]float64{"in the replay": expected, "live": seen} {
		if gain := means[0] / means[1]; gain < apart {
			t.Errorf("%s the mean is only %.2f times as long without holding", where, gain)
		}
	}
}

// played plays the trace and returns the mean time to the first byte, in ms of the
// trace's time.
func played(t *testing.T, trace *replay.Trace, name string, rate float64, keys string, expected float64) (mean float64) {
	t.Helper()
	first := play(t, trace, rate, keys)
	sum := time.Duration(0)
	for _, d := range first {
		sum += d
	}
	mean = sum.Seconds() * 1000 * faster / float64(len(first))
	slices.Sort(first)
	t.Logf("%-17s mean time to the first byte: %5.0f ms in the replay, %5.0f ms live (median %.0f, p99 %.0f)", name, expected, mean,
		first[len(first)/2].Seconds()*1000*faster, first[len(first)*99/100].Seconds()*1000*faster)
	return mean
}

// play sends the trace at that rate and returns the times to the first byte.
func play(t *testing.T, trace *replay.Trace, rate float64, keys string) []time.Duration {
	t.Helper()
	url, stop := serve(t, keys)
	defer stop()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}
	defer client.CloseIdleConnections()
	times := make([]time.Duration, len(trace.Requests))
	pace := time.Duration(float64(time.Millisecond) * trace.Rate() / rate / faster)
	var all sync.WaitGroup
	began := time.Now()
	for i := range trace.Requests {
		r := &trace.Requests[i]
		body, session := bodyOf(r), strconv.Itoa(int(r.Session))
		time.Sleep(time.Until(began.Add(time.Duration(r.At * float64(pace)))))
		all.Go(func() {
			d, err := firstByte(client, url, session, body)
			if err != nil {
				t.Errorf("request %d: %v", i, err)
			}
			times[i] = d
		})
	}
	all.Wait()
	return times
}

// serve starts the binary with the engines in it. An engine's speed and memory
// are those of the replay's, in this scenario's time and words.
func serve(t *testing.T, keys string) (url string, stop func()) {
	t.Helper()
	h := replay.H100()
	port, admin := testcaddy.Port(t), testcaddy.Port(t)
	var list, engines strings.Builder
	for i := range pods {
		at := testcaddy.Port(t)
		fmt.Fprintf(&list, "pod pod-%d http://127.0.0.1:%d\n", i, at)
		fmt.Fprintf(&engines, `http://:%d {
	bind 127.0.0.1
	inference_sim {
		num_gpu_blocks            %d
		max_num_batched_tokens    %d
		prefill_tokens_per_second %f
		attention_tokens          %f
		decode_tokens_per_second  %f
	}
}
`, at, h.CacheBlocks, h.Chunk/shorter, 1000/h.Token/shorter*faster, h.Token/h.Context/shorter, 1000/h.Step*faster)
	}
	caddyfile := fmt.Sprintf(`{
	admin localhost:%d
	grace_period 1s
}
http://:%d {
	calinix {
		%s
		cache_registry {
			blocks_per_pod %d
		}
		expected_ttft {
			prefill_rate %f
			tau          %s
		}
		health {
			timeout 10s
		}
		single {
			%s
		}
	}
}
%s`, admin, port, keys, h.CacheBlocks, 2000.0/shorter*faster, 20*time.Second/faster, list.String(), engines.String())
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "Caddyfile"), []byte(caddyfile), 0o600); err != nil {
		t.Fatal(err)
	}
	p := testcaddy.StartProcess(t, testcaddy.ProcessOptions{Path: testcaddy.PlainBinary(t), Dir: dir, Args: []string{"run", "--config", "Caddyfile"}})
	url = fmt.Sprintf("http://127.0.0.1:%d/v1/completions", port)
	p.WaitReady(t, fmt.Sprintf("http://127.0.0.1:%d/v1/models", port))
	return url, p.Kill
}

// bodyOf is a request with 16 words for each block of the prompt, fewer for the
// last, which is partial. A word is as long as the estimate takes a token for, 4
// bytes with its space. The first block is the key for those who hash prefixes.
func bodyOf(r *replay.Request) string {
	const words = 512 / shorter
	var b strings.Builder
	left := max(1, r.Input/shorter)
	for _, id := range r.Blocks {
		x := uint64(id)*0x9e3779b97f4a7c15 + 1
		for range min(words, left) {
			x = x*6364136223846793005 + 1442695040888963407
			for shift := 40; shift > 16; shift -= 8 {
				b.WriteByte('a' + byte(x>>shift)%26)
			}
			b.WriteByte(' ')
		}
		left = max(0, left-words)
	}
	body, err := json.Marshal(map[string]any{"model": "m", "stream": true, "max_tokens": 1 + r.Output/shorter, "prompt": b.String(), "prefix": strconv.Itoa(int(r.Blocks[0]))})
	if err != nil {
		panic(err) // strings and numbers: cannot fail
	}
	return string(body)
}

// firstByte sends a request and returns when the first byte of its stream came.
func firstByte(client *http.Client, url, session, body string) (first time.Duration, err error) {
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Session-ID", session)
	began := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("status %s", resp.Status)
	}
	in := bufio.NewReader(resp.Body)
	if _, err := in.ReadByte(); err != nil {
		return 0, err
	}
	first = time.Since(began)
	_, err = io.Copy(io.Discard, in)
	return first, err
}
