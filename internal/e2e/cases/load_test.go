package cases_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/cases"
	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// process is the real binary with one site, as a child process.
type process struct {
	*testcaddy.Process
	port, admin int
	keys        string
}

// startProcess runs the binary at path with a calinix directive of these keys.
func startProcess(t *testing.T, path, keys string) *process {
	t.Helper()
	p := &process{port: testcaddy.Port(t), admin: testcaddy.Port(t), keys: keys}
	file := filepath.Join(t.TempDir(), "Caddyfile")
	if err := os.WriteFile(file, []byte(p.caddyfile("")), 0o600); err != nil {
		t.Fatal(err)
	}
	p.Process = testcaddy.StartProcess(t, testcaddy.ProcessOptions{Path: path, Args: []string{"run", "--config", file, "--adapter", "caddyfile"}})
	p.WaitReady(t, p.url()+"/")
	return p
}

func (p *process) url() string      { return fmt.Sprintf("https://localhost:%d", p.port) }
func (p *process) adminURL() string { return fmt.Sprintf("http://localhost:%d", p.admin) }

// caddyfile is the process's configuration; more are lines of the site.
func (p *process) caddyfile(more string) string {
	cert, key := testcaddy.CertFiles()
	return fmt.Sprintf("{\nadmin localhost:%d\nauto_https disable_redirects\ngrace_period 10s\n}\nhttps://:%d {\ntls %s %s\n%s\ncalinix {\n%s\n}\n}\n",
		p.admin, p.port, cert, key, more, p.keys)
}

// reload loads the configuration again, with more lines in the site.
func (p *process) reload(t *testing.T, more string) {
	t.Helper()
	a := testcaddy.NewClient(t, testcaddy.H1, p.adminURL()).Post(t, "/load", p.caddyfile(more), "Content-Type", "text/caddyfile")
	if a.Err != nil || a.Status != http.StatusOK {
		t.Errorf("reloading: %v", a)
	}
}

// TestBR16: concurrent use never crashes the process.
//
// The binary has the race detector if this test has it. 20,000 requests take
// minutes then on two cores; without -slow it is a tenth of them.
func TestBR16(t *testing.T) {
	c := begin(t)
	requests := 2000
	if *slow {
		requests = 20000
	}
	ps := fakepod.NewPods(t, fakepod.Options{Keep: 10}, abcd...)
	p := startProcess(t, testcaddy.Binary(t), "max_body_bytes 1MiB\ncache_registry {\nmax_blocks 300\n}\nhealth {\ninterval 50ms\ntimeout 1500ms\n}\n"+single(ps))
	pid := p.PID()

	flipped := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(flipped)
		for {
			select {
			case <-done:
				return
			case <-time.After(300 * time.Millisecond):
			}
			for _, pod := range ps {
				pod.Healthy(rand.IntN(2) == 0)
			}
		}
	}()

	cl := testcaddy.NewClient(t, testcaddy.H2, p.url()) // its GOAWAY makes reloads safe for requests on their way
	var wg sync.WaitGroup
	var mu sync.Mutex
	ended := map[string]int{}
	var wrong []string
	slots := make(chan struct{}, 64)
	sent := 0
	for r := range first(requests, c.Requests("mix")) {
		slots <- struct{}{}
		if sent++; sent%(requests/4) == 0 && sent < requests {
			more := fmt.Sprintf("header X-Loaded %d", sent)
			wg.Go(func() { p.reload(t, more) })
		}
		leave := rand.IntN(4) == 0
		after := time.Duration(rand.IntN(30)) * time.Millisecond
		wg.Go(func() {
			defer func() { <-slots }()
			if leave {
				r.AbortAfter = max(after, time.Millisecond)
			}
			a := cl.SendCase(t, r)
			mu.Lock()
			defer mu.Unlock()
			switch took := a.Ended.Sub(a.Began); {
			case took > 5*time.Second:
				wrong = append(wrong, fmt.Sprintf("%d hung for %v: %v", r.N, took, a))
			case a.Err != nil && leave:
				ended["left"]++
			case a.Err == nil && (a.Status == 200 || a.Status == 503):
				ended[fmt.Sprint(a.Status)]++
			default:
				wrong = append(wrong, fmt.Sprintf("%d: %v", r.N, a))
			}
		})
	}
	wg.Wait()
	close(done)
	<-flipped
	t.Logf("%d requests: %v", requests, ended)
	c.expect(t, 1, "the process id is the same at the end", func(t *testing.T) {
		out := p.Output()
		for _, bad := range []string{"DATA RACE", "fatal error", "panic"} {
			if strings.Contains(out, bad) {
				t.Errorf("%q in the output", bad)
			}
		}
		if !p.Running() || p.PID() != pid {
			t.Error("the process has ended")
		}
	})
	c.expect(t, 2, "every request ends with 200", func(t *testing.T) {
		for _, w := range wrong[:min(10, len(wrong))] {
			t.Error(w)
		}
		if len(wrong) > 0 || ended["200"] == 0 || ended["left"] == 0 {
			t.Errorf("%d ended otherwise; the others: %v", len(wrong), ended)
		}
	})
	c.expect(t, 3, "3 reloads during the run", func(t *testing.T) {
		for _, pod := range ps {
			pod.Healthy(true)
		}
		p.WaitReady(t, p.url()+"/v1/models") // a pod is up again
		a := cl.Get(t, "/v1/models")
		if want := fmt.Sprint(requests / 4 * 3); a.Status != 200 || a.Header.Get("X-Loaded") != want {
			t.Errorf("the last reload was number %s: %v", want, a)
		}
		if code := p.Stop(t); code != 0 {
			t.Errorf("the process ended with status %d", code)
		}
	})
}

