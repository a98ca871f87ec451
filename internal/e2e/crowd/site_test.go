package crowd

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// process is the real binary with one site over plain HTTP, as a child process.
type process struct {
	*testcaddy.Process
	address string
	base    string
	admin   *testcaddy.Client
	client  *testcaddy.Client
}

// start runs the binary, without the race detector, with a calinix directive of
// these keys.
func start(t *testing.T, keys string) *process {
	t.Helper()
	port, admin := testcaddy.Port(t), testcaddy.Port(t)
	file := filepath.Join(t.TempDir(), "Caddyfile")
	text := fmt.Sprintf("{\nadmin localhost:%d\ngrace_period 5s\n}\nhttp://:%d {\ncalinix {\n%s\nhealth {\ntimeout 20s\n}\n}\n}\n", admin, port, keys)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &process{address: fmt.Sprintf("127.0.0.1:%d", port)}
	p.base = "http://" + p.address
	p.Process = testcaddy.StartProcess(t, testcaddy.ProcessOptions{Path: testcaddy.PlainBinary(t), Args: []string{"run", "--config", file, "--adapter", "caddyfile"}})
	p.WaitReady(t, p.base+"/v1/models")
	p.admin = testcaddy.NewClient(t, testcaddy.H1, fmt.Sprintf("http://localhost:%d", admin))
	p.client = testcaddy.NewClient(t, testcaddy.H1, p.base)
	return p
}

// metrics scrapes the process.
func (p *process) metrics(t *testing.T) testcaddy.Metrics {
	t.Helper()
	m, err := testcaddy.ParseMetrics(string(p.admin.Get(t, "/metrics").Body))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// wait scrapes until cond is true. what completes "timed out waiting for …".
func (p *process) wait(t *testing.T, what string, cond func(testcaddy.Metrics) bool) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !cond(p.metrics(t)); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting for %s; the metrics are %v", what, p.metrics(t))
		}
	}
}

// await waits until the sum of a metric is want.
func (p *process) await(t *testing.T, want float64, name string, labels ...string) {
	t.Helper()
	p.wait(t, fmt.Sprintf("%s %q to be %v", name, labels, want), func(m testcaddy.Metrics) bool { return m.Sum(name, labels...) == want })
}

// settled is the resident memory after garbage was collected.
func (p *process) settled(t *testing.T) int64 {
	t.Helper()
	if a := p.admin.Get(t, "/debug/pprof/heap?gc=1"); a.Status != http.StatusOK {
		t.Fatal(a)
	}
	n := p.Memory()
	if n < 0 {
		t.Skip("this system does not tell what a process takes")
	}
	return n
}

// others is a path at which every pod answers at once.
const others = "/v1/chat/completions"

// servesOthers checks that a usual request of that size is served meanwhile.
func (p *process) servesOthers(t *testing.T, size int) {
	t.Helper()
	body := `{"model":"m","messages":[{"role":"user","content":""}]}`
	body = strings.Replace(body, `""`, `"`+strings.Repeat("x", size-len(body))+`"`, 1)
	if a := p.client.Post(t, others, body); a.Status != http.StatusOK {
		t.Errorf("a usual request meanwhile: %v", a)
	}
}

// list is the pods of a section, each with these lines.
func list(pods fakepod.Pods, lines string) string {
	var b strings.Builder
	for _, p := range pods {
		fmt.Fprintf(&b, "pod %s %s {\n%s\n}\n", p.Name, p.URL, lines)
	}
	return b.String()
}