// floods are the sizes of BR-17: after how many prompts the memory is measured,
// with the limit of the index in the same proportion. All of them see the index
// reach its limit, which is about that many prompts of 16 blocks as the first
// measurement comes after.
type flood struct{ first, second, last, maxBlocks int }

// TestBR17: the prefix index has a ceiling.
//
// It measures the binary without the race detector, which multiplies memory.
// Without -slow the last 6,000 of the 30,000 prompts are sent, with an index of a
// fifth of the size.
func TestBR17(t *testing.T) {
	c := begin(t)
	f := flood{600, 4000, 6000, 10000}
	if *slow {
		f = flood{3000, 20000, 30000, 50000}
	}
	ps := fakepod.NewPods(t, fakepod.Options{Keep: 10}, ab...)
	p := startProcess(t, testcaddy.PlainBinary(t), fmt.Sprintf("cache_registry {\nmax_blocks %d\n}\n", f.maxBlocks)+single(ps))
	cl := testcaddy.NewClient(t, testcaddy.H2, p.url())

	all := c.Raw[0].Gen
	skip := *all.To - f.last // those are not sent
	served := make([]string, *all.To+1)
	took := make([]time.Duration, 0, f.last)
	memory := map[int]int64{}
	var batch []cases.Request
	for r := range c.Requests("flood") {
		if r.N <= skip {
			continue
		}
		if batch = append(batch, r); len(batch) < f.first/3 {
			continue
		}
		took = append(took, sendAll(t, cl, batch, served)...)
		batch = batch[:0]
		switch n := len(took); n {
		case f.first, f.second, f.last:
			memory[n] = p.settledMemory(t)
		}
	}
	c.expect(t, 1, "resident memory after 30,000 prompts", func(t *testing.T) {
		a, b, z := memory[f.first], memory[f.second], memory[f.last]
		t.Logf("resident memory: %d MB after %d prompts, %d MB after %d, %d MB after %d", a>>20, f.first, b>>20, f.second, z>>20, f.last)
		if a <= 0 {
			t.Skip("this system does not tell")
		}
		if z-a >= 150<<20 || z-b > 10<<20 {
			t.Errorf("%d bytes after %d prompts, %d after %d, %d after %d", a, f.first, b, f.second, z, f.last)
		}
		m := p.metrics(t)
		if n := m.Sum("calinix_index_blocks"); n == 0 || n > float64(f.maxBlocks) {
			t.Errorf("the index has %v blocks, its limit is %d", n, f.maxBlocks)
		}
	})
	c.expect(t, 2, "at least 16 of 20 'recent'", func(t *testing.T) {
		same, recent := 0, cl.SendCases(t, c.Requests("recent"))
		for _, a := range recent {
			if a.Status == 200 && a.Pod() == served[a.N] {
				same++
			}
		}
		if len(recent) != 20 || same < 16 {
			t.Errorf("%d of %d reach the pod that served the same prompt before", same, len(recent))
		}
	})
	c.expect(t, 3, "median gateway latency of the last 1,000", func(t *testing.T) {
		n := min(1000, f.last/6)
		began := median(took[:n])
		ended := median(took[len(took)-n:])
		// What else runs on the machine may slow down any thousand of them; what
		// grows with the prompts that were ever seen slows down every one from
		// here on.
		for again := 0; ended > 2*began && again < 5; again++ {
			t.Logf("the median was %v at first, %v then; once more", began, ended)
			batch = slices.Collect(first(n, c.Requests("flood")))
			ended = median(sendAll(t, cl, batch, served))
		}
		t.Logf("median latency %v at first, %v in the end", began, ended)
		if ended > 2*began {
			t.Errorf("median latency %v at first, %v in the end", began, ended)
		}
	})
}

// sendAll sends the requests, as many at once as they say, notes who served each
// and returns how long each took, in the order in which they were sent.
func sendAll(t *testing.T, cl *testcaddy.Client, requests []cases.Request, served []string) []time.Duration {
	t.Helper()
	took := make([]time.Duration, len(requests))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range requests[0].Concurrency {
		wg.Go(func() {
			for k := int(next.Add(1)) - 1; k < len(requests); k = int(next.Add(1)) - 1 {
				a := cl.SendCase(t, requests[k])
				if a.Err != nil || a.Status != 200 {
					t.Errorf("%d: %v", requests[k].N, a)
				}
				took[k] = a.Ended.Sub(a.Began)
				served[requests[k].N] = a.Pod()
			}
		})
	}
	wg.Wait()
	return took
}

func median(all []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}

func (p *process) metrics(t *testing.T) testcaddy.Metrics {
	t.Helper()
	m, err := testcaddy.ParseMetrics(string(testcaddy.NewClient(t, testcaddy.H1, p.adminURL()).Get(t, "/metrics").Body))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// settledMemory is the process's resident memory after garbage was collected, by
// asking for a profile of the heap.
func (p *process) settledMemory(t *testing.T) int64 {
	t.Helper()
	if a := testcaddy.NewClient(t, testcaddy.H1, p.adminURL()).Get(t, "/debug/pprof/heap?gc=1"); a.Status != http.StatusOK {
		t.Fatal(a)
	}
	return p.Memory()
}
